"""Three users at four kinds of clients: nothing of one reaches another, and a lost binding is noticed."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import pytest
from tests.identities.browser import PAGE, logs_in
from tests.identities.doors import DOORS
from tests.identities.steps import run
from tests.identities.world import World
from tests.support.authorization_server import AuthorizationServer, authorization_server
from tests.support.every_run import in_every_run

from mcp_toolset import ToolContext
from mcp_toolset.catalog.grants import ledger
from mcp_toolset.extensions.result_cache import result_cache as cache
from mcp_toolset.extensions.upstream_access.reach import CallerLogins, ExchangeReach
from mcp_toolset.extensions.upstream_access.token_source import StoredTokens
from mcp_toolset.policy import Policy
from mcp_toolset.security import authenticator
from mcp_toolset.transports.http.sessions import SessionTable

pytestmark = [pytest.mark.anyio, pytest.mark.needs("audit", "result_cache", "upstream_access")]
Patch = Callable[[pytest.MonkeyPatch], None]


@pytest.fixture(scope="module")
def issuing() -> Generator[AuthorizationServer]:
    with authorization_server() as running:
        yield running


async def judged(issuing: AuthorizationServer, steps: int, *, until_crossing: bool = False) -> World:
    world = World(issuing, seed=1)
    async with world.running():
        await run(world, steps, until_crossing=until_crossing)
    return world


async def test_f30_i3_nothing_of_one_user_reaches_another(issuing: AuthorizationServer) -> None:
    judge = (await judged(issuing, 200)).judge
    assert judge.crossings == []
    for kind in (
        "list",
        "whoami",
        "shared",
        "search",
        "resolve",
        "use",
        "private",
        "exchange",
        "desk",
        "resources",
    ):
        assert judge.counts[f"step {kind}, good"] > 3, judge.counts
    assert judge.counts["step guess, answered alike"] and judge.counts["step reload, done"]
    assert judge.counts["step take_session, status 404"] and judge.counts["step take_grant, refused"]


class _OneDigest:
    """A hash of which every digest is the same."""

    def __init__(self, _: bytes) -> None: ...

    def digest(self) -> bytes:
        return b"the same"


def _any_session(table: SessionTable[Any], name: str, principal: str | None) -> Any:
    return next((one for one in table.all() if one.name == name), None)


def _one_key(self: object, context: ToolContext) -> str:
    return "" if context.identity is None else "all"


_own_login = CallerLogins._tokens


def _one_login(self: CallerLogins, link: Any, auth: Any, user: str) -> StoredTokens:
    return _own_login(self, link, auth, user and "all")


BREAKS: dict[str, Patch] = {
    "results are cached for all callers": lambda patch: patch.setattr(
        cache, "caller_of", lambda _: "principal:all"
    ),
    "grants are for all callers": lambda patch: patch.setattr(ledger, "owner_of", lambda _: "principal:all"),
    "sessions are for all callers": lambda patch: patch.setattr(SessionTable, "find", _any_session),
    "policies are for all callers": lambda patch: patch.setattr(
        Policy, "group", lambda self, identity: ((0, 0),)
    ),
    "policies are for nobody": lambda patch: patch.setattr(Policy, "group", lambda self, identity: ()),
    "connections are for all callers": lambda patch: patch.setattr(ExchangeReach, "key", _one_key),
    "logins are for all callers": lambda patch: patch.setattr(CallerLogins, "key", _one_key),
    "kept logins are for all callers": lambda patch: patch.setattr(CallerLogins, "_tokens", _one_login),
    "tokens are confused": lambda patch: patch.setattr(authenticator, "sha256", _OneDigest),
}


EVERY_RUN = ("sessions are for all callers", "policies are for nobody", "connections are for all callers")


@in_every_run(EVERY_RUN, lambda params: params["broken"])
@pytest.mark.parametrize("broken", BREAKS)
async def test_f30_i3_a_binding_that_is_lost_is_noticed(
    broken: str, issuing: AuthorizationServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    BREAKS[broken](monkeypatch)
    assert (await judged(issuing, 400, until_crossing=True)).judge.crossings


@pytest.mark.parametrize("kind", DOORS)
async def test_i5_a_login_that_is_begun_at_any_door_has_its_page(
    kind: str, issuing: AuthorizationServer
) -> None:
    world = World(issuing, seed=1)
    async with world.running():
        user = world.users[0]
        page = PAGE.search((await user.doors[kind].ask("tools/call", name="log_in", arguments={})).text)
        assert page is not None
        assert await logs_in(page[0], user.mark)
        # The page says so when the tokens are there.
        assert [user.mark in key.user for key in await world.store.list()] == [True]
        other = world.users[1]
        page = PAGE.search((await other.doors[kind].ask("tools/call", name="log_in", arguments={})).text)
        assert page is not None
        assert not await logs_in(page[0], "nobody")
