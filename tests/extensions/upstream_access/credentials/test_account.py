"""The login of a person: the way to the page of the authorization server, and back to this machine."""

from __future__ import annotations

import socket
from urllib.parse import parse_qs, urlsplit

import anyio
import httpx2
import pytest
from tests.extensions.upstream_access.credentials.protected import Person, Protected, protected
from tests.support.authorization_server import AuthorizationServer

from mcp_toolset.auth import OAuth
from mcp_toolset.errors import UpstreamUnavailableError
from mcp_toolset.extensions.upstream_access.account import Account, PastedPage, loopback_page, port_for
from mcp_toolset.security.credential_store import MemoryCredentialStore

pytestmark = pytest.mark.anyio


def account(server: Protected, store: MemoryCredentialStore | None = None) -> Account:
    return Account("protected", server.url, OAuth(store=store or MemoryCredentialStore()))


async def test_i4_the_browser_that_comes_back_waits_for_the_end_of_the_login(
    issuer: AuthorizationServer,
) -> None:
    pages, opened = list[str](), anyio.Event()
    address = ""

    async def leave(url: str) -> None:
        nonlocal address
        address = url
        opened.set()

    async def browse() -> None:
        await opened.wait()
        own = urlsplit(parse_qs(urlsplit(address).query)["redirect_uri"][0])
        async with httpx2.AsyncClient(timeout=30) as browser:
            stranger = await browser.get(f"http://{own.netloc}/callback?code=x&state=another")
            favicon = await browser.get(f"http://{own.netloc}/favicon.ico")
            assert (stranger.status_code, favicon.status_code) == (404, 404)
            pages.append((await browser.get(address, follow_redirects=True)).text)

    with anyio.fail_after(60):
        async with protected(issuer) as server, loopback_page(port_for(0, 0), leave) as page:
            async with anyio.create_task_group() as group:
                group.start_soon(browse)
                found = await account(server).login(page, ())
                assert found.scopes == ("tools:read",) and not pages
                await page.show("It is done <here>.")
    assert len(pages) == 1 and "<p>It is done &lt;here&gt;.</p>" in pages[0]


@pytest.mark.parametrize(
    ("pasted", "told"),
    [
        ("http://127.0.0.1:1/callback?code=c&state=other", "another `state` than the request"),
        ("{uri}?code=c&state={state}&iss=https://evil.example", "iss mismatch"),
        ("{uri}?error=access_denied&error_description=hidden&state={state}", "missing iss"),
        ("{uri}?error=access_denied&error_description=no&state={state}&iss={issuer}", "access_denied: no"),
        ("a-code-that-is-none", "missing iss"),
        ("{uri}?code=a-code-that-is-none&state={state}&iss={issuer}", "HTTP 400|invalid_grant"),
    ],
)
async def test_i4_what_is_pasted_is_checked_before_it_is_used_or_told(
    issuer: AuthorizationServer, pasted: str, told: str
) -> None:
    async def ask(url: str) -> str:
        sent = {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}
        return pasted.format(uri=sent["redirect_uri"], state=sent["state"], issuer=issuer.issuer)

    async with protected(issuer) as server:
        with anyio.fail_after(30), pytest.raises(UpstreamUnavailableError, match=told) as refused:
            await account(server).login(PastedPage(port_for(0, 0), ask), ())
    assert "hidden" not in str(refused.value) and "a-code" not in str(refused.value)


async def test_i4_a_second_login_uses_the_registered_client_and_keeps_the_scopes(
    issuer: AuthorizationServer,
) -> None:
    store, person = MemoryCredentialStore(), Person()
    async with protected(issuer) as server:
        mine = account(server, store)
        await mine.login(person, ())
        registrations = issuer.seen().count("POST /reg")
        found = await mine.login(person, ["tools:write"])
        assert issuer.seen().count("POST /reg") == registrations
        assert {*found.scopes} >= {"tools:read", "tools:write"}
        assert await mine.logout() == "logged out" and await mine.logout() == "no tokens are kept"
        assert issuer.seen().count("POST /token/revocation") == 1


def test_i4_the_port_of_the_last_login_is_taken_if_it_is_free() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = other.getsockname()[1]
        assert port_for(0, taken) not in (0, taken)
    assert port_for(0, taken) == taken and port_for(7777, taken) == 7777
