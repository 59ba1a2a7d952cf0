"""What an attacker would try who knows the rules and the pages: races, replays, look-alikes."""

from __future__ import annotations

from typing import Any

import anyio
import httpx2
import pytest

from mcp_toolset import Identity, Tool, ToolContext, Toolset, ToolsetServer, tool
from mcp_toolset.auth import Authenticator
from mcp_toolset.context.connection import PendingLogin
from mcp_toolset.extensions.upstream_access.account import loopback_page, port_for
from mcp_toolset.policy import Policy
from mcp_toolset.security.authenticator import Refusal
from mcp_toolset.transports.http.app import LoginPages

pytestmark = [pytest.mark.anyio, pytest.mark.needs("upstream_access", "inbound_auth")]
TOKEN = "a-token-0123456789"


class SlowVerifier:
    """Accepts the token when it is told to."""

    def __init__(self) -> None:
        self.asked, self.go_on = anyio.Event(), anyio.Event()
        self.count = 0

    async def verify(self, token: str) -> Identity | None:
        self.count += 1
        self.asked.set()
        await self.go_on.wait()
        return Identity.of("desk", "ann", "https://issuer")


@pytest.mark.parametrize("what", ["revoke", "forget"])
async def test_i1_what_is_revoked_while_a_token_is_verified_is_not_remembered(what: str) -> None:
    verifier, answers = SlowVerifier(), list[Identity | Refusal]()
    auth, credentials = Authenticator(verifier), f"Bearer {TOKEN}".encode()

    async def ask() -> None:
        answers.append(await auth.identify(credentials))

    with anyio.fail_after(30):
        async with anyio.create_task_group() as group:
            group.start_soon(ask)
            await verifier.asked.wait()
            auth.revoke(TOKEN) if what == "revoke" else auth.forget(TOKEN)
            verifier.go_on.set()
        answers.append(await auth.identify(credentials))
    if what == "revoke":
        assert [getattr(each, "status", None) for each in answers] == [401, 401]
    else:
        assert verifier.count == 2


@tool
def wipe() -> str:
    """Wipe everything."""
    return "wiped"


def test_i3_a_user_who_is_called_like_the_key_of_another_one_has_none_of_its_rights() -> None:
    ann = Identity.of("desk", "ann", "https://issuer")
    policy = Policy(allow=[], principals={ann.key: Policy(allow=["*"])})
    impostor = Identity.of("desk", ann.key, "https://other")
    binding = next(iter(Toolset(wipe).bindings()))
    assert policy.decide(binding, ann).kind == "allow"
    assert policy.decide(binding, impostor).kind == "deny"


class Caller(ToolContext):
    """A caller without a wire."""

    def __init__(self, identity: Identity) -> None:
        self.identity, self.principal = identity, identity.key


def described(name: str, description: str) -> Tool[..., Any]:
    def nothing() -> str:
        return ""

    return tool(name=name, description=description)(nothing)


VISIBLE = {
    "archive_letters": "Archive all letters of a customer.",
    "list_letters": "List letters by date.",
    "send_mail": "Send a mail to a customer.",
    "find_customer": "Find a customer by name or city.",
}
QUERIES = [
    "purge_zebra",
    "purge_z",
    "zebra",
    "purge zebra customer letters",
    "zebras letters",
    "purg letters",
    "customer letter",
    "ledger customer",
]


async def test_i3_no_search_tells_of_a_tool_that_is_denied() -> None:
    """Neither by hits nor by scores, nor by what is found beside it, nor by a word that it alone has."""
    hidden = described("purge_zebra", "Purge the zebra ledger of a customer and all letters.")
    visible = [described(*each) for each in VISIBLE.items()]
    ann = Caller(Identity.of("desk", "ann", "https://issuer"))
    answers: list[list[str]] = []
    for tools, policy in ((visible, None), ([*visible, hidden], Policy(deny=["purge_*"]))):
        async with ToolsetServer(Toolset(*tools).deferred(), policy=policy) as server:
            asked = [server.call_tool("search_tools", {"query": query}, context=ann) for query in QUERIES]
            answers.append([(await each).text for each in asked])
    assert answers[0] == answers[1]
    assert "archive_letters" in answers[0][3]


STRANGERS = [
    b"GET //[ HTTP/1.1",
    b"GET http://[x/callback?state=s HTTP/1.1",
    b"GET /callback HTTP/1.1",
    b"GET /callback?state=other&code=theirs HTTP/1.1",
    b"GET /callback?state=%ff%fe HTTP/1.1",
    b"GET /callback?state=\xe9 HTTP/1.1",
    b"GET /elsewhere?state=s HTTP/1.1",
    b"POST /callback?state=s HTTP/1.1",
    b"\xff\xfe",
]


@pytest.mark.needs("upstream_access")
async def test_i4_no_stranger_on_this_machine_ends_a_login_or_answers_it() -> None:

    port, came_back = port_for(0, 0), list[str]()

    async def sent(line: bytes) -> bytes:
        async with await anyio.connect_tcp("127.0.0.1", port) as stream:
            await stream.send(line + b"\r\n\r\n")
            return await stream.receive()

    async def leave(_: str) -> None:
        for line in STRANGERS:
            assert (await sent(line)).startswith(b"HTTP/1.1 404"), line
        group.start_soon(sent, b"GET /callback?state=s&code=mine HTTP/1.1")
        await anyio.sleep_forever()

    with anyio.fail_after(30):
        async with loopback_page(port, leave) as page, anyio.create_task_group() as group:
            came_back.append(await page.visit("https://issuer/auth?state=s"))
            await page.show("done")
    assert came_back == [f"http://127.0.0.1:{port}/callback?state=s&code=mine"]


class Pending(PendingLogin):
    """A login that waits for a browser."""

    server, caller, caller_key, state, fault = "notes", "ann", "ann", "s", ""

    def __init__(self) -> None:
        self.browser = ""

    def begin(self, browser: str) -> str | None:
        self.browser = browser
        return "https://issuer.example/auth"

    async def arrive(self, address: str) -> bool:
        raise AssertionError("no browser has begun")


@pytest.mark.parametrize("proof", ["%C3%A9", "%ED%A0%80", "", "0" * 64])
async def test_u83_a_made_up_proof_of_a_browser_is_refused_whatever_its_characters(proof: str) -> None:
    login = Pending()
    pages = LoginPages(lambda ticket: login)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await pages.answer(scope["path"], scope, send)

    transport = httpx2.ASGITransport(app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://here") as browser:
        await browser.get("/oauth/login/t")
        answer = await browser.get(f"/oauth/login/t?continue={proof}")
    # An empty one is none: the person is asked.
    assert answer.status_code == (403 if proof else 200) and login.browser == ""
