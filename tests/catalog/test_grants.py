import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import anyio
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, multiple, rule

from mcp_toolset.calls.dispatch import ToolDispatch
from mcp_toolset.catalog.deferred import DeferredCatalog
from mcp_toolset.catalog.grants import (
    BEARER_LIFETIME,
    OWNED_LIFETIME,
    GrantLedger,
    MemoryGrantStore,
    ToolGrant,
    owner_of,
)
from mcp_toolset.errors import GrantError, UnknownToolError
from mcp_toolset.tools.call import ToolCall, ToolContext
from mcp_toolset.tools.definition import ToolDefinition
from mcp_toolset.tools.result import ToolResult
from mcp_toolset.tools.validation import checks_of
from mcp_toolset.tools.view import ToolBinding

pytestmark = pytest.mark.anyio


class Caller(ToolContext):
    def __init__(self, session: str | None = None, principal: str | None = None) -> None:
        self.session = session
        self.principal = principal

    def __repr__(self) -> str:
        return f"Caller({self.session}, {self.principal})"


CALLERS = [
    Caller(),
    Caller(session="one"),
    Caller(session="two"),
    Caller(principal="one"),
    Caller(session="one", principal="ann"),
    Caller(session="two", principal="ann"),
]
NAMES = ["read", "wipe"]


def binding(name: str, text: str = "", source: str = "erp", own: str | None = None) -> ToolBinding:
    async def execute(call: ToolCall, context: ToolContext) -> ToolResult:
        return ToolResult.of_text(f"ran {name}")

    hints = {"readOnlyHint": True} if name == "read" else None
    definition = ToolDefinition(own or name, text, annotations=hints)
    return ToolBinding(name, definition, execute, checks_of(definition)[0], source=source)


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


class Gate(RuleBasedStateMachine):
    """Nothing runs without a live grant of the same owner, source, tool and digest (X1, F34, F35)."""

    grants = Bundle("grants")

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.ledger = GrantLedger(now=self.clock)
        self.catalog = DeferredCatalog(self.ledger, lambda source: None)
        self.tools: dict[str, ToolBinding] = {name: binding(name) for name in NAMES}
        self.known: list[ToolGrant] = []
        self.freeze()

    def freeze(self) -> None:
        self.catalog.update(self.tools.values())
        self.dispatch = ToolDispatch(self.catalog.bindings())

    def is_live(self, grant: ToolGrant, caller: Caller) -> bool:
        """What the rules of a grant say, written once more and apart from the ledger."""
        tool = self.tools.get(grant.name)
        return (
            tool is not None
            and grant.owner == owner_of(caller)
            and self.clock.now < grant.expires
            and (tool.source, tool.definition.name) == (grant.source, grant.tool)
            and tool.definition.digest == grant.digest
        )

    def call(self, caller: Caller, name: str, arguments: dict[str, Any]) -> str:
        async def ask() -> str:
            with anyio.fail_after(5):
                return (await self.dispatch.call(ToolCall(name, arguments), caller)).text

        return anyio.run(ask)

    @rule(target=grants, name=st.sampled_from(NAMES), caller=st.sampled_from(CALLERS))
    def resolve(self, name: str, caller: Caller) -> Any:
        self.call(caller, "resolve_tools", {"ids": [name]})
        if name not in self.tools:
            return multiple()
        grant = self.ledger.issue(self.tools[name], caller)
        self.known.append(grant)
        return grant

    @rule(grant=grants, caller=st.sampled_from(CALLERS), read_only=st.booleans())
    def call_with_handle(self, grant: ToolGrant, caller: Caller, read_only: bool) -> None:
        name = "call_read_only_tool" if read_only else "call_tool"
        text = self.call(caller, name, {"grant": grant.handle})
        may_run = self.is_live(grant, caller) and not (read_only and grant.name != "read")
        assert (text == f"ran {grant.name}") == may_run, text

    @rule(name=st.sampled_from(NAMES), caller=st.sampled_from(CALLERS), native=st.booleans())
    def call_by_name(self, name: str, caller: Caller, native: bool) -> None:
        try:
            text = self.call(caller, name, {}) if native else self.call(caller, "call_tool", {"grant": name})
        except UnknownToolError:
            text = ""
        may_run = bool(owner_of(caller)) and self.granted(name, caller)
        assert (text == f"ran {name}") == may_run, text

    @rule(reference=st.text(max_size=30), caller=st.sampled_from(CALLERS))
    def guess(self, reference: str, caller: Caller) -> None:
        if reference not in NAMES:
            assert not self.call(caller, "call_tool", {"grant": reference}).startswith("ran ")

    @rule(grant=grants, other=st.sampled_from(NAMES), caller=st.sampled_from(CALLERS))
    def use_a_handle_for_another_tool(self, grant: ToolGrant, other: str, caller: Caller) -> None:
        forged = f"{other}.{grant.handle.split('.')[1]}"
        if other != grant.name:
            assert not self.call(caller, "call_tool", {"grant": forged}).startswith("ran ")
            sent = ToolCall(other, {}, grant=grant.handle)
            with pytest.raises(UnknownToolError):
                anyio.run(self.dispatch.call, sent, caller)

    @rule(seconds=st.sampled_from([1.0, BEARER_LIFETIME, OWNED_LIFETIME - 1, OWNED_LIFETIME]))
    def let_time_pass(self, seconds: float) -> None:
        self.clock.now += seconds

    @rule(name=st.sampled_from(NAMES), text=st.sampled_from(["new", "newer"]))
    def change_the_definition(self, name: str, text: str) -> None:
        self.tools[name] = binding(name, text)
        self.freeze()

    @rule(name=st.sampled_from(NAMES))
    def move_to_another_source(self, name: str) -> None:
        self.tools[name] = binding(name, source="stranger")
        self.freeze()

    @rule(name=st.sampled_from(NAMES))
    def put_another_tool_under_the_name(self, name: str) -> None:
        self.tools[name] = binding(name, own="other")
        self.freeze()

    @rule(name=st.sampled_from(NAMES))
    def remove(self, name: str) -> None:
        self.tools.pop(name, None)
        self.freeze()

    def granted(self, name: str, caller: Caller) -> bool:
        """Whether the store holds a live grant of this caller for a name."""
        store = self.ledger._store
        latest = store.latest(owner_of(caller), name)
        return latest is not None and self.is_live(latest, caller)

    @invariant()
    def listed_are_only_tools_that_the_session_holds(self) -> None:
        for caller in CALLERS:
            for shown in self.catalog.granted(caller):
                assert owner_of(caller)
                assert shown.name in self.tools


Gate.TestCase.settings = settings(max_examples=80, stateful_step_count=30, deadline=None)
TestGate = Gate.TestCase


def refs(grants: Sequence[ToolGrant]) -> list[str]:
    return [grant.handle for grant in grants]


def test_x1_a_handle_carries_the_name_and_cannot_be_guessed():
    ledger = GrantLedger()
    handles = {ledger.issue(binding("read"), CALLERS[1]).handle for _ in range(500)}
    assert len(handles) == 500
    assert all(re.fullmatch(r"read\.[A-Za-z0-9_-]{16}", handle) for handle in handles)


@pytest.mark.parametrize(
    ("caller", "lifetime"), [(CALLERS[0], BEARER_LIFETIME), (CALLERS[1], OWNED_LIFETIME)]
)
def test_x1_a_grant_ends_exactly_when_its_lifetime_is_over(caller: Caller, lifetime: float):
    clock = Clock()
    ledger, tool = GrantLedger(now=clock), binding("read")
    grant = ledger.issue(tool, caller)
    clock.now += lifetime - 0.001
    ledger.check(grant, tool)
    clock.now += 0.001
    with pytest.raises(
        GrantError, match="the grant for read has expired; search for it and resolve it again"
    ):
        ledger.check(grant, tool)
    assert ledger.names(caller) == []


@pytest.mark.parametrize(
    ("now", "says"),
    [
        (None, "read is no longer in the catalog"),
        (binding("read", source="other"), "now belongs to another server"),
        (binding("read", own="other"), "now belongs to another server"),
        (binding("read", "changed"), "the definition of read has changed"),
    ],
)
def test_f35_the_owner_is_told_what_happened(now: ToolBinding | None, says: str):
    ledger = GrantLedger()
    grant = ledger.issue(binding("read"), CALLERS[1])
    ledger.check(grant, binding("read"))
    with pytest.raises(GrantError, match=says):
        ledger.check(grant, now)


def test_f34_whoever_is_not_the_owner_finds_nothing():
    ledger = GrantLedger()
    for caller in CALLERS:
        grant = ledger.issue(binding("read"), caller)
        for other in CALLERS:
            found = ledger.find(grant.handle, other)
            assert (found == grant) == (owner_of(other) == owner_of(caller))


def test_x1_a_principal_keeps_its_grants_in_another_session_but_not_a_session_of_its_name():
    ledger = GrantLedger()
    grant = ledger.issue(binding("read"), Caller(session="one", principal="ann"))
    assert ledger.find(grant.handle, Caller(session="two", principal="ann")) == grant
    assert ledger.find(grant.handle, Caller(session="ann")) is None
    assert ledger.find(grant.handle, Caller(session="one")) is None


def test_x1_without_an_owner_the_handle_is_the_only_proof():
    ledger = GrantLedger()
    grant = ledger.issue(binding("read"), Caller())
    assert ledger.find(grant.handle, Caller()) == grant
    assert ledger.find("read", Caller()) is None
    assert ledger.names(Caller()) == []


def test_x1_the_name_stands_for_the_newest_grant():
    ledger = GrantLedger()
    caller = CALLERS[1]
    old, new = (ledger.issue(binding("read", text), caller) for text in ("old", "new"))
    assert ledger.find("read", caller) == new
    assert ledger.find(old.handle, caller) == old
    assert ledger.names(caller) == ["read"]


def test_f37_another_process_knows_no_grant():
    grant = GrantLedger().issue(binding("read"), CALLERS[1])
    assert GrantLedger().find(grant.handle, CALLERS[1]) is None


def test_x1_the_store_is_bounded_and_forgets_the_oldest_everywhere():
    store = MemoryGrantStore(limit=3)
    ledger = GrantLedger(store)
    caller = CALLERS[1]
    grants = [ledger.issue(binding(name), caller) for name in ("a", "b", "a", "c", "d")]
    assert [store.get(handle) is not None for handle in refs(grants)] == [False, False, True, True, True]
    assert store.names(owner_of(caller)) == ["a", "c", "d"]
    assert store.latest(owner_of(caller), "b") is None
    for _ in range(3):
        ledger.issue(binding("z"), CALLERS[2])
    assert store.names(owner_of(caller)) == []


def test_x1_a_grant_is_a_fixed_record():
    grant = GrantLedger().issue(binding("read"), CALLERS[1])
    assert grant == replace(grant) and hash(grant) == hash(replace(grant))
