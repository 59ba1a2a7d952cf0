"""The stages of a tool call stand in the order of stages.toml, as a client and the program see it."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import anyio
import pytest
from mcp import MCPError
from tests.extensions.tasks.jobs import Jobs, served
from tests.interaction.raw_client import raw_client
from tests.support.asking import Person, connected, text_of
from tests.support.code_client import code_client
from tests.support.journaled import UUID_KEY

from mcp_toolset import (
    CallReport,
    Complete,
    HookSet,
    Reject,
    RemoteToolset,
    Rules,
    RunNormally,
    ToolCall,
    ToolContext,
    ToolResult,
    Toolset,
    ToolsetServer,
    tool,
)
from mcp_toolset.audit import AuditLog
from mcp_toolset.code import CodeMode
from mcp_toolset.extensions.journal.journal_store import JournalStore
from mcp_toolset.extensions.statistics.counts import SESSIONS, CallCounts
from mcp_toolset.extensions.statistics.store import StatisticsStore
from mcp_toolset.extensions.telemetry.metrics import CallMetrics
from mcp_toolset.middleware import CallNext, LargeResults
from mcp_toolset.policy import Approvals, Limits, Policy

ONCE = "allow once"
REPLAY_META_KEY = "mcp-toolset/replay-key"

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.needs(
        "approvals", "audit", "code", "journal", "large_results", "limits", "statistics", "tasks", "telemetry"
    ),
]

TABLE: dict[str, Any] = tomllib.loads((Path(__file__).parent / "stages.toml").read_text())
ORDER = list(TABLE)
NOTED: dict[str, tuple[type, str]] = {
    "references": (LargeResults, "sent"),
    "observed": (AuditLog, "digest"),
    "replay": (JournalStore, "find"),
    "approval": (Approvals, "ask"),
    "approval used up": (Approvals, "claim"),
    "journal": (JournalStore, "begin"),
    "audit": (AuditLog, "__call__"),
    "statistics": (CallCounts, "count_call"),
    "telemetry": (CallMetrics, "count_call"),
    "shortened": (LargeResults, "shortened"),
}
"""What is called at stages at which no code of a program is called."""

KEY: Any = {REPLAY_META_KEY: UUID_KEY}
YES: dict[str, Any] = {"decision": ONCE}
Seen = list[str]


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Seen:
    """The stages that calls have passed, as far as they are noted."""
    stages: Seen = []

    def noted(stage: str, before: Callable[..., Any]) -> Callable[..., Any]:
        def noting(*arguments: Any) -> Any:
            stages.append(stage)
            return before(*arguments)

        return noting

    for stage, (kind, method) in NOTED.items():
        monkeypatch.setattr(kind, method, noted(stage, getattr(kind, method)))
    return stages


@pytest.fixture
def pay(seen: Seen) -> Any:
    @tool(destructive=True)
    def pay(amount: int) -> str:
        """Pay an amount."""
        seen.append("tool")
        return f"paid {amount}, receipt {seen.count('tool')}"

    return pay


@tool
def rows(n: int) -> list[int]:
    """List numbers."""
    return list(range(n))


@tool
def total(rows: list[int]) -> int:
    """Add up numbers."""
    return sum(rows)


def by_table(*stages: str) -> Seen:
    """Stages in the order of the table."""
    return sorted(set(stages), key=ORDER.index)


def layer(seen: Seen, stage: str, after: str = "") -> Any:
    """A middleware that notes calls, and their results as the stage `after`."""

    async def noting(call: ToolCall, context: ToolContext, next: CallNext) -> ToolResult:
        seen.append(stage)
        result = await next()
        if after:
            seen.append(after)
        return result

    return noting


def hooks(seen: Seen, before: str = "execution hooks", after: str = "result hooks") -> HookSet:
    """Hooks for every tool that note calls and results."""
    noting = HookSet()

    @noting.execution("*")
    async def called(call: ToolCall) -> RunNormally:
        seen.append(before)
        return RunNormally(call.arguments)

    @noting.result("*")
    async def returned(call: ToolCall, result: ToolResult) -> ToolResult:
        seen.append(after)
        return result

    return noting


def reading(texts: list[str]) -> HookSet:
    """A hook that keeps the text of every result."""
    keeping = HookSet()

    @keeping.result("*")
    async def keeps(call: ToolCall, result: ToolResult) -> ToolResult:
        texts.append(result.text)
        return result

    return keeping


async def paid(server: ToolsetServer, times: int = 1, person: Person | None = None, **options: Any) -> Seen:
    """What a client is told by calls of `pay`, one after another."""
    async with connected(server, "legacy", elicitation_callback=person) as client:
        return [text_of(await client.call_tool("pay", {"amount": 5}, **options)) for _ in range(times)]


def test_the_table_numbers_its_stages_and_names_tests_that_exist() -> None:
    assert [stage["number"] for stage in TABLE.values()] == list(range(1, len(TABLE) + 1))
    assert {stage["shown"] for stage in TABLE.values() if "shown" in stage} <= globals().keys()


async def test_a_call_passes_its_stages_in_the_order_of_the_table(seen: Seen, tmp_path: Path) -> None:
    @tool
    def pay(amount: int) -> str:
        """Pay an amount."""
        seen.append("tool")
        return "paid " * 100

    async def method(ctx: Any, call_next: Any) -> Any:
        seen.append("method")
        return await call_next(ctx)

    def prepared(call: ToolCall) -> Any:
        seen.append("repair")
        return call.arguments

    carried = Rules(middleware=[layer(seen, "middleware of the toolset")])
    approvals = Approvals()
    server = ToolsetServer(
        Toolset(pay).prepared(call=prepared).carrying(carried).deferred(),
        rules=Rules(
            hooks=hooks(seen),
            middleware=[layer(seen, "middleware of the server", "middleware returns")],
            tool_middleware={"pay": [layer(seen, "middleware of the tool")]},
            observers=[lambda report: seen.append("observers")],
        ),
        access=lambda tool, context: seen.append("grant"),
        policy=Policy(ask=["pay"]),
        approvals=approvals,
        journal=tmp_path / "journal",
        audit=tmp_path / "audit",
        stats=tmp_path / "stats",
        telemetry="prometheus",
        large_results=100,
    )
    server.lowlevel.middleware.insert(0, method)
    async with connected(server, "legacy") as client:
        await client.call_tool("resolve_tools", {"ids": ["pay"]})
        await client.call_tool("pay", {"amount": 5}, meta=KEY)
        approvals.decide(approvals.waiting()[0].id, "granted")
        seen.clear()
        assert "kept as" in text_of(await client.call_tool("pay", {"amount": 5}, meta=KEY))
    passed = list(dict.fromkeys(seen))
    assert passed == by_table(*passed)
    assert {*ORDER} - {*passed} == {"answer", "policy", "schema", "limits", "time limit", "output schema"}


async def test_lists_are_counted_behind_the_programs_own_handlers(tmp_path: Path) -> None:
    async def none(ctx: Any, call_next: Any) -> Any:
        return {"tools": []} if ctx.method == "tools/list" else await call_next(ctx)

    for name, layers in (("open", ()), ("own", (none,))):
        server = ToolsetServer(Toolset(rows), stats=tmp_path / name)
        server.lowlevel.middleware[:0] = layers
        async with connected(server, "legacy") as client:
            listed = (await client.list_tools()).tools
        counted = [row for row in StatisticsStore(tmp_path / name).rows() if row.what == SESSIONS]
        assert bool(counted) == bool(listed) == (not layers)


async def test_a_middleware_of_the_program_sees_the_handle_of_a_slow_call() -> None:
    told: list[str] = []

    async def reads(ctx: Any, call_next: Any) -> Any:
        result = await call_next(ctx)
        told.extend(block["text"] for block in result.get("content", ()))
        return result

    jobs = Jobs()
    server = jobs.server(task_after=0.01)
    server.lowlevel.middleware.insert(0, reads)
    with anyio.fail_after(40):
        async with server, raw_client(server, "legacy") as client:
            await client.ask("tools/call", name="build", arguments={"what": "a house"})
            jobs.go.set()
    assert len(told) == 1 and "task_id: " in told[0]


async def test_a_call_that_cannot_be_a_task_is_refused_before_its_references_are_read(seen: Seen) -> None:
    async with served(Jobs(), mounted=False, era="legacy", large_results=100) as client:
        call = {"name": "plain", "arguments": {"x": {"$result": "r_0000000000000000"}}}
        refused = await client.ask("tools/call", **call, task={"ttl": 60_000})
        assert "does not run as a task" in refused["error"]["message"] and seen == []
        read = await client.ask("tools/call", **call)
        assert "there is no result" in read["content"][0]["text"] and seen == ["references"]


async def test_a_reference_is_filled_before_the_arguments_are_observed_and_checked(tmp_path: Path) -> None:
    reports: list[CallReport] = []
    rules = Rules(observers=[reports.append])
    server = ToolsetServer(Toolset(rows, total), rules=rules, audit=tmp_path / "audit", large_results=100)
    async with connected(server, "auto") as client:
        kept = (await client.call_tool("rows", {"n": 100})).content[-1].model_dump()["name"]
        for argument in ({"$result": kept}, list(range(100))):
            assert text_of(await client.call_tool("total", {"rows": argument})) == "4950"
    assert reports[1].arguments == reports[2].arguments != ""


async def test_a_denied_call_is_observed_and_reaches_no_rule(seen: Seen, pay: Any, tmp_path: Path) -> None:
    rules = Rules(hooks=hooks(seen), middleware=[layer(seen, "middleware of the server")])
    server = ToolsetServer(Toolset(pay), rules=rules, policy=Policy(deny=["pay"]), audit=tmp_path / "audit")
    async with connected(server, "auto") as client:
        with pytest.raises(MCPError, match="Unknown tool"):
            await client.call_tool("pay", {"amount": "none"})
    assert seen == by_table("observed", "audit")


@pytest.mark.parametrize("denied", ["pay", "rows"])
async def test_a_denied_tool_is_denied_before_its_grant_is_looked_for(pay: Any, denied: str) -> None:
    reports: list[CallReport] = []
    rules = Rules(observers=[reports.append])
    server = ToolsetServer(Toolset(pay, rows).deferred(), rules=rules, policy=Policy(deny=[denied]))
    async with connected(server, "auto") as client:
        with pytest.raises(MCPError, match="Unknown tool"):
            await client.call_tool("pay", {"amount": 5})
    assert bool(reports[0].rule) == (denied == "pay")


async def test_arguments_are_prepared_before_they_are_checked(pay: Any) -> None:
    prepared = Toolset(pay).prepared(call=lambda call: {"amount": len(call.arguments["amount"])})
    async with connected(ToolsetServer(prepared), "auto") as client:
        assert text_of(await client.call_tool("pay", {"amount": "five"})) == "paid 4, receipt 1"


async def test_arguments_that_do_not_fit_reach_no_middleware(seen: Seen, pay: Any) -> None:
    server = ToolsetServer(Toolset(pay), middleware=[layer(seen, "middleware of the server")])
    async with connected(server, "auto") as client:
        assert (await client.call_tool("pay", {"amount": "five"})).is_error and seen == []


async def test_a_call_by_its_grant_passes_the_gates_twice_and_the_rules_once(
    seen: Seen, pay: Any, tmp_path: Path
) -> None:
    rules = Rules(hooks=hooks(seen), middleware=[layer(seen, "middleware of the server")])
    server = ToolsetServer(Toolset(pay).deferred(), rules=rules, audit=tmp_path / "audit")
    async with connected(server, "auto") as client:
        found = await client.call_tool("resolve_tools", {"ids": ["pay"]})
        grant = (found.structured_content or {})["tools"][0]["grant"]
        seen.clear()
        await client.call_tool("call_tool", {"grant": grant, "arguments": {"amount": 5}})
    rest = by_table("middleware of the server", "execution hooks", "tool", "result hooks", "audit")
    assert seen == ["observed", "observed", *rest]


async def test_middleware_sees_the_arguments_before_a_hook_edits_them(pay: Any) -> None:
    amounts, editing = list[int](), HookSet()

    async def doubles(call: ToolCall, context: ToolContext, next: CallNext) -> ToolResult:
        amounts.append(call.arguments["amount"])
        result = await next(call.with_arguments({"amount": call.arguments["amount"] * 2}))
        amounts.append(call.arguments["amount"])
        return result

    @editing.execution("pay")
    async def adds(call: ToolCall) -> RunNormally:
        amounts.append(call.arguments["amount"])
        return RunNormally({"amount": call.arguments["amount"] + 1})

    async with connected(ToolsetServer(Toolset(pay), hooks=editing, middleware=[doubles]), "auto") as client:
        assert text_of(await client.call_tool("pay", {"amount": 5})) == "paid 11, receipt 1"
    assert amounts == [5, 10, 5]


async def test_an_edit_of_a_hook_is_checked_before_the_next_hook_and_before_anybody_is_asked(
    seen: Seen, pay: Any
) -> None:
    editing, person = HookSet(), Person()

    @editing.execution("pay")
    async def spoils(call: ToolCall) -> RunNormally:
        return RunNormally({"amount": "five"})

    server = ToolsetServer(Toolset(pay), hooks=editing.merged(hooks(seen)), policy=Policy(ask=["pay"]))
    (told,) = await paid(server, person=person)
    assert "Invalid arguments" in told and seen == ["result hooks"] and not person.asked


async def test_a_result_hook_sees_the_answer_and_the_refusal_of_an_execution_hook(pay: Any) -> None:
    texts: list[str] = []
    deciding = reading(texts)

    @deciding.execution("pay")
    async def decides(call: ToolCall) -> Complete | Reject:
        return Reject("too much") if call.arguments["amount"] else Complete("nothing to pay")

    async with connected(ToolsetServer(Toolset(pay), hooks=deciding), "auto") as client:
        for amount in (0, 5):
            await client.call_tool("pay", {"amount": amount})
    assert texts[0] == "nothing to pay" and "too much" in texts[1]


async def test_the_hooks_of_the_server_come_before_those_of_the_toolset(seen: Seen, pay: Any) -> None:
    carried = Toolset(pay).carrying(Rules(hooks=hooks(seen, "asked last", "told last")))
    server = ToolsetServer(carried, hooks=hooks(seen, "asked first", "told first"))
    await paid(server)
    assert seen == ["asked first", "asked last", "tool", "told first", "told last"]


async def test_middleware_and_observers_stand_in_the_order_of_their_lists(seen: Seen, pay: Any) -> None:
    rules = Rules(
        middleware=[layer(seen, "first", "first returns"), layer(seen, "second", "second returns")],
        observers=[lambda report: seen.append("told first"), lambda report: seen.append("told second")],
    )
    await paid(ToolsetServer(Toolset(pay), rules=rules))
    returned = ["second returns", "first returns", "told first", "told second"]
    assert seen == ["first", "second", "tool", *returned]


async def test_a_hook_decides_about_a_repeat(seen: Seen, pay: Any, tmp_path: Path) -> None:
    once, limits = HookSet(), {"pay": Limits(calls="9/day")}

    @once.execution("pay")
    async def decides(call: ToolCall) -> RunNormally | Reject:
        seen.append("execution hooks")
        return Reject("not again") if "tool" in seen else RunNormally(call.arguments)

    server = ToolsetServer(Toolset(pay), hooks=once, journal=tmp_path / "journal", limits=limits)
    told = await paid(server, times=2, meta=KEY)
    assert "not again" in told[1]
    assert seen == [*by_table("execution hooks", "replay", "journal", "tool"), "execution hooks"]


async def test_nobody_is_asked_about_a_repeat(pay: Any, tmp_path: Path) -> None:
    person = Person(YES)
    server = ToolsetServer(Toolset(pay), journal=tmp_path / "journal", policy=Policy(ask=["pay"]))
    assert await paid(server, times=2, person=person, meta=KEY) == ["paid 5, receipt 1"] * 2
    assert len(person.asked) == 1


async def test_a_repeat_uses_up_no_limit_and_passes_the_result_hooks(pay: Any, tmp_path: Path) -> None:
    stamping, limits = HookSet(), {"pay": Limits(calls="2/day")}
    stamps = iter("abcde")

    @stamping.result("pay")
    async def stamped(call: ToolCall, result: ToolResult) -> ToolResult:
        return ToolResult.of_text(f"{result.text}, stamp {next(stamps)}")

    server = ToolsetServer(Toolset(pay), hooks=stamping, journal=tmp_path / "journal", limits=limits)
    async with connected(server, "auto") as client:
        for stamp in "abc":
            told = text_of(await client.call_tool("pay", {"amount": 5}, meta=KEY))
            assert told == f"paid 5, receipt 1, stamp {stamp}"
        for told in ("receipt 2", "none is left"):
            assert told in text_of(await client.call_tool("pay", {"amount": 5}))


async def test_a_call_that_a_person_declines_uses_up_no_limit(pay: Any) -> None:
    person, limits = Person("decline", YES, YES), {"pay": Limits(calls="1/day")}
    server = ToolsetServer(Toolset(pay), policy=Policy(ask=["pay"]), limits=limits)
    declined, ran, refused = await paid(server, times=3, person=person)
    assert "did not allow it" in declined and "receipt 1" in ran and "none is left" in refused
    assert len(person.asked) == 3


async def test_a_call_over_the_limit_keeps_its_approval(pay: Any) -> None:
    approvals, limits = Approvals(), {"pay": Limits(calls="1/day")}
    server = ToolsetServer(Toolset(pay), policy=Policy(ask=["pay"]), limits=limits, approvals=approvals)
    async with connected(server, "legacy") as client:
        for told in ("receipt 1", "none is left"):
            await client.call_tool("pay", {"amount": 5})
            approvals.decide(approvals.waiting()[0].id, "granted")
            assert told in text_of(await client.call_tool("pay", {"amount": 5}))
    assert [approval.state for approval in approvals.waiting()] == ["granted"]


async def test_a_call_over_the_limit_is_not_in_the_journal(seen: Seen, pay: Any, tmp_path: Path) -> None:
    limits = {"pay": Limits(calls="1/day")}
    await paid(ToolsetServer(Toolset(pay), journal=tmp_path / "journal", limits=limits), times=2)
    assert seen == by_table("journal", "tool")


async def test_the_journal_records_a_call_that_its_time_limit_has_stopped(seen: Seen, tmp_path: Path) -> None:
    @tool(timeout=0.01)
    async def pay() -> None:
        """Pay."""
        try:
            await anyio.Event().wait()
        finally:
            seen.append("tool")

    async with JournalStore(tmp_path / "journal") as journal:
        async with connected(ToolsetServer(Toolset(pay), journal=journal.store), "auto") as client:
            result = await client.call_tool("pay", {}, meta=KEY)
        (found,) = await journal.records()
    assert "gave no answer within" in text_of(result) and found.standing == "unknown"
    assert (result.meta or {})["mcp-toolset/journal"]["state"] == "unknown"
    assert seen == by_table("journal", "tool")


async def test_a_result_hook_sees_what_the_output_check_has_refused() -> None:
    @tool
    def count() -> list[int]:
        """Count."""
        return ["one"]  # type: ignore[list-item]

    texts: list[str] = []
    async with connected(ToolsetServer(Toolset(count), hooks=reading(texts)), "auto") as client:
        assert (await client.call_tool("count", {})).is_error
    assert len(texts) == 1 and "does not fit its output schema" in texts[0]


async def test_a_result_hook_sees_what_a_limit_has_left_of_a_result() -> None:
    @tool
    def tell() -> str:
        """Tell."""
        return "word " * 100

    texts, limits = list[str](), {"tell": Limits(result_bytes=200)}
    async with connected(ToolsetServer(Toolset(tell), hooks=reading(texts), limits=limits), "auto") as client:
        await client.call_tool("tell", {})
    assert "the rest is cut off" in texts[0]


async def test_the_duration_contains_middleware_hooks_and_tool(pay: Any) -> None:
    reports, spans = list[CallReport](), list[float]()

    async def timing(call: ToolCall, context: ToolContext, next: CallNext) -> ToolResult:
        began = perf_counter()
        result = await next()
        spans.append(perf_counter() - began)
        return result

    rules = Rules(hooks=hooks([]), middleware=[timing], observers=[reports.append])
    await paid(ToolsetServer(Toolset(pay), rules=rules))
    assert reports[0].duration > spans[0]


async def test_hooks_see_a_long_result_whole_and_search_answers_stay_whole(seen: Seen) -> None:
    texts: list[str] = []
    server = ToolsetServer(Toolset(rows).deferred(), hooks=reading(texts), large_results=100)
    async with connected(server, "legacy") as client:
        found = text_of(await client.call_tool("search_tools", {"query": "rows", "resolve": 1}))
        assert found == texts[0] and len(found) > 100 and "shortened" not in seen
        assert "kept as" in text_of(await client.call_tool("rows", {"n": 100}))
    assert texts[1].count(",") == 99


async def test_a_call_of_code_has_its_references_filled_and_its_result_whole(seen: Seen) -> None:
    options: Any = {"large_results": 100, "code": CodeMode(workers=1)}
    async with code_client(Toolset(rows, total), "rows", "total", **options) as (code, _):
        call = {"grant": code.grants[0], "arguments": {"n": 400}}
        kept = (await code.client.call_tool("call_tool", call)).content[-1].model_dump()["name"]
        seen.clear()
        sums = f"(await rows(n=400))['result'][-1] + (await total(rows={{'$result': '{kept}'}}))['result']"
        ran = await code.client.call_tool("run_code", {"code": sums, "grants": code.grants})
    assert str(399 + sum(range(400))) in text_of(ran)
    assert seen == ["references", "references", "references", "shortened"]


async def test_the_stages_of_a_mounted_server_run_within_the_tool(
    seen: Seen, pay: Any, tmp_path: Path
) -> None:
    inner = ToolsetServer(Toolset(pay), hooks=hooks(seen, "tool", "tool"))
    mounted = Toolset(RemoteToolset(inner, name="desk"))
    server = ToolsetServer(mounted, hooks=hooks(seen), journal=tmp_path / "journal", audit=tmp_path / "audit")
    await paid(server)
    stages = by_table("observed", "execution hooks", "journal", "tool", "result hooks", "audit")
    assert list(dict.fromkeys(seen)) == stages and seen.count("tool") == 3
