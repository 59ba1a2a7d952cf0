"""Nothing reaches an upstream without a live grant: one machine over both stores, a model apart.

The model knows only what a caller can see (handles, answers) and what the world does (time, tools,
servers); it shares no code with the ledger, the stores or the catalog.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import anyio
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.support.calling import Caller, listed, tool_table

from mcp_toolset import SourceStatus, ToolBinding, ToolCall, ToolContext, ToolDefinition, ToolResult
from mcp_toolset.catalog.deferred.catalog import DeferredCatalog
from mcp_toolset.catalog.grants.cached_grants import CachedGrants
from mcp_toolset.catalog.grants.ledger import CACHE_TTL
from mcp_toolset.catalog.grants.store import StoredGrants
from mcp_toolset.errors import UnknownToolError
from mcp_toolset.grants import GrantLedger
from mcp_toolset.shared import Entry, Put
from mcp_toolset.stores.store import MemoryStore
from mcp_toolset.tools.source import Provenance

TTL, BEARER_TTL, BEARER_USES = 100.0, 40.0, 2


WHO = [(None, None), ("s1", None), ("s2", None), (None, "s1"), (None, "ann"), ("s1", "ann"), ("s2", "bob")]
SOURCES, OWN_NAMES = ["erp", "ops"], ["read", "wipe"]
NAMES = [f"{source}_{name}" for source in SOURCES for name in OWN_NAMES]


@dataclass
class World:
    """One mounted server as it is now; `text` and `read_only` stand for its tools' definitions."""

    endpoint: int = 0
    online: bool = True
    mounted: bool = True
    texts: dict[str, str] | None = None
    reads: dict[str, bool] | None = None

    @property
    def status(self) -> SourceStatus:
        return SourceStatus("ready" if self.online else "offline", "it is down", 7.0)


@dataclass
class Known:
    """A grant as the model knows it, from the answer that it came in."""

    grant: str
    who: tuple[str, str] | None
    name: str
    seen: tuple[Any, ...]
    ends: float
    left: float
    revoked: bool = False


def owner(who: tuple[str | None, str | None]) -> tuple[str, str] | None:
    session, principal = who
    if principal is not None:
        return ("principal", principal)
    return None if session is None else ("session", session)


callers = st.sampled_from(WHO)
names = st.sampled_from(NAMES)
sources = st.sampled_from(SOURCES)


class Gate(RuleBasedStateMachine):
    """Two servers of this program over one store (two processes, where the store can be shared)."""

    def make_store(self) -> Any:
        raise NotImplementedError

    def known_to(self, who: Any) -> Caller:
        """The caller, once it is known what it holds."""
        return Caller(*who)

    survives = False
    ledger = GrantLedger

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.now = 1_000_000.0
        self.world = {name: World(texts={}, reads={}) for name in SOURCES}
        self.known: list[Known] = []
        self.replayed: dict[Any, tuple[str, str]] = {}
        self.reached: list[tuple[str, tuple[Any, ...]]] = []
        self.revoking: list[Callable[..., int]] = []
        self.start()

    def start(self) -> None:
        self.ledgers = [
            self.ledger(
                self.make_store(),
                ttl=TTL,
                bearer_ttl=BEARER_TTL,
                bearer_uses=BEARER_USES,
                clock=lambda: self.now,
            )
            for _ in range(1 + self.survives)
        ]
        self.ledgers = (2 * self.ledgers)[:2]
        self.catalogs = [DeferredCatalog(ledger, self.mounted) for ledger in self.ledgers]
        self.freeze()

    def teardown(self) -> None:
        self.runner.close()
        for ledger in self.ledgers:
            ledger.close()

    # The world

    def mounted(self) -> dict[str, Any]:
        return {name: world for name, world in self.world.items() if world.mounted}

    def facts(self, name: str) -> tuple[Any, ...] | None:
        """All that a grant is for, as it is now; `None` when there is no such tool."""
        source, own = name.split("_")
        world = self.world[source]
        if not world.mounted or world.texts is None or own in (world.texts.get("gone"),):
            return None
        return (source, world.endpoint, own, world.texts.get(own, ""), self.reads(name))

    def reads(self, name: str) -> bool:
        source, own = name.split("_")
        return (self.world[source].reads or {}).get(own, own == "read")

    def binding(self, name: str) -> ToolBinding:
        facts = self.facts(name)
        assert facts is not None
        source, endpoint, own, text, read_only = facts

        async def execute(call: ToolCall, context: ToolContext) -> ToolResult:
            self.reached.append((name, facts))
            return ToolResult.of_text(f"ran {name}")

        definition = ToolDefinition(own, text, annotations={"readOnlyHint": read_only})
        return listed(
            definition,
            execute,
            name=name,
            source=source,
            deferred=True,
            provenance=lambda: Provenance(f"place {endpoint}", definition.digest),
        )

    def freeze(self) -> None:
        tools = [self.binding(name) for name in NAMES if self.facts(name) is not None]
        for catalog in self.catalogs:
            catalog.update(tools)
        self.dispatches = [tool_table(catalog.bindings()) for catalog in self.catalogs]

    # What callers do

    def call(self, at: int, who: Any, name: str, arguments: dict[str, Any], replay: str = "") -> ToolResult:
        session, principal = who
        context = Caller(session, principal, replay)

        async def ask() -> ToolResult:
            async with asyncio.timeout(10):
                return await self.dispatches[at].call(ToolCall(name, arguments), context)

        return self.runner.run(ask())

    def note(self, who: Any, name: str, handle: str, replay: str) -> None:
        mine = owner(who)
        facts = self.facts(name)
        assert facts is not None and self.world[facts[0]].online, "granted what is not there"
        ends = self.now + (TTL if mine else BEARER_TTL)
        same = [one for one in self.known if one.grant == handle]
        key = (mine, replay, name)
        if replay and mine and key in self.replayed:
            assert self.replayed[key] == ("granted", handle) and same, "a replay widened its record"
            return
        if same and mine and not replay:
            (held,) = same
            assert (held.who, held.name, held.seen) == (mine, name, facts) and self.good(held)
            assert held.ends - self.now >= TTL / 2, "a grant was given again that is about to end"
            return
        assert not same, "a handle was given twice"
        self.known.append(Known(handle, mine, name, facts, ends, float("inf") if mine else BEARER_USES))
        if replay and mine:
            self.replayed[key] = ("granted", handle)

    def expect(self, who: Any, one: dict[str, Any], replay: str) -> None:
        """Check one answer of a resolve, and learn from it."""
        name, key = one["id"], (owner(who), replay, one["id"])
        if one["status"] == "granted":
            self.note(who, name, one["grant"], replay)
            return
        assert one["reason"] and one.keys().isdisjoint({"grant", "definition"})
        if not (replay and owner(who)):
            facts = self.facts(name) if name in NAMES else None
            assert facts is None or not self.world[facts[0]].online, "refused what was there"
            return
        before = self.replayed.setdefault(key, ("refused", one["reason"]))
        if before[0] == "refused":
            assert before[1] == one["reason"]
        else:
            grant = next(known for known in self.known if known.grant == before[1])
            assert not self.good(grant), "a replay refused a grant that is good"

    @rule(
        at=st.integers(0, 1),
        who=callers,
        ids=st.lists(st.sampled_from([*NAMES, "erp_none"]), min_size=1, max_size=4),
        replay=st.sampled_from(["", "", "turn 1", "turn 2"]),
    )
    def resolve(self, at: int, who: Any, ids: list[str], replay: str) -> None:
        answer = self.call(at, who, "resolve_tools", {"ids": ids}, replay).structured["tools"]
        assert [one["id"] for one in answer] == ids
        for one in {one["id"]: one for one in answer}.values():
            self.expect(who, one, replay)

    @rule(at=st.integers(0, 1), who=callers, query=names, resolve=st.integers(0, 3))
    def search(self, at: int, who: Any, query: str, resolve: int) -> None:
        found = self.call(at, who, "search_tools", {"query": query, "resolve": resolve}).structured
        for hit in found["hits"]:
            facts = self.facts(hit["id"])
            assert facts is not None
            assert (hit.get("state") == "offline") == (not self.world[facts[0]].online)
        resolved = found.get("resolved", [])
        for one in resolved:
            self.expect(who, one, "")
        assert len(resolved) == min(resolve, len(found["hits"]))

    @precondition(lambda self: self.known)
    @rule(data=st.data(), at=st.integers(0, 1), who=callers, read_only=st.booleans())
    def call_by_handle(self, data: st.DataObject, at: int, who: Any, read_only: bool) -> None:
        grant = data.draw(st.sampled_from(self.known))
        self.attempt(at, who, grant, {"grant": grant.grant}, read_only)

    @precondition(lambda self: self.known)
    @rule(data=st.data(), at=st.integers(0, 1), read_only=st.booleans())
    def call_by_own_handle(self, data: st.DataObject, at: int, read_only: bool) -> None:
        grant = data.draw(st.sampled_from(self.known))
        mine = [who for who in WHO if owner(who) == grant.who]
        self.attempt(at, data.draw(st.sampled_from(mine)), grant, {"grant": grant.grant}, read_only)

    @rule(at=st.integers(0, 1), who=callers, name=names, way=st.sampled_from(["native", "call", "read"]))
    def call_by_name(self, at: int, who: Any, name: str, way: str) -> None:
        mine = [one for one in self.known if one.name == name and one.who == owner(who)]
        grant = mine[-1] if mine and owner(who) else None
        if way == "native":
            self.attempt(at, who, grant, None, False, name)
        else:
            self.attempt(at, who, grant, {"grant": name}, way == "read", name)

    @precondition(lambda self: self.known)
    @rule(data=st.data(), at=st.integers(0, 1), who=callers)
    def call_with_an_altered_handle(self, data: st.DataObject, at: int, who: Any) -> None:
        grant = data.draw(st.sampled_from(self.known))
        nonce = grant.grant.split(".")[1]
        altered = data.draw(
            st.sampled_from(
                [
                    *(f"{name}.{nonce}" for name in NAMES if name != grant.name),
                    grant.grant.upper(),
                    grant.grant.lower(),
                    f"{grant.grant}\0",
                    nonce,
                    grant.grant[:-1],
                    grant.grant * 20,
                    f"{grant.name}' OR '1'='1",
                    "%",
                    "",
                ]
            )
        )
        if altered != grant.grant:
            before = len(self.reached)
            assert self.call(at, who, "call_tool", {"grant": altered}).is_error
            assert len(self.reached) == before

    @precondition(lambda self: self.known)
    @rule(data=st.data(), at=st.integers(0, 1), who=callers, marks=st.sampled_from([" {}", "{}\n", "`{}`"]))
    def call_with_marks_around_a_handle(self, data: st.DataObject, at: int, who: Any, marks: str) -> None:
        grant = data.draw(st.sampled_from(self.known))
        self.attempt(at, who, grant, {"grant": marks.format(grant.grant)}, False)

    @precondition(lambda self: self.known)
    @rule(data=st.data(), at=st.integers(0, 1), who=callers, name=names)
    def carry_a_handle_to_another_tool(self, data: st.DataObject, at: int, who: Any, name: str) -> None:
        grant = data.draw(st.sampled_from(self.known))
        if name != grant.name:
            before = len(self.reached)
            call = ToolCall(name, {}, grant=grant.grant)
            with pytest.raises(UnknownToolError):
                self.runner.run(self.dispatches[at].call(call, Caller(*who)))
            assert len(self.reached) == before

    def attempt(
        self, at: int, who: Any, grant: Known | None, given: Any, read_only: bool, name: str = ""
    ) -> None:
        """Make a call, and let the model say whether it may reach a server, and it alone."""
        may = grant is not None and grant.who == owner(who) and self.good(grant)
        may = may and not (read_only and not self.reads(grant.name))  # type: ignore[union-attr]
        before = len(self.reached)
        try:
            if given is None:
                said = self.call(at, who, name, {}).text
            else:
                said = self.call(at, who, "call_read_only_tool" if read_only else "call_tool", given).text
        except UnknownToolError as fault:
            said = str(fault)
        now = self.reached[before:]
        assert now == ([(grant.name, grant.seen)] if may and grant is not None else []), said
        if may and grant is not None:
            grant.left -= 1
        if grant is None or grant.who != owner(who):
            asked = name if given is None else given["grant"].strip("` \n")
            following = f"Next: resolve_tools {json.dumps({'ids': [asked]})}"
            assert said in (
                f"Unknown tool: {asked}",
                f"no live grant for {asked!r}; find the tool with search_tools, then resolve_tools\n"
                + following,
            )

    def good(self, grant: Known) -> bool:
        return (
            not grant.revoked
            and self.now < grant.ends
            and grant.left > 0
            and self.facts(grant.name) == grant.seen
        )

    # What happens meanwhile

    @rule(seconds=st.sampled_from([1.0, BEARER_TTL - 1, BEARER_TTL, TTL - 1, TTL]))
    def let_time_pass(self, seconds: float) -> None:
        self.now += seconds

    @rule(name=names, text=st.sampled_from(["", "new", "newer"]))
    def change_a_definition(self, name: str, text: str) -> None:
        source, own = name.split("_")
        self.world[source].texts = {**(self.world[source].texts or {}), own: text}
        self.freeze()

    @rule(name=names, read_only=st.booleans())
    def change_an_annotation(self, name: str, read_only: bool) -> None:
        source, own = name.split("_")
        self.world[source].reads = {**(self.world[source].reads or {}), own: read_only}
        self.freeze()

    @rule(source=sources, gone=st.sampled_from([*OWN_NAMES, ""]))
    def register_and_remove_a_tool(self, source: str, gone: str) -> None:
        self.world[source].texts = {**(self.world[source].texts or {}), "gone": gone}
        self.freeze()

    @rule(source=sources)
    def drop_or_return_a_source(self, source: str) -> None:
        self.world[source].mounted = not self.world[source].mounted
        self.freeze()

    @rule(source=sources, endpoint=st.integers(0, 2))
    def swap_the_server_of_a_source(self, source: str, endpoint: int) -> None:
        self.world[source].endpoint = endpoint
        self.freeze()

    @rule(source=sources)
    def lose_or_reach_a_server(self, source: str) -> None:
        self.world[source].online = not self.world[source].online
        self.freeze()

    @precondition(lambda self: self.known)
    @rule(data=st.data(), at=st.integers(0, 1))
    def revoke_one(self, data: st.DataObject, at: int) -> None:
        grant = data.draw(st.sampled_from(self.known))
        self.revoked(self.ledgers[at].revoke(grant=grant.grant), lambda one: one is grant)

    @rule(at=st.integers(0, 1), who=callers, source=st.sampled_from([None, *SOURCES]), name=st.none() | names)
    def revoke_some(self, at: int, who: Any, source: str | None, name: str | None) -> None:
        mine = owner(who)
        given: dict[str, Any] = {"source": source, "name": name}
        if mine is not None:
            given[mine[0]] = mine[1]
        if any(value is not None for value in given.values()):
            self.revoked(
                self.ledgers[at].revoke(**given),
                lambda one: (
                    mine in (None, one.who) and source in (None, one.seen[0]) and name in (None, one.name)
                ),
            )

    @precondition(lambda self: len(self.known) > 4)
    @rule(at=st.integers(0, 1))
    def revoke_everything(self, at: int) -> None:
        self.revoked(self.ledgers[at].revoke_all(), lambda one: True)

    def revoked(self, count: int, meant: Callable[[Known], bool]) -> None:
        fresh = [one for one in self.known if meant(one) and not one.revoked]
        assert count == len(fresh)
        for one in fresh:
            one.revoked = True

    @precondition(lambda self: self.known)
    @rule()
    def restart(self) -> None:
        for ledger in self.ledgers:
            ledger.close()
        if not self.survives:
            self.known.clear()
            self.replayed.clear()
        self.start()

    @invariant()
    def a_session_is_listed_what_would_run_and_nothing_else(self) -> None:
        for who in WHO:
            listed = {tool.name for tool in self.catalogs[0].granted(self.known_to(who))}
            newest = {one.name: one for one in self.known if owner(who) and one.who == owner(who)}
            assert listed == {name for name, one in newest.items() if self.good(one)}


class InMemory(Gate):
    """Grants end with the process."""

    def make_store(self) -> None:
        return None


class InAFile(Gate):
    """Grants outlive the process, and two processes see the same ones at once."""

    survives = True

    @initialize()
    def nothing_yet(self) -> None:
        assert not self.known

    def make_store(self) -> Path:
        if not hasattr(self, "folder"):
            self.folder = tempfile.TemporaryDirectory()
        return Path(self.folder.name) / "grants.db"

    def teardown(self) -> None:
        super().teardown()
        self.folder.cleanup()


class Awaited(MemoryStore):
    """A store in memory that is waited for."""

    name = "the grants of the test"

    async def get(self, *places: Any) -> Sequence[Entry | None]:
        await anyio.lowlevel.checkpoint()
        return await super().get(*places)

    async def write(
        self, *puts: Put, synced: bool = True, tell: bytes = b""
    ) -> Sequence[Entry | None] | None:
        await anyio.lowlevel.checkpoint()
        return await super().write(*puts, synced=synced, tell=tell)


class FarAway(Gate):
    """Grants are waited for, and each of two processes has a copy; at each step it is too old."""

    survives = True

    def make_store(self) -> CachedGrants:
        if not hasattr(self, "kept"):
            self.kept, self.steps = Awaited(), 0.0
        return CachedGrants(StoredGrants(self.kept), ttl=CACHE_TTL, clock=lambda: self.steps)

    def ledger(self, *given: Any, **options: Any) -> Any:
        ledger = GrantLedger(*given, **options)
        cast("Any", ledger).revoke = lambda **which: self.runner.run(ledger.revoke_async(**which))
        cast("Any", ledger).revoke_all = lambda: self.runner.run(ledger.revoke_all_async())
        return ledger

    def call(self, *given: Any, **options: Any) -> ToolResult:
        self.steps += CACHE_TTL
        return super().call(*given, **options)

    def known_to(self, who: Any) -> Caller:
        self.steps += CACHE_TTL
        caller = Caller(*who)
        self.runner.run(self.ledgers[0].know_held(caller))
        return caller


InMemory.TestCase.settings = settings(max_examples=20, stateful_step_count=30)
InAFile.TestCase.settings = settings(max_examples=8, stateful_step_count=30)
FarAway.TestCase.settings = settings(max_examples=8, stateful_step_count=30)
TestGateFarAway = FarAway.TestCase
TestGateInMemory = InMemory.TestCase
TestGateInAFile = InAFile.TestCase
