"""What a handler has of its call: the call itself and named capabilities, each granted (H3, H4, H5)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.support.asking import ERAS, Model, Person, connected, text_of

from mcp_toolset import ToolCall, ToolContext, ToolResult, Toolset, ToolsetServer, tool
from mcp_toolset.errors import CallError, CapabilityError, DefinitionError
from mcp_toolset.middleware import CallNext
from mcp_toolset.tools.call import CAPABILITIES

CALL_META_KEY = "mcp-toolset/call"
REPLAY_META_KEY = "mcp-toolset/replay-key"

pytestmark = pytest.mark.anyio


@tool
def hidden(n: int) -> int:
    """Double a number."""
    return n * 2


def probing(use: Callable[[ToolContext], Awaitable[Any]]) -> Any:
    @tool
    async def probe(context: ToolContext) -> str:
        """Use a capability."""
        return str(await use(context))

    return probe


async def no_answer(context: ToolContext) -> Any:
    return await context.ask("Well?")


async def elicited(context: ToolContext) -> Any:
    return await context.elicit("Well?")


async def sampled(context: ToolContext) -> Any:
    return await context.sample("Write.")


async def seen(context: ToolContext) -> Any:
    return context.snapshot()


async def searched(context: ToolContext) -> Any:
    return context.search("double")


async def joined(context: ToolContext) -> Any:
    return context.membership.members()


async def started(context: ToolContext) -> Any:
    return context.background.start(sampled, context)


async def noted(context: ToolContext) -> Any:
    return context.append_event("seen")


USES: dict[str, tuple[Callable[[ToolContext], Awaitable[Any]], str]] = {
    "ask": (no_answer, "ask"),
    "elicit": (elicited, "ask"),
    "sample": (sampled, "sample"),
    "snapshot": (seen, "session"),
    "search": (searched, "catalog"),
    "membership": (joined, "membership"),
    "background": (started, "background"),
    "append_event": (noted, "events"),
}


@pytest.mark.parametrize("mode", ERAS)
@pytest.mark.parametrize("use", USES)
async def test_h4_a_capability_is_absent_unless_granted_and_the_error_says_how_to_grant_it(
    mode: str, use: str
) -> None:
    function, capability = USES[use]
    server = ToolsetServer(Toolset(probing(function)))
    async with connected(server, mode, elicitation_callback=Person(), sampling_callback=Model()) as client:
        result = await client.call_tool("probe", {})
    assert result.is_error
    assert f"capability '{capability}' was not granted" in text_of(result)
    assert f"capabilities=[…, '{capability}']" in text_of(result)


@pytest.mark.parametrize("use", USES)
async def test_h4_without_a_server_nothing_beyond_progress_and_log_is_there(use: str) -> None:
    function, capability = USES[use]
    with pytest.raises(CallError if use == "elicit" else CapabilityError):
        await function(ToolContext())
    assert ToolContext.capabilities == {"progress", "log"}
    assert capability in CAPABILITIES


def test_h4_what_cannot_be_granted_is_refused_where_it_is_asked_for() -> None:
    with pytest.raises(DefinitionError, match="no capability 'magic' to grant; there are progress"):
        ToolsetServer(Toolset(hidden), capabilities=["ask", "magic"])
    with pytest.raises(DefinitionError, match=r"capabilities=\['ask'\]"):
        ToolsetServer(Toolset(hidden), capabilities="ask")


async def test_h4_a_grant_for_some_tools_is_for_those_alone() -> None:
    first, second = probing(no_answer), probing(no_answer)
    tools = Toolset(Toolset(first).prefixed("a").granting("ask"), Toolset(second).prefixed("b"))
    person = Person({"answer": "yes"})
    async with connected(ToolsetServer(tools), "auto", elicitation_callback=person) as client:
        assert "yes" in text_of(await client.call_tool("a_probe", {}))
        assert (await client.call_tool("b_probe", {})).is_error
    with pytest.raises(DefinitionError, match="no capability 'magic'"):
        async with ToolsetServer(Toolset(probing(no_answer)).granting("magic")):
            raise AssertionError("opened")


@pytest.mark.parametrize("mode", ERAS)
async def test_h3_the_context_has_the_call_and_not_the_host(mode: str) -> None:
    kept: dict[str, Any] = {}

    @tool
    async def look(a: int, context: ToolContext) -> str:
        """Look around."""
        kept.update(name=context.name, arguments=dict(context.arguments), params=dict(context.params))
        try:
            await context.request("elicitation/create", {"message": "?", "requestedSchema": {}})
        except CallError as fault:
            kept["fault"] = str(fault)
        return "looked"

    async def rename(call: ToolCall, context: ToolContext, next: CallNext) -> ToolResult:
        kept["outside"] = context.capabilities
        return await next(call.with_arguments({"a": 2}))

    person = Person()
    server = ToolsetServer(Toolset(look).prefixed("x"), middleware=[rename])
    async with connected(server, mode, elicitation_callback=person) as client:
        assert text_of(await client.call_tool("x_look", {"a": 1})) == "looked"
    assert (kept["name"], kept["arguments"], kept["params"]) == ("x_look", {"a": 2}, {})
    assert "cannot be asked for here" in kept["fault"] and not person.asked
    assert kept["outside"] == frozenset(CAPABILITIES)


@pytest.mark.parametrize("mode", ERAS)
async def test_l5_the_context_is_no_part_of_the_schema_and_is_supplied(mode: str) -> None:
    @tool
    async def who(a: int, context: ToolContext) -> str:
        """Say who calls."""
        return f"{context.name} {a} {context.protocol_version}"

    async with connected(ToolsetServer(Toolset(who)), mode) as client:
        (shown,) = (await client.list_tools()).tools
        assert list(shown.input_schema["properties"]) == ["a"]
        result = await client.call_tool("who", {"a": 1})
        assert text_of(result) == f"who 1 {client.protocol_version}"


@pytest.mark.parametrize("mode", ERAS)
async def test_h4_session_shows_what_this_caller_is_shown(mode: str) -> None:
    tools = Toolset(probing(seen), Toolset(hidden).deferred())
    async with connected(ToolsetServer(tools, capabilities=["session"]), mode) as client:
        before = text_of(await client.call_tool("probe", {}))
        await client.call_tool("resolve_tools", {"ids": ["hidden"]})
        after = text_of(await client.call_tool("probe", {}))
        version = client.protocol_version
    assert "'probe'" in before and "'search_tools'" in before and "'hidden'" not in before
    assert ("'hidden'" in after) == (mode == "legacy")
    assert f"protocol_version='{version}'" in before


@pytest.mark.parametrize("mode", ERAS)
async def test_h4_catalog_searches_and_grants_nothing(mode: str) -> None:
    tools = Toolset(probing(searched), Toolset(hidden).deferred())
    async with connected(ToolsetServer(tools, capabilities=["catalog"]), mode) as client:
        assert "name='hidden'" in text_of(await client.call_tool("probe", {}))
        called = await client.call_tool("call_tool", {"grant": "hidden", "arguments": {"n": 1}})
        assert called.is_error and "no live grant" in text_of(called)


@tool
async def write(times: int, context: ToolContext) -> list[str]:
    """Have the same thing written several times."""
    return [(await context.sample("Write.", max_tokens=9, system="Short.")).text for _ in range(times)]


@pytest.mark.parametrize("mode", ERAS)
async def test_h5_sampling_says_which_call_caused_it_and_tells_equal_requests_apart(mode: str) -> None:
    model = Model()
    server = ToolsetServer(Toolset(write), capabilities=["sample"])
    async with connected(server, mode, sampling_callback=model) as client:
        first = await client.call_tool("write", {"times": 3})
        second = await client.call_tool("write", {"times": 1})
    assert first.structured_content == {"result": ["sample 1", "sample 2", "sample 3"]}
    assert second.structured_content == {"result": ["sample 4"]}
    metas = [params["_meta"] for params in model.asked]
    causes = [meta[CALL_META_KEY] for meta in metas]
    assert {cause["tool"] for cause in causes} == {"write"}
    assert causes[0] == causes[1] == causes[2] and causes[3]["id"] != causes[0]["id"]
    keys = [meta[REPLAY_META_KEY] for meta in metas]
    assert len(set(keys[:3])) == 3 and keys[3] == keys[0]
    assert [(params["maxTokens"], params["systemPrompt"]) for params in model.asked] == [(9, "Short.")] * 4


@pytest.mark.parametrize("mode", ERAS)
async def test_h5_a_client_without_a_model_is_said_to_have_none(mode: str) -> None:
    async with connected(ToolsetServer(Toolset(write), capabilities=["sample"]), mode) as client:
        result = await client.call_tool("write", {"times": 1})
    assert result.is_error and "does not support sampling" in text_of(result)


@pytest.mark.parametrize("mode", ERAS)
async def test_h5_a_named_question_is_found_again_though_its_text_moves(mode: str) -> None:
    runs: list[int] = []

    @tool
    async def moving(context: ToolContext) -> str:
        """Ask with a number that changes."""
        runs.append(len(runs))
        answer = await context.ask(f"Question at run {len(runs)}?", key="the question")
        return str(answer.content["answer"])

    person = Person({"answer": "yes"})
    server = ToolsetServer(Toolset(moving), capabilities=["ask"])
    async with connected(server, mode, elicitation_callback=person) as client:
        assert text_of(await client.call_tool("moving", {})) == "yes"
    assert person.questions == ["Question at run 1?"]


@pytest.mark.parametrize("mode", ERAS)
async def test_h4_a_handlers_own_except_clause_does_not_take_a_question_for_a_failure(mode: str) -> None:
    @tool
    async def wary(context: ToolContext) -> str:
        """Catch everything."""
        try:
            return str((await context.ask("Well?")).content["answer"])
        except Exception as fault:
            return f"caught {fault!r}"

    person = Person({"answer": "fine"})
    server = ToolsetServer(Toolset(wary), capabilities=["ask"])
    async with connected(server, mode, elicitation_callback=person) as client:
        assert text_of(await client.call_tool("wary", {})) == "fine"


async def test_x8_a_granted_capability_without_a_client_says_that_nobody_is_there() -> None:
    async with ToolsetServer(Toolset(probing(no_answer)), capabilities=["ask"]) as server:
        result = await server.call_tool("probe")
    assert result.is_error and "cannot be asked for here" in result.text
