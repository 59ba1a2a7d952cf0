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


def refs(grants: Sequence[ToolGrant]) -> list[str]:
    return [grant.key for grant in grants]


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
    assert [store.get(key) is not None for key in refs(grants)] == [False, False, True, True, True]
    assert store.names(owner_of(caller)) == ["a", "c", "d"]
    assert store.latest(owner_of(caller), "b") is None
    for _ in range(3):
        ledger.issue(binding("z"), CALLERS[2])
    assert store.names(owner_of(caller)) == []


def test_x1_a_grant_is_a_fixed_record():
    grant = GrantLedger().issue(binding("read"), CALLERS[1])
    assert grant == replace(grant) and hash(grant) == hash(replace(grant))
