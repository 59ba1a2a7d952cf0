"""No token of a login is in any output, error or log, whatever a server does with the tokens that it gets."""

from __future__ import annotations

import base64
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tests.cli.telling import COMMANDS, TELLS_OF_SERVERS, said_by, shown
from tests.support.echoing import PATHS, Echoing, echoing

from mcp_toolset.security.credential_store import CredentialKey
from mcp_toolset.security.named_secrets import NamedSecrets
from mcp_toolset.security.vault import Vault

KEY = base64.b64encode(b"K3y!" * 8).decode()
TOKEN = st.from_regex(r"[A-Za-z0-9_-]{4}[QXZ][0-9]{4}[A-Za-z0-9_-]{2,20}", fullmatch=True)


@pytest.fixture(scope="module")
def echo() -> Iterator[Echoing]:
    with echoing() as server:
        yield server


@st.composite
def logins(draw: st.DrawFn) -> tuple[dict[str, str], dict[str, Any]]:
    """Secrets by their roles, and how they are used."""
    names: list[str] = ["access", "refresh", "client", "issued", "second", "path"]
    secrets = dict(zip(names, draw(st.lists(TOKEN, min_size=6, max_size=6, unique=True)), strict=True))
    path = draw(st.sampled_from(PATHS))
    stored, renewable, due, issues = (draw(st.booleans()) for _ in range(4))
    return secrets, {"path": path, "stored": stored, "renewable": renewable, "due": due, "issues": issues}


def kept(echo: Echoing, url: str, secrets: dict[str, str], how: dict[str, Any]) -> Any:
    """Keep a login as `mcp-toolset login` does; returns what the entry of the server says of it."""
    client = {"client_id": "me", "client_secret": secrets["client"]}
    named = NamedSecrets(Vault())
    named.set("client", secrets["client"])
    if not how["stored"]:
        return {
            "type": "client_credentials",
            "issuer": echo.base,
            "client_id": "me",
            "client_secret": "${keyring:client}",
        }
    credential = {
        "header": f"Bearer {secrets['access']}",
        "refresh_token": secrets["refresh"] if how["renewable"] else "",
        "expires_at": 1.0 if how["due"] else None,
        "renew_at": 1.0 if how["due"] else None,
        "client": {**client, "token_endpoint_auth_method": "client_secret_post"},
        "server": {"issuer": echo.base, "token_endpoint": f"{echo.base}/token_endpoint"},
    }
    anyio.run(Vault().credentials.save, CredentialKey(url, ""), credential)
    return "oauth"


@pytest.mark.needs("upstream_access")
@settings(
    max_examples=settings().max_examples // 4,
    deadline=None,
    # What an example has found stands in the assertion.
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(login=logins(), words=st.sampled_from(COMMANDS))
def test_u19_no_command_shows_a_token_of_a_login(
    login: tuple[dict[str, str], dict[str, Any]],
    words: list[str],
    echo: Echoing,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    secrets, how = login
    echo.issued = [secrets["issued"], secrets["second"]] if how["issues"] else []
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("MCP_TOOLSET_KEY", KEY)
        patch.setenv("MCP_TOOLSET_CREDENTIALS", str(Path(folder, "kept")))
        url = f"{echo.base}/{how['path']}/{secrets['path']}"
        server = {"url": url, "auth": kept(echo, url, secrets, how)}
        section = {"audit": {"path": "audit.jsonl"}}
        Path("mcp.json").write_text(json.dumps({"mcpServers": {"up": server}, "toolset": section}))
        said = said_by(words, "mcp.json", caplog, capfd)
        said += "".join(path.read_text() for path in Path().glob("audit.jsonl*"))
    assert "up: reached by http" in said or words[0] not in TELLS_OF_SERVERS
    assert shown([*secrets.values(), KEY], said) == [], how
