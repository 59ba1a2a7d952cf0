"""Logins that are granted and whose tokens are refused, and tokens that are logged out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest
from tests.extensions.upstream_access.credentials.protected import (
    Person,
    Protected,
    change,
    logged_in,
    protected,
    source_of,
)
from tests.support.authorization_server import MACHINE, AuthorizationServer

from mcp_toolset import RemoteToolset, ToolsetServer
from mcp_toolset.auth import ClientCredentials, OAuth
from mcp_toolset.errors import LoginRequiredError, UpstreamUnavailableError
from mcp_toolset.extensions.upstream_access import token_source
from mcp_toolset.extensions.upstream_access.account import Account
from mcp_toolset.extensions.upstream_access.reach import CallerTokens
from mcp_toolset.extensions.upstream_access.token_source import StoredTokens
from mcp_toolset.security.credential_store import MemoryCredentialStore

pytestmark = pytest.mark.anyio
NEEDS = "needs login: mcp-toolset login protected"
INVALID = (401, 'Bearer error="invalid_token"')


def lacking(*scopes: str) -> tuple[int, str]:
    return 403, f'Bearer error="insufficient_scope", scope="{" ".join(scopes)}"'


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_source, "LOOK", 0.01)
    monkeypatch.setattr("mcp_toolset.concurrency.backoff.FIRST", 0.01)
    monkeypatch.setattr("mcp_toolset.concurrency.backoff.LAST", 0.01)


def mounted(server: Protected, store: MemoryCredentialStore, person: Person | None = None) -> ToolsetServer:
    login = "mcp-toolset login protected"
    auth = OAuth(store=store, page=person)
    upstream = RemoteToolset(server.url, name="protected", auth=auth, login=login)
    return ToolsetServer(upstream, list_timeout=30, keep=False)


async def until(bridge: ToolsetServer, holds: Callable[[str], bool]) -> None:
    """Wait until the status of the mounted server, its state and its reason, is as expected."""
    changed = anyio.Event()

    def look() -> None:
        status = bridge.statuses()["protected"]
        if holds(f"{status.state}: {status.reason}"):
            changed.set()

    stop = bridge.toolset.sources()[0].on_change(look)
    look()
    with anyio.fail_after(60):
        await changed.wait()
    stop()


async def tried(bridge: ToolsetServer, server: Protected, times: int) -> None:
    """Wait until the bridge has sent so many requests."""
    await until(bridge, lambda status: len(server.seen) >= times)


async def called(bridge: ToolsetServer) -> str:
    with anyio.fail_after(30):
        await bridge.settled()
        return (await bridge.call_as_host("whose")).text


async def asked(source: StoredTokens, refusal: tuple[int, str]) -> None:
    """A request that is refused, as often as the source has it sent again."""
    for _ in range(10):
        if not await source.challenged(*refusal, await source.header(None), None):
            return
    raise AssertionError("the request is sent again and again")


@pytest.mark.parametrize("refusal", [INVALID, lacking("tools:read"), lacking()])
async def test_i4_a_mount_whose_tokens_are_refused_logs_in_once_however_often_it_is_tried(
    issuer: AuthorizationServer, refusal: tuple[int, str]
) -> None:
    person, store = Person(), MemoryCredentialStore()
    async with protected(issuer) as server:
        server.refusal = refusal
        async with mounted(server, store, person) as bridge:
            await tried(bridge, server, 30)
            visits = len(person.visited)
            assert visits <= 2, "one login, and one for scopes that the first has not asked for"
            await until(bridge, lambda status: status.startswith("offline: needs login: mcp-toolset login"))
            reason = bridge.statuses()["protected"].reason
            assert f"the server refuses its token: HTTP {refusal[0]}" in reason
        async with mounted(server, store, person) as again:
            await tried(again, server, len(server.seen) + 30)
        assert len(person.visited) == visits, "other processes know it, too"


async def test_i4_a_refused_login_is_over_once_the_server_takes_the_token_or_a_person_has_logged_in(
    issuer: AuthorizationServer,
) -> None:
    person, store = Person(), MemoryCredentialStore()
    async with protected(issuer) as server:
        server.refusal = INVALID
        async with mounted(server, store, person) as bridge:
            await until(bridge, lambda status: "needs login" in status)
            server.refusal = None
            await until(bridge, lambda status: status.startswith("ready"))
            assert len(person.visited) == 1
            server.refusal = INVALID
            assert "needs login" in await called(bridge)
            await until(bridge, lambda status: "needs login" in status)
            await Account("protected", server.url, OAuth(store=store)).login(Person(), ())
            server.refusal = None
            await until(bridge, lambda status: status.startswith("ready"))
        source = source_of(server, store, page=person)
        await change(server, store, refresh_token="")
        used = await source.header(None)
        assert await source.challenged(*INVALID, used, None), "the new login has not been refused yet"
        new = await source.header(None)
        assert len(person.visited) == 2 and new != used
        await source.accepted(new)
        await change(server, store, refresh_token="")
        assert await source_of(server, store, page=person).challenged(*INVALID, new, None)
        assert len(person.visited) == 3, "a token that was taken may be refused later"


async def test_i4_a_server_that_wants_ever_other_scopes_is_followed_once(issuer: AuthorizationServer) -> None:
    person = Person()
    async with protected(issuer) as server:
        source = source_of(server, MemoryCredentialStore(), page=person)
        await source.challenged(401, 'Bearer scope="tools:read"', None, None)
        with pytest.raises(LoginRequiredError, match="insufficient_scope"):
            await asked(source, lacking("tools:read", "tools:write"))
            await asked(source, lacking("admin"))
    assert len(person.visited) == 2


async def test_i4_tokens_that_are_refused_are_renewed_once_a_while(issuer: AuthorizationServer) -> None:
    clock = 1e9
    async with protected(issuer) as server:
        store = await logged_in(server)
        auth = OAuth(store=store)
        source = StoredTokens("protected", server.url, auth, store, how="log in", clock=lambda: clock)
        before = issuer.seen().count("POST /token")
        for _ in range(5):
            with pytest.raises(LoginRequiredError, match="needs login: log in$"):
                await asked(source, INVALID)
        assert issuer.seen().count("POST /token") == before + 1
        clock += token_source.PAUSE
        with pytest.raises(LoginRequiredError):
            await asked(source, INVALID)
        assert issuer.seen().count("POST /token") == before + 2


async def test_i4_a_program_gets_another_token_when_its_own_has_expired_and_not_for_each_refusal(
    issuer: AuthorizationServer,
) -> None:
    clock = 1e9
    async with protected(issuer) as server:
        auth = ClientCredentials(issuer=issuer.issuer, client_id=MACHINE[0], client_secret=MACHINE[1])
        store = MemoryCredentialStore()
        source = StoredTokens("protected", server.url, auth, store, how="", clock=lambda: clock)
        before = issuer.seen().count("POST /token")
        assert await source.challenged(*INVALID, None, None)
        for _ in range(5):
            with pytest.raises(UpstreamUnavailableError, match="refuses the token .* has just given"):
                await asked(source, INVALID)
        assert issuer.seen().count("POST /token") == before + 1
        first = await source.header(None)
        clock += 1e6
        assert await source.header(None) is None, "it has expired"
        assert await source.challenged(*INVALID, None, None)
        assert await source.header(None) not in (None, first)


async def test_i4_a_bridge_that_runs_stops_using_the_tokens_that_are_logged_out(
    issuer: AuthorizationServer,
) -> None:
    async with protected(issuer) as server:
        store = await logged_in(server)
        async with mounted(server, store) as bridge:
            await until(bridge, lambda status: status.startswith("ready"))
            account = Account("protected", server.url, OAuth(store=store))
            assert await account.logout() == "logged out"
            await until(bridge, lambda status: status.startswith(f"offline: {NEEDS}"))
            sent = len(server.seen)
            assert NEEDS in await called(bridge) and not any(server.seen[sent:]), (
                "no request carries a token any more"
            )
            await account.login(Person(), ())
            await until(bridge, lambda status: status.startswith("ready"))


async def test_i4_tokens_of_another_login_are_taken_up_by_a_bridge_that_runs(
    issuer: AuthorizationServer,
) -> None:
    class Kept(MemoryCredentialStore):
        """Has a login, then another one, then none; notes what is in use at each look."""

        found: list[Any]
        used: list[str | None]

        async def load(self, key: Any) -> Any:
            self.used.append(await source.header(None) if self.used else None)
            return self.found.pop(0)

    store = Kept()
    store.found, store.used = [{"header": "Bearer a"}, {"header": "Bearer b"}, None], []
    async with protected(issuer) as server:
        source = source_of(server, store)
        await source.header(None)
        with anyio.fail_after(30):
            await source.withdrawn()
    assert store.used == [None, "Bearer a", "Bearer b"]


async def test_i5_the_tokens_of_a_caller_who_is_logged_out_are_not_sent_any_more(
    issuer: AuthorizationServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mcp_toolset.extensions.upstream_access.token_source.LOOK", 0)
    async with protected(issuer) as server:
        store = await logged_in(server)
        source = source_of(server, store)
        tokens = CallerTokens(lambda: source, "alice")
        assert await tokens.header(None) == await tokens.header(None) is not None
        await store.remove(source.key)
        assert await tokens.header(None) is None
        with anyio.fail_after(30):
            await tokens.withdrawn()


async def test_i4_a_logout_waits_for_a_renewal_and_nothing_is_kept_after_it(
    issuer: AuthorizationServer,
) -> None:
    class Watched(MemoryCredentialStore):
        wanted = anyio.Event()

        def locked(self, *args: Any, **named: Any) -> Any:
            self.wanted.set()
            return super().locked(*args, **named)

    store = Watched()
    async with protected(issuer) as server:
        key = source_of(server, store).key
        await store.save(key, {"header": "Bearer old"})
        account = Account("protected", server.url, OAuth(store=store))
        with anyio.fail_after(30):
            async with anyio.create_task_group() as group:
                async with store.locked(key):
                    store.wanted = anyio.Event()
                    group.start_soon(account.logout)
                    await store.wanted.wait()
                    await store.save(key, {"header": "Bearer renewed"})
    assert await store.load(key) is None
