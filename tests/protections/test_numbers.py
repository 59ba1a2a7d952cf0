"""Numbers that would make a protection hold for nothing are refused where they are given."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from mcp_toolset import HookSet, Processes, RemoteToolset
from mcp_toolset.audit import AuditLog
from mcp_toolset.errors import DefinitionError
from mcp_toolset.grants import GrantLedger
from mcp_toolset.journal import JournalGuard
from mcp_toolset.middleware import LargeResults, OutputFormatter, RateLimit, ResultCache, RetryLimit, Timeout
from mcp_toolset.policy import Approvals
from mcp_toolset.rounds import BackgroundWork, SuspendedRounds
from mcp_toolset.search import SearchLearning

pytestmark = pytest.mark.needs(
    "approvals",
    "audit",
    "journal",
    "large_results",
    "learning",
    "limits",
    "model_loop",
    "processes",
    "result_cache",
    "retries",
)

MADE: dict[str, Callable[[Any], object]] = {
    "HookSet.timeout": lambda value: HookSet(timeout=value),
    "Timeout.seconds": lambda value: Timeout(value),
    "Timeout.per_tool": lambda value: Timeout(5, per_tool={"pay": value}),
    "RemoteToolset.timeout": lambda value: RemoteToolset("http://127.0.0.1:1/mcp", name="up", timeout=value),
    "RateLimit.calls": lambda value: RateLimit(value, per_seconds=1),
    "RateLimit.per_seconds": lambda value: RateLimit(1, per_seconds=value),
    "RetryLimit.times": lambda value: RetryLimit(value),
    "OutputFormatter.max_length": lambda value: OutputFormatter(value),
    "LargeResults.max_length": lambda value: LargeResults(max_length=value),
    "LargeResults.ttl": lambda value: LargeResults(ttl=value),
    "ResultCache.ttl": lambda value: ResultCache(ttl=value),
    "GrantLedger.ttl": lambda value: GrantLedger(ttl=value),
    "GrantLedger.bearer_ttl": lambda value: GrantLedger(bearer_ttl=value),
    "GrantLedger.bearer_uses": lambda value: GrantLedger(bearer_uses=value),
    "JournalGuard.ttl": lambda value: JournalGuard(ttl=value),
    "JournalGuard.max_result_bytes": lambda value: JournalGuard(max_result_bytes=value),
    "Approvals.ttl": lambda value: Approvals(ttl=value),
    "AuditLog.max_files": lambda value: AuditLog("calls.jsonl", max_files=value),
    "Processes.timeout": lambda value: Processes(timeout=value),
    "BackgroundWork.max_running": lambda value: BackgroundWork(max_running=value),
    "SuspendedRounds.ttl": lambda value: SuspendedRounds("rounds", ttl=value),
    "SearchLearning.half_life": lambda value: SearchLearning(half_life=value),
}


OPTIONAL = ("Timeout.per_tool", "GrantLedger.bearer_uses")


@pytest.mark.parametrize("name", MADE)
def test_u73_a_number_that_is_not_above_0_is_refused(name: str) -> None:
    for number in (0, -1, math.nan, "5", True, *(() if name in OPTIONAL else (None,))):
        with pytest.raises(DefinitionError, match=f"is a positive number, not {number!r}"):
            MADE[name](number)


def test_u73_a_tool_may_have_the_name_of_a_number() -> None:
    Timeout(5, per_tool={"seconds": 3, "owner": None})
    with pytest.raises(DefinitionError, match="seconds is a positive number, not 0"):
        Timeout(5, per_tool={"seconds": 0})
