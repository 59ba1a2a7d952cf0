"""No token of a login is in any output, error or log, whatever a server does with the tokens that it gets."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tests.cli.telling import COMMANDS, TARGET, said_by, shown
from tests.support.echoing import PATHS, Echoing, echoing

APP = """
import json
from contextlib import suppress
from pathlib import Path
from mcp_toolset import RemoteToolset
from mcp_toolset.config.server_auth import ClientCredentials, OAuth
from mcp_toolset.security.secrets.credential_store import CredentialKey, MemoryCredentialStore

given = json.loads(Path("given.json").read_text())

def stored(credential):
    store = MemoryCredentialStore()
    # This is loaded in an event loop, and memory needs none.
    with suppress(StopIteration):
        store.save(CredentialKey(given["url"], ""), credential).send(None)
    return OAuth(store=store)

auth = stored(given["credential"]) if given["credential"] else ClientCredentials(**given["client"])
tools = RemoteToolset(given["url"], name="up", auth=auth, start_timeout=20, timeout=20).prefixed("up")
"""
TOKEN = st.from_regex(r"[A-Za-z0-9_-]{4}[QXZ][0-9]{4}[A-Za-z0-9_-]{2,20}", fullmatch=True)
LINES = [words for words in COMMANDS if TARGET in words]


@pytest.fixture(scope="module")
def echo() -> Iterator[Echoing]:
    with echoing() as server:
        yield server


@st.composite
def logins(draw: st.DrawFn) -> tuple[dict[str, str], dict[str, Any]]:
    """Secrets by their roles, and how they are used."""
    names: list[str] = ["access", "refresh", "client", "issued", "second"]
    secrets = dict(zip(names, draw(st.lists(TOKEN, min_size=5, max_size=5, unique=True)), strict=True))
    path = draw(st.sampled_from(PATHS))
    stored, renewable, due, issues = (draw(st.booleans()) for _ in range(4))
    return secrets, {"path": path, "stored": stored, "renewable": renewable, "due": due, "issues": issues}


def written(echo: Echoing, secrets: dict[str, str], how: dict[str, Any]) -> dict[str, Any]:
    """What the program is given."""
    client = {"client_id": "me", "client_secret": secrets["client"]}
    credential = {
        "header": f"Bearer {secrets['access']}",
        "refresh_token": secrets["refresh"] if how["renewable"] else "",
        "expires_at": 1.0 if how["due"] else None,
        "renew_at": 1.0 if how["due"] else None,
        "client": {**client, "token_endpoint_auth_method": "client_secret_post"},
        "server": {"issuer": echo.base, "token_endpoint": f"{echo.base}/token_endpoint"},
    }
    return {
        "url": f"{echo.base}/{how['path']}",
        "credential": credential if how["stored"] else None,
        "client": {**client, "issuer": echo.base},
    }


@settings(
    max_examples=settings().max_examples // 4,
    deadline=None,
    # What an example has found stands in the assertion.
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(login=logins(), words=st.sampled_from(LINES))
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
        Path("app.py").write_text(APP)
        Path("given.json").write_text(json.dumps(written(echo, secrets, how)))
        said = said_by(words, "app.py", caplog, capfd)
    assert "up: reached by http" in said
    assert shown(list(secrets.values()), said) == [], how
