"""Calls of a toolset as typed ones: decoded, matched, run, completed and committed."""

from __future__ import annotations

import datetime
from typing import Annotated, Any

import anyio
import mcp
import pytest
from pydantic import AfterValidator, BaseModel, field_validator

from mcp_toolset import (
    HookSet,
    Injected,
    InputTool,
    RunNormally,
    Tool,
    ToolCall,
    Toolset,
    ToolsetServer,
    tool,
    tool_input,
)
from mcp_toolset.arguments import hide, rename
from mcp_toolset.errors import (
    DefinitionError,
    InvalidArgumentsError,
    InvalidOutputError,
    StateError,
    ToolMismatchError,
    UnknownToolError,
)
from mcp_toolset.rounds import DecodedCall, FunctionCall

pytestmark = [pytest.mark.anyio, pytest.mark.needs("model_loop")]


class Snippets(BaseModel):
    snippets: list[str]


@tool_input(name="web_search", output=Snippets)
class WebSearch(BaseModel):
    query: str

    @field_validator("query")
    @classmethod
    def no_secrets(cls, query: str) -> str:
        if "secret" in query:
            raise ValueError("secrets are not searched for")
        if "broken" in query:
            raise KeyError("a fault of the application")
        return query


@tool_input
class Ping(BaseModel):
    host: str


@tool
def day_after(day: datetime.date, count: int = 1) -> datetime.date:
    """Tell a day."""
    return day + datetime.timedelta(days=count)


@tool
async def greet(name: str, greeting: Annotated[str, Injected]) -> str:
    """Greet."""
    return f"{greeting} {name}"


def even(value: int) -> int:
    if value % 2:
        raise ValueError("an even number, please")
    return value


@tool
def half(value: Annotated[int, AfterValidator(even)]) -> int:
    """Halve."""
    return value // 2


search = InputTool.of(WebSearch, output=Snippets)
tools = Toolset(search, InputTool.of(Ping), day_after, Toolset(greet).injecting({"greeting": "hello"}))


@pytest.mark.needs("model_loop")
async def test_u26_a_round_is_matched_and_each_call_completed_by_its_type():
    from mcp_toolset.rounds import ToolRound

    view = tools.prefixed("a").view()
    calls = [
        ToolCall("a_web_search", {"query": "tea"}, "1"),
        ToolCall("a_Ping", {"host": "h"}, "2"),
        ToolCall("a_day_after", {"day": "2026-01-01"}, "3"),
        ToolCall("a_greet", {"name": "you"}, "4"),
    ]
    plan = await ToolRound.from_calls(calls, view).apply(HookSet())
    done: list[Any] = []
    for pending in plan.pending:
        match tools.decode(pending, view):
            case DecodedCall(WebSearch(query=query)) as call:
                done.append(call.complete(Snippets(snippets=[query])))
            case DecodedCall(Ping(host=host)) as call:
                done.append(call.complete(f"{host} is there"))
            case FunctionCall() as call:
                done.append(call.complete(await call.call()))
    answers = [answer["content"] for answer in plan.commit(done).to_openai()[1:]]
    assert answers == ['{"snippets":["tea"]}', "h is there", "2026-01-02", "hello you"]


async def test_s3_a_typed_call_runs_its_own_function_with_the_input_as_it_is():
    call = day_after.decode(ToolCall("day_after", {"day": "2026-01-01"}, "1"))
    assert call.input == {"day": datetime.date(2026, 1, 1), "count": 1} and call.selector is day_after
    assert await call.call() == datetime.date(2026, 1, 2)
    call.input["count"] = 3
    assert await call.call() == datetime.date(2026, 1, 4)
    assert call.complete(await call.call()).result.text == "2026-01-04"
    assert call.metadata.arguments == {"day": "2026-01-01"}
    with pytest.raises(InvalidOutputError):
        call.complete(5)  # type: ignore[arg-type]
    run = search.with_handler(lambda given: Snippets(snippets=[given.query]))
    decoded = Toolset(run).decode(ToolCall("web_search", {"query": "x"}))
    decoded.input = WebSearch(query="y")
    assert await decoded.call() == Snippets(snippets=["y"])
    with pytest.raises(StateError, match=r"no handler to call; give it one with \.with_handler"):
        await search.decode(ToolCall("web_search", {"query": "x"})).call()


async def test_s3_injected_values_and_moved_arguments_reach_a_typed_call():
    moved = tools.with_arguments({"day_after": {"day": rename("date"), "count": hide(value=5)}})
    call = moved.decode(ToolCall("day_after", {"date": "2026-01-01"}))
    assert isinstance(call, FunctionCall) and await call.call() == datetime.date(2026, 1, 6)
    outer = tools.injecting({"greeting": "good day"})
    assert await outer.decode(ToolCall("greet", {"name": "x"})).call() == "good day x"
    own = Toolset(greet.injecting({"greeting": "hi"}))
    assert await own.decode(ToolCall("greet", {"name": "x"})).call() == "hi x"
    with pytest.raises(StateError, match="was not supplied"):
        await greet.decode(ToolCall("greet", {"name": "x"})).call()


def test_u26_what_cannot_be_decoded_is_an_error_that_says_why():
    plain = Toolset(Tool.from_schema("plain", {"a": "string"}))
    for call, fault in (
        (lambda: tools.decode(ToolCall("serch", {})), UnknownToolError),
        (lambda: plain.decode(ToolCall("plain", {"a": "b"})), ToolMismatchError),
        (lambda: tools.decode(ToolCall("day_after", {"day": "x"})), InvalidArgumentsError),
        (lambda: day_after.decode(ToolCall("greet", {"name": "x"})), ToolMismatchError),
    ):
        with pytest.raises(fault):
            call()


def test_u26_a_class_that_names_its_calls_names_all_of_them():
    class Whole(Toolset[DecodedCall[WebSearch, Snippets] | FunctionCall[..., Any]]):
        search = WebSearch
        after = day_after

    assert Whole().decode(ToolCall("web_search", {"query": "x"})).input == WebSearch(query="x")
    with pytest.raises(DefinitionError, match=r"Less does not say .*'Ping': add DecodedCall\[Ping, …\]"):

        class Less(Toolset[DecodedCall[WebSearch, Snippets]]):
            search = WebSearch
            ping = Ping

        assert Less
    with pytest.raises(DefinitionError, match=r"'day_after': add FunctionCall"):

        class Fewer(Toolset[DecodedCall[WebSearch, Snippets]]):
            after = day_after

        assert Fewer


def test_u25_the_output_given_again_is_that_of_the_declared_tool():
    assert InputTool.of(WebSearch, output=Snippets) is InputTool.of(WebSearch)
    other = InputTool.of(WebSearch, output=str)
    assert other is not search and other.name == "web_search"


@pytest.mark.needs("model_loop")
@pytest.mark.parametrize("name", ["web_search", "half"])
async def test_u27_what_only_pydantic_refuses_is_an_issue_of_the_round(name: str):
    from mcp_toolset.rounds import ToolRound

    view = Toolset(WebSearch, half).view()
    wrong = {"query": "a secret"} if name == "web_search" else {"value": 3}
    assert view[name].arguments.is_valid(wrong)
    opened = ToolRound.from_calls([ToolCall(name, wrong, "1")], view)
    assert [(one.reason, opened.calls) for one in opened.issues] == [("invalid_arguments", ())]
    told = opened.issues[0].message
    assert told.startswith(f"Invalid arguments for {name}: ")
    assert "secrets are not searched for" in told or "an even number, please" in told
    plan = await opened.apply(HookSet())
    assert told in plan.commit().to_openai()[1]["content"]


@pytest.mark.needs("model_loop")
async def test_u27_a_validator_that_fails_and_a_hook_that_edits_are_told_too():
    from mcp_toolset.rounds import ToolRound

    view = Toolset(WebSearch).view()
    opened = ToolRound.from_calls([ToolCall("web_search", {"query": "broken"}, "1")], view)
    assert opened.issues[0].message.endswith("they could not be read")
    hooks = HookSet()

    @hooks.execution("web_search")
    async def edit(call: ToolCall, input: dict[str, Any]) -> RunNormally:
        return RunNormally({"query": "a secret"})

    plan = await ToolRound.from_calls([ToolCall("web_search", {"query": "x"}, "1")], view).apply(hooks)
    assert plan.pending == () and "secrets are not searched for" in plan.rejected[0].decision.reason


async def test_u27_a_served_call_that_only_pydantic_refuses_waits_for_nobody():
    with anyio.fail_after(30):
        async with ToolsetServer(Toolset(WebSearch)) as server, mcp.Client(server.lowlevel) as client:
            answer = await client.call_tool("web_search", {"query": "a secret"})
            assert answer.is_error and server.pending_calls == []
            assert "secrets are not searched for" in answer.content[0].text  # type: ignore[union-attr]
