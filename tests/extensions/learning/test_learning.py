"""Search that learns from use: per tenant, within its bound, forgettable, and never beyond a policy."""

from __future__ import annotations

import json
import logging
import stat
from pathlib import Path
from typing import Any

import pytest
from tests.support.contexts import OnWire

from mcp_toolset import (
    DynamicToolset,
    ToolBinding,
    ToolCall,
    ToolContext,
    ToolDefinition,
    ToolProvider,
    ToolResult,
    Toolset,
    ToolsetServer,
    tool,
)
from mcp_toolset.errors import DefinitionError
from mcp_toolset.extensions.learning.extension import MAX_BONUS
from mcp_toolset.grants import AccessDenied
from mcp_toolset.search import SearchLearning

pytestmark = pytest.mark.anyio

QUERY = "prepare the monthly figures"


ANN, BEN = OnWire(principal="ann"), OnWire(principal="ben")


@tool
def figures_report() -> str:
    """Prepare the monthly figures of sales."""
    return "report"


@tool
def figures_sheet(fails: bool = False) -> ToolResult:
    """Prepare the monthly figures of costs."""
    return ToolResult.of_error("no") if fails else ToolResult.of_text("sheet")


class Broken(ToolProvider):
    """A tool that breaks what it promises."""

    async def list_definitions(self) -> list[ToolDefinition]:
        promise = {"type": "object", "required": ["total"]}
        return [ToolDefinition("figures_broken", "Prepare the monthly figures.", output_schema=promise)]

    async def execute(self, call: ToolCall, context: ToolContext) -> ToolResult:
        return ToolResult.of_structured({})


@tool
def weather() -> str:
    """Tell the weather of a city."""
    return "sunny"


def serving(learn: SearchLearning | None, **options: Any) -> ToolsetServer:
    tools = Toolset(figures_report, figures_sheet, weather).deferred()
    return ToolsetServer(tools, learning=learn, **options)


async def found(server: ToolsetServer, caller: ToolContext, query: str = QUERY) -> list[str]:
    answer = await server.call(ToolCall("search_tools", {"query": query}), caller)
    return [hit["id"] for hit in answer.structured["hits"]]


async def use(server: ToolsetServer, caller: ToolContext, name: str, **arguments: Any) -> ToolResult:
    """Search, resolve and call."""
    await found(server, caller)
    resolved = await server.call(ToolCall("resolve_tools", {"ids": [name]}), caller)
    grant = resolved.structured["tools"][0]["grant"]
    return await server.call(ToolCall("call_tool", {"grant": grant, "arguments": arguments}), caller)


async def test_m8_what_was_found_resolved_and_called_comes_first_for_its_tenant_alone() -> None:
    async with serving(SearchLearning()) as server:
        first, second = (await found(server, ANN))[:2]
        assert (await use(server, ANN, second)).is_error is False
        assert (await found(server, ANN))[:2] == [second, first]
        assert (await found(server, BEN))[:2] == [first, second]
        assert (await found(server, OnWire()))[:2] == [first, second]


async def test_m8_without_the_option_nothing_is_learnt() -> None:
    async with serving(None) as server:
        before = await found(server, ANN)
        await use(server, ANN, before[1])
        assert await found(server, ANN) == before


async def test_m8_failures_and_callers_that_cannot_be_told_apart_do_not_count() -> None:
    learn = SearchLearning()
    async with serving(learn) as server:
        assert (await use(server, ANN, "figures_sheet", fails=True)).is_error
        assert (await use(server, ANN, "figures_sheet", fails="x")).is_error
        broken = ToolsetServer(DynamicToolset(Broken(), name="broken").deferred(), learning=learn)
        async with broken:
            assert (await use(broken, ANN, "figures_broken")).is_error
        assert learn.bonus(ANN, QUERY) == {}
        for caller in (OnWire("one"), OnWire()):
            assert not (await use(server, caller, "figures_sheet")).is_error
            assert learn.bonus(caller, QUERY) == {}


async def test_m8_use_moves_no_tool_into_an_answer_that_a_policy_or_the_search_leaves_out() -> None:
    denied: set[str] = set()
    learn = SearchLearning()

    def access(binding: ToolBinding, context: ToolContext) -> AccessDenied | None:
        return AccessDenied(shown=False) if binding.name in denied else None

    async with serving(learn, access=access) as server:
        before = await found(server, ANN)
        for _ in range(5):
            await use(server, ANN, "figures_sheet")
        learn.searched(ANN, QUERY, ["\nweather"])
        learn.resolved(ANN, "\nweather")
        learn.called(ANN, "\nweather")
        assert learn.bonus(ANN, QUERY)["\nweather"] > 0
        assert sorted(await found(server, ANN)) == sorted(before)
        assert (await found(server, ANN, "figures_report"))[0] == "figures_report", "a name comes first"
        denied.add("figures_sheet")
        assert await found(server, ANN) == [name for name in before if name != "figures_sheet"]


def test_m8_a_thousand_hostile_uses_stay_within_the_bound_and_the_room_of_a_tenant() -> None:
    learn = SearchLearning(max_pairs=50, max_callers=2)
    words = ["".join(chr(ord("f") + int(digit)) for digit in str(number)) for number in range(1000, 2000)]
    for word in words:
        learn.searched(ANN, f"{word} {QUERY}", ["evil"])
        learn.resolved(ANN, "evil")
        learn.called(ANN, "evil")
    assert 0 < learn.bonus(ANN, QUERY)["evil"] <= MAX_BONUS
    assert learn.bonus(BEN, QUERY) == {}
    learn.searched(ANN, QUERY, ["other"])
    learn.called(ANN, "other")
    assert "other" not in learn.bonus(ANN, QUERY), "it was not resolved"
    assert learn.bonus(ANN, words[-1]) and not learn.bonus(ANN, words[0]), "what is oldest is forgotten first"
    for name in ("ben", "cleo"):
        learn.searched(OnWire(principal=name), QUERY, ["tool"])
    assert learn.bonus(ANN, QUERY) == {}, "a third tenant takes the place of the oldest"


def test_m8_uses_decay_and_are_forgotten() -> None:
    time = [0.0]
    learn = SearchLearning(half_life=10, clock=lambda: time[0])
    for caller in (ANN, BEN):
        learn.searched(caller, QUERY, ["tool"])
        learn.resolved(caller, "tool")
        learn.called(caller, "tool")
    fresh = learn.bonus(ANN, QUERY)["tool"]
    time[0] = 100.0
    assert learn.bonus(ANN, QUERY)["tool"] < fresh / 100
    time[0] = 0.0
    learn.forget("ann")
    assert learn.bonus(ANN, QUERY) == {} and learn.bonus(BEN, QUERY)
    learn.forget()
    assert learn.bonus(BEN, QUERY) == {}


async def test_m8_a_file_keeps_it_for_its_owner_without_words_or_callers(tmp_path: Path) -> None:
    file = tmp_path / "learnt.json"
    async with serving(SearchLearning(file)) as server:
        await use(server, ANN, "figures_sheet")
    text = file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "monthly" not in text and "ann" not in text
    again = SearchLearning(file)
    assert again.bonus(ANN, QUERY) and not again.bonus(BEN, QUERY)
    again.forget("ann")
    assert json.loads(file.read_text())["tenants"] == {}


def test_m8_a_file_that_cannot_be_trusted_is_not_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "learnt.json"
    for text, mode in (("{", 0o600), ('{"format": "x", "key": "", "tenants": {}}', 0o600), ("{}", 0o666)):
        file.write_text(text)
        file.chmod(mode)
        with caplog.at_level(logging.WARNING):
            caplog.clear()
            assert SearchLearning(file).bonus(ANN, QUERY) == {}
        assert "is not used" in caplog.text
    with pytest.raises(DefinitionError, match="max_bonus is below 0.2"):
        SearchLearning(max_bonus=0.2)
