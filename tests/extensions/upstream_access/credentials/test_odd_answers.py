"""Token endpoints that answer with something else than tokens: nothing of their text is shown."""

from __future__ import annotations

import logging
import sys
import time
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.extensions.upstream_access.credentials.odd_endpoint import OddEndpoint, odd_endpoint

from mcp_toolset import Identity, RemoteToolset, ToolsetServer
from mcp_toolset.audit import AuditLog
from mcp_toolset.auth import ClientCredentials, EnterpriseLogin, OAuth, TokenExchange
from mcp_toolset.errors import UpstreamUnavailableError
from mcp_toolset.extensions.upstream_access.reach import ExchangedToken
from mcp_toolset.extensions.upstream_access.token_source import Credential, authorization_http
from mcp_toolset.security.credential_store import MemoryCredentialStore

pytestmark = pytest.mark.anyio
TOKEN = "gho-S3CR3T-abcdefghijklmnopqrstuvwxyz"
FORM = "application/x-www-form-urlencoded"

ODD: dict[str, tuple[bytes | dict[str, Any], str, int | None]] = {
    "a text": (TOKEN.encode(), "text/plain", 200),
    "a JSON text": (f'"{TOKEN}"'.encode(), "application/json", 200),
    "a list": (f'["{TOKEN}"]'.encode(), "application/json", 200),
    "broken JSON": (b'{"access_token": "%s"' % TOKEN.encode(), "application/json", 200),
    "a list as the token": ({"access_token": [TOKEN], "token_type": "Bearer"}, "application/json", 200),
    "another type": ({"access_token": TOKEN, "token_type": TOKEN}, "application/json", 200),
    "a refusal in text": (f"token={TOKEN}".encode(), "text/plain", 400),
    "a refusal that quotes": ({"error": TOKEN, "error_description": TOKEN}, "application/json", 400),
    "a refusal in a form": (f"error=bad_thing&error_description={TOKEN}".encode(), FORM, 200),
    "a refusal with a token": ({"access_token": TOKEN, "token_type": "Bearer"}, "application/json", 500),
    "a reason phrase": (f"HTTP/1.1 400 {TOKEN}\r\ncontent-length: 0\r\n\r\n".encode(), "", None),
    "no HTTP": (f"access_token={TOKEN}\r\n\r\n".encode(), "", None),
}


class Shown:
    """All that a call, a status, a log and an audit log have shown."""

    def __init__(self, caplog: pytest.LogCaptureFixture, audit: Path) -> None:
        self.caplog, self.audit, self.errors = caplog, audit, list[str]()

    def check(self) -> str:
        logged = [f"{record.getMessage()} {record.exc_text or ''}" for record in self.caplog.records]
        lines = self.audit.read_text() if self.audit.exists() else ""
        told = "\n".join([*self.errors, *logged, lines])
        assert "S3CR3T" not in told, told
        return "\n".join(self.errors)


async def tried(mount: RemoteToolset, shown: Shown) -> None:
    server = ToolsetServer(mount, list_timeout=30, keep=False, audit=AuditLog(shown.audit))
    with anyio.fail_after(30):
        async with server:
            await server.settled()
            status = server.statuses()["odd"]
            shown.errors.append(f"{status.state}: {status.reason}")
            try:
                result = await server.call_as_host("say")
                shown.errors.append(result.text)
            except Exception as fault:
                shown.errors.append(repr(fault))


LOGINS: dict[str, Any] = {
    "client credentials": lambda up: ClientCredentials(client_id="c", client_secret="s", issuer=up.base),
    "enterprise": lambda up: EnterpriseLogin(
        client_id="c",
        client_secret="s",
        issuer=up.base,
        idp_client_id="i",
        idp_token_endpoint=f"{up.base}/idp",
        id_token="an-id-token",
    ),
}


@pytest.mark.parametrize(
    ("login", "odd"), [*(("client credentials", odd) for odd in ODD), ("enterprise", "a refusal that quotes")]
)
async def test_u78_no_text_of_a_token_endpoint_is_shown(
    odd: str, login: str, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    caplog.set_level(logging.DEBUG)
    body, kind, status = ODD[odd]
    with odd_endpoint() as up:
        up.answer("/token_endpoint", body, kind, status)
        up.answer("/idp", {"access_token": "an-assertion", "token_type": "N_A"})
        shown = Shown(caplog, tmp_path / "audit.jsonl")
        await tried(RemoteToolset(f"{up.base}/mcp", name="odd", auth=LOGINS[login](up)), shown)
    assert "no credentials for it: 127.0.0.1" in shown.check()
    assert any(each.startswith("POST /token_endpoint") for each in up.received)


@pytest.mark.parametrize("odd", ODD)
async def test_u78_no_text_of_an_identity_provider_is_shown(
    odd: str, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    caplog.set_level(logging.DEBUG)
    body, kind, status = ODD[odd]
    with odd_endpoint() as up:
        up.answer("/idp", body, kind, status)
        up.answer("/token_endpoint", {"error": "invalid_grant"}, status=400)
        shown = Shown(caplog, tmp_path / "audit.jsonl")
        await tried(RemoteToolset(f"{up.base}/mcp", name="odd", auth=LOGINS["enterprise"](up)), shown)
    assert "no credentials for it" in shown.check()


@pytest.mark.parametrize("odd", ODD)
async def test_u78_no_text_of_a_token_endpoint_is_shown_when_tokens_are_renewed_or_exchanged(
    odd: str,
) -> None:
    body, kind, status = ODD[odd]
    with odd_endpoint() as up:
        up.answer("/token_endpoint", body, kind, status)
        url = f"{up.base}/token_endpoint"
        old = Credential("Bearer old", "refresh", client={"client_id": "c"}, server={"token_endpoint": url})
        exchange = TokenExchange(token_url=url, client_id="bridge")
        caller = Identity.of(None, "alice")
        source = ExchangedToken("up", f"{up.base}/mcp", exchange, caller, "token-of-alice")
        async with authorization_http("up", f"{up.base}/mcp", exchange) as http:
            with pytest.raises(UpstreamUnavailableError) as renewed:
                await http.renewed(old, time.time())
        with pytest.raises(UpstreamUnavailableError) as exchanged:
            await source.header(None)
    for fault in (renewed, exchanged):
        assert "S3CR3T" not in repr(fault.value), str(fault.value)


@pytest.mark.parametrize(
    "registered", [{"client_id": ["c"], "client_secret": TOKEN}, {"client_secret": TOKEN}, {}]
)
async def test_u78_no_text_of_a_registration_is_shown(
    registered: dict[str, Any], caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    caplog.set_level(logging.DEBUG)

    class Page:
        redirect_uri = "http://127.0.0.1:9/callback"

        async def visit(self, url: str) -> str:
            raise AssertionError("nobody is sent anywhere")

    with odd_endpoint() as up:
        up.answer("/registration_endpoint", registered, status=201)
        shown = Shown(caplog, tmp_path / "audit.jsonl")
        auth = OAuth(page=Page(), store=MemoryCredentialStore())
        await tried(RemoteToolset(f"{up.base}/mcp", name="odd", auth=auth), shown)
    assert "no credentials for it" in shown.check()


def form_of(up: OddEndpoint) -> None:
    up.answer("/token_endpoint", f"access_token={TOKEN}&scope=repo&token_type=bearer".encode(), FORM)


async def test_u78_tokens_in_form_encoding_are_read(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    caplog.set_level(logging.DEBUG)
    with odd_endpoint() as up:
        form_of(up)
        up.token = TOKEN
        shown = Shown(caplog, tmp_path / "audit.jsonl")
        await tried(RemoteToolset(f"{up.base}/mcp", name="odd", auth=LOGINS["client credentials"](up)), shown)
    assert shown.errors == ["ready: ", "said"], shown.check()


async def test_u78_tokens_in_form_encoding_are_read_when_they_are_renewed_or_exchanged() -> None:
    with odd_endpoint() as up:
        form_of(up)
        url = f"{up.base}/token_endpoint"
        old = Credential("Bearer old", "refresh", client={"client_id": "c"}, server={"token_endpoint": url})
        exchange = TokenExchange(token_url=url, client_id="bridge")
        source = ExchangedToken(
            "up", f"{up.base}/mcp", exchange, Identity.of(None, "alice"), "token-of-alice"
        )
        async with authorization_http("up", f"{up.base}/mcp", exchange) as http:
            renewed = await http.renewed(old, time.time())
        assert renewed is not None and renewed.header == f"Bearer {TOKEN}"
        assert await source.header(None) == f"Bearer {TOKEN}"


@pytest.mark.parametrize("variable", ["HTTPS_PROXY", "MY_PROXY"])
async def test_u78_no_proxy_of_the_environment_brings_a_reason_phrase_into_a_log(
    variable: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv(variable, "http://127.0.0.1:1")
    body, kind, status = ODD["a reason phrase"]
    with odd_endpoint() as up:
        up.answer("/token_endpoint", body, kind, status)
        server = {"token_endpoint": f"{up.base}/token_endpoint"}
        old = Credential("Bearer old", "refresh", client={"client_id": "c"}, server=server)
        async with authorization_http("up", f"{up.base}/mcp", OAuth()) as http:
            with pytest.raises(UpstreamUnavailableError, match="did not renew the token: HTTP 400"):
                await http.renewed(old, time.time())
    assert up.received and "S3CR3T" not in caplog.text


@pytest.mark.parametrize("error", [{}, {"a": TOKEN}, ["invalid_grant"], 5, None])
async def test_u78_an_error_that_is_no_text_ends_no_login(error: object) -> None:
    with odd_endpoint() as up:
        up.answer("/token_endpoint", {"error": error}, status=400)
        server = {"token_endpoint": f"{up.base}/token_endpoint"}
        old = Credential("Bearer old", "refresh", client={"client_id": "c"}, server=server)
        async with authorization_http("up", f"{up.base}/mcp", OAuth()) as http:
            with pytest.raises(UpstreamUnavailableError, match="did not renew the token: HTTP 400"):
                await http.renewed(old, time.time())


@pytest.mark.parametrize("seconds", ["1e999", '"inf"', '"nan"', "NaN", "-Infinity", "1" + "0" * 400])
async def test_u78_a_lifetime_that_is_no_number_of_seconds_counts_as_unsaid(
    seconds: str, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    with odd_endpoint() as up:
        answer = b'{"access_token": "%s", "token_type": "Bearer", "expires_in": %s}'
        up.answer("/token_endpoint", answer % (TOKEN.encode(), seconds.encode()))
        up.token = TOKEN
        shown = Shown(caplog, tmp_path / "audit.jsonl")
        await tried(RemoteToolset(f"{up.base}/mcp", name="odd", auth=LOGINS["client credentials"](up)), shown)
    assert shown.errors == ["ready: ", "said"], shown.check()


@pytest.mark.parametrize("body", [b"error=bad_refresh_token", b"error=invalid_grant&error_uri=x"])
async def test_u78_a_refresh_token_that_is_refused_with_status_200_is_refused_for_good(body: bytes) -> None:
    with odd_endpoint() as up:
        up.answer("/token_endpoint", body, FORM)
        server = {"token_endpoint": f"{up.base}/token_endpoint"}
        old = Credential("Bearer old", "refresh", client={"client_id": "c"}, server=server)
        auth = TokenExchange(token_url=server["token_endpoint"], client_id="bridge")
        async with authorization_http("up", f"{up.base}/mcp", auth) as http:
            assert await http.renewed(old, time.time()) is None


FIRST_LOGIN = """
import sys, threading, anyio
from mcp_toolset import RemoteToolset, ToolsetServer
from mcp_toolset.auth import ClientCredentials

class Watch:
    def find_spec(self, name, path=None, target=None):
        if name == "mcp.client.auth":
            print(threading.current_thread() is threading.main_thread())

async def main(base):
    sys.meta_path.insert(0, Watch())
    auth = ClientCredentials(client_id="c", client_secret="s", issuer=base)
    odd = RemoteToolset(base + "/mcp", name="odd", auth=auth)
    async with ToolsetServer(odd, list_timeout=30, keep=False):
        pass

anyio.run(main, sys.argv[1])
"""


async def test_u113_the_first_login_of_a_process_imports_beside_the_loop() -> None:
    with odd_endpoint() as up:
        up.token = "t"
        up.answer("/token_endpoint", {"access_token": "t", "token_type": "Bearer"})
        with anyio.fail_after(60):
            done = await anyio.run_process([sys.executable, "-c", FIRST_LOGIN, up.base])
    assert done.stdout.decode().split() == ["False"]
