"""The tokens for one server: got by a login, kept, renewed, and refused."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import anyio
import pytest
from tests.extensions.upstream_access.credentials.protected import (
    Person,
    Protected,
    change,
    fresh,
    log_in,
    logged_in,
    protected,
    source_of,
)
from tests.support.authorization_server import MACHINE, AuthorizationServer

from mcp_toolset import RemoteToolset, Toolset, ToolsetServer, tool
from mcp_toolset.auth import ClientCredentials, OAuth
from mcp_toolset.errors import LoginRequiredError
from mcp_toolset.security.credential_store import MemoryCredentialStore

pytestmark = pytest.mark.anyio
LONG_AGO = {"renew_at": 1.0, "expires_at": 2.0}


@pytest.fixture(autouse=True)
def quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcp_toolset.extensions.upstream_access.token_source.LOOK", 0.01)


@tool
async def local() -> str:
    """Runs here."""
    return "here"


def mounted(server: Protected, **auth: Any) -> ToolsetServer:
    login = "mcp-toolset login protected"
    upstream = RemoteToolset(server.url, name="protected", auth=OAuth(**auth), login=login)
    return ToolsetServer(Toolset(upstream, local), list_timeout=30, keep=False)


async def called(bridge: ToolsetServer, name: str = "whose") -> str:
    with anyio.fail_after(30):
        return (await bridge.call_as_host(name)).text


async def until(bridge: ToolsetServer, holds: Callable[[str, str], bool]) -> None:
    """Wait until state and reason of the mounted server are as expected."""
    changed = anyio.Event()

    def look() -> None:
        status = bridge.statuses()["protected"]
        if holds(status.state, status.reason):
            changed.set()

    stop = bridge.toolset.sources()[0].on_change(look)
    look()
    with anyio.fail_after(30):
        await changed.wait()
    stop()


async def test_i4_a_person_logs_in_once_and_calls_of_this_run_and_the_next_carry_the_token(
    issuer: AuthorizationServer,
) -> None:
    person, store = Person(), MemoryCredentialStore()
    async with protected(issuer) as server:
        async with mounted(server, page=person, store=store) as bridge:
            await bridge.settled()
            assert await called(bridge) == "it ran"
        async with mounted(server, store=store) as again:
            await again.settled()
            assert await called(again) == "it ran"
    assert len(person.visited) == 1
    assert "code_challenge_method=S256" in person.visited[0] and "resource=http" in person.visited[0]


async def test_i4_without_a_login_status_and_calls_say_how_and_other_tools_run(
    issuer: AuthorizationServer,
) -> None:
    async with protected(issuer) as server:
        async with mounted(server, store=MemoryCredentialStore()) as bridge:
            await bridge.settled()
            assert bridge.statuses()["protected"].reason == "needs login: mcp-toolset login protected"
            assert await called(bridge, "local") == "here"


async def test_i4_a_login_that_is_over_fails_the_call_and_shows_in_the_status(
    issuer: AuthorizationServer,
) -> None:
    async with protected(issuer) as server:
        store = await logged_in(server)
        async with mounted(server, store=store) as bridge:
            await bridge.settled()
            await change(server, store, refresh_token="")
            server.refuse.add(server.seen[-1])
            assert "needs login: mcp-toolset login protected" in await called(bridge)
            await until(bridge, lambda state, reason: reason.startswith("needs login"))
            assert "needs login: mcp-toolset login protected" in await called(bridge)
            assert await called(bridge, "local") == "here"


async def test_i4_a_login_elsewhere_is_taken_up_by_the_bridge_that_runs(issuer: AuthorizationServer) -> None:
    store = MemoryCredentialStore()
    async with protected(issuer) as server:
        async with mounted(server, store=store) as bridge:
            await bridge.settled()
            await until(bridge, lambda state, reason: reason.startswith("needs login"))
            await log_in(server, store)
            await until(bridge, lambda state, reason: state == "ready")
            await bridge.settled()
            assert await called(bridge) == "it ran"


async def test_i4_a_server_that_is_down_is_not_tried_more_often_for_its_tokens(
    issuer: AuthorizationServer,
) -> None:
    class Looked(MemoryCredentialStore):
        looks = 0

        async def load(self, key: Any) -> Any:
            self.looks += 1
            if self.looks == 5:
                await self.save(key, {"header": "Bearer new"})
            return await super().load(key)

    store = Looked()
    async with protected(issuer) as server:
        source = source_of(server, store)
        await store.save(source.key, {"header": "Bearer old"})
        with anyio.fail_after(30):
            await source.changed()
    assert store.looks == 5, "the same tokens as before are no reason to try again"


async def test_i4_an_expired_token_is_renewed_after_a_restart_without_a_login(
    issuer: AuthorizationServer,
) -> None:
    async with protected(issuer) as server:
        store = await logged_in(server)
        stale = await change(server, store, **LONG_AGO)
        async with mounted(server, store=store) as bridge:
            await bridge.settled()
            assert await called(bridge) == "it ran"
        assert stale.header not in server.seen and "" not in server.seen


async def test_i4_calls_and_processes_renew_a_token_once(issuer: AuthorizationServer) -> None:
    async with protected(issuer) as server:
        store = await logged_in(server)
        await change(server, store, **LONG_AGO)
        before, headers = issuer.seen().count("POST /token"), set[str | None]()

        async def ask(source: Any) -> None:
            headers.add(await source.header(None))

        with anyio.fail_after(30):
            async with anyio.create_task_group() as group:
                for source in (source_of(server, store), source_of(server, store)):
                    for _ in range(10):
                        group.start_soon(ask, source)
    assert len(headers) == 1 and issuer.seen().count("POST /token") == before + 1


async def test_i4_a_refused_token_gives_way_to_a_newer_one_in_the_store(issuer: AuthorizationServer) -> None:
    async with protected(issuer) as server:
        store = await logged_in(server)
        mine, other = source_of(server, store), source_of(server, store)
        old = await mine.header(None)
        assert await other.challenged(401, "Bearer", old, None)
        new, asked = await other.header(None), issuer.seen().count("POST /token")
        assert await mine.challenged(401, "Bearer", old, None) and await mine.header(None) == new != old
        assert await mine.challenged(401, "Bearer", old, None), "a late refusal of the old one"
        assert issuer.seen().count("POST /token") == asked


async def test_i4_a_token_that_the_server_refuses_is_renewed_and_the_call_sent_once_more(
    issuer: AuthorizationServer,
) -> None:
    async with protected(issuer) as server:
        store = await logged_in(server)
        async with mounted(server, store=store) as bridge:
            await bridge.settled()
            server.refuse.add(server.seen[-1])
            assert await called(bridge) == "it ran"
        assert len({*server.seen}) == 2


async def test_i4_a_revoked_refresh_token_is_tried_once_and_then_a_login_is_needed(
    issuer: AuthorizationServer,
) -> None:
    async with protected(issuer) as server:
        store = await logged_in(server)
        await change(server, store, **LONG_AGO, refresh_token="used-before")
        source, asked = source_of(server, store), issuer.seen().count("POST /token")
        for _ in range(3):
            assert await source.header(None) is None
            with pytest.raises(LoginRequiredError, match="needs login: mcp-toolset login protected"):
                await source.challenged(401, "Bearer", None, None)
        assert issuer.seen().count("POST /token") == asked + 1


async def test_i4_more_scopes_are_asked_for_once_with_those_of_before(issuer: AuthorizationServer) -> None:
    person = Person()
    async with protected(issuer) as server:
        store = await logged_in(server)
        server.auth.required_scopes = ("tools:read", "tools:write")
        async with mounted(server, store=store, page=person) as bridge:
            await bridge.settled()
            assert await called(bridge) == "it ran"
    assert len(person.visited) == 1 and "scope=tools%3Aread+tools%3Awrite" in person.visited[0]


async def test_i4_scopes_that_a_person_has_to_grant_are_named(issuer: AuthorizationServer) -> None:
    async with protected(issuer) as server:
        source = source_of(server, await logged_in(server))
        used = await source.header(None)
        lacks = 'Bearer error="insufficient_scope", scope="tools:read tools:write"'
        with pytest.raises(LoginRequiredError, match=r"login protected --scope tools:write$") as needed:
            await source.challenged(403, lacks, used, None)
        assert needed.value.for_more and await source.header(None) == used
        assert not await source.challenged(403, lacks.replace(" tools:write", ""), used, None)
        assert not await source.challenged(403, "", used, None)


async def test_i4_an_authorization_server_that_is_dead_or_silent_fails_the_calls_of_its_server_alone(
    issuer: AuthorizationServer, unreachable: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mcp_toolset.extensions.upstream_access.token_source.TIMEOUT", 0.1)
    down = f"http://127.0.0.1:{unreachable}"
    metadata = {"issuer": down, "token_endpoint": f"{down}/token"}
    async with protected(issuer) as server:
        store = await fresh(server)
        good = await change(server, store, server=metadata, renew_at=1.0)
        assert await source_of(server, store).header(None) == good.header, "it has not expired yet"
        await change(server, store, server=metadata, **LONG_AGO)
        async with mounted(server, store=store) as bridge:
            await bridge.settled()
            reason = bridge.statuses()["protected"].reason
            assert "no credentials for it: 127.0.0.1" in reason and reason.endswith("; call again later")
            assert await called(bridge, "local") == "here"


async def test_i4_a_program_is_its_own_user_and_its_secret_goes_to_its_issuer_alone(
    issuer: AuthorizationServer,
) -> None:
    async def reason(url: str, **changed: str) -> str:
        own = {"client_id": MACHINE[0], "client_secret": MACHINE[1]}
        known: dict[str, Any] = {**own, "issuer": issuer.issuer}
        auth = ClientCredentials(**{**known, **changed})
        upstream = RemoteToolset(url, name="protected", auth=auth)
        async with ToolsetServer(upstream, list_timeout=30, keep=False) as bridge:
            await bridge.settled()
            status = bridge.statuses()["protected"]
            return await called(bridge) if status.state == "ready" else status.reason

    async with protected(issuer) as server:
        assert await reason(server.url) == "it ran"
        wrong = await reason(server.url, client_secret="a-wrong-secret")
        assert "invalid_client" in wrong and "a-wrong-secret" not in wrong
        asked = issuer.seen().count("POST /token")
        elsewhere = await reason(server.url, issuer="https://other.example")
        assert "https://other.example" in elsewhere and issuer.seen().count("POST /token") == asked


async def test_i4_no_token_is_shown_or_logged(
    issuer: AuthorizationServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with protected(issuer) as server:
        store = await logged_in(server)
        kept = await change(server, store, **LONG_AGO)
        async with mounted(server, store=store) as bridge:
            await bridge.settled()
            await called(bridge)
            shown = f"{bridge.statuses()} {kept} {source_of(server, store)} {caplog.text}"
        secrets = {*kept.secrets, *(await change(server, store)).secrets}
        assert len(secrets) == 5 and not [secret for secret in secrets if secret in shown]
