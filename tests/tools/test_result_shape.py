"""A result of the application's own that no client could read is an error, wherever it is made (F22)."""

from __future__ import annotations

from typing import Any

import anyio
import mcp_types as types
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.asking import connected, text_of
from tests.support.calling import tool_table

from mcp_toolset import Complete, HookSet, ToolCall, ToolContext, ToolResult, Toolset, ToolsetServer, tool
from mcp_toolset.errors import RoundError
from mcp_toolset.middleware import CallNext
from mcp_toolset.tools.result import fault_of_result

pytestmark = pytest.mark.anyio

MALFORMED: list[Any] = [
    {"content": "text"},
    {"content": ["text"]},
    {"content": [{"text": "no type"}]},
    {"content": [{"type": "text"}]},
    {"content": [{"type": "text", "text": 1}]},
    {"content": [{"type": "image", "data": "aGk="}]},
    {"content": [{"type": "audio", "mimeType": "audio/wav"}]},
    {"content": [{"type": "resource_link", "uri": "a://b"}]},
    {"content": [{"type": "resource"}]},
    {"content": [{"type": "resource", "resource": {"uri": "a://b"}}]},
    {"content": [], "isError": "no"},
    {"content": [], "_meta": []},
    ["content"],
    {"content": [{"type": "text", "text": "\ud800"}]},
    {"content": [], "structuredContent": {"a": object()}},
]


@pytest.mark.parametrize("wire", MALFORMED)
@pytest.mark.parametrize("maker", ["tool", "middleware", "hook", "result hook"])
async def test_f22_a_malformed_result_is_an_error_that_says_what_is_wrong(wire: Any, maker: str) -> None:
    hooks = HookSet()

    @tool
    def probe() -> Any:
        """Answer."""
        return ToolResult(wire) if maker == "tool" else "fine"

    async def change(call: ToolCall, context: ToolContext, next: CallNext) -> ToolResult:
        await next()
        return ToolResult(wire)

    if maker == "hook":

        @hooks.execution("probe")
        async def answer(call: ToolCall, input: dict[str, Any]) -> Any:
            return Complete(ToolResult(wire))

    if maker == "result hook":

        @hooks.result("probe")
        async def seen(call: ToolCall, result: ToolResult) -> ToolResult:
            return ToolResult(wire)

    middleware = [change] if maker == "middleware" else []
    dispatch = tool_table([probe.bind()], hooks=hooks, middleware=middleware)
    with anyio.fail_after(40):
        result = await dispatch.call(ToolCall("probe", {}))
    assert result.is_error and fault_of_result(result.wire) is None
    assert any(word in result.text for word in ("protocol", "no JSON form", "withheld"))


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_f22_a_client_is_told_and_its_session_goes_on(mode: str) -> None:
    @tool
    def probe(good: bool) -> ToolResult:
        """Answer."""
        return ToolResult.of_text("fine") if good else ToolResult({"content": [{"type": "image"}]})

    async with connected(ToolsetServer(Toolset(probe)), mode) as client:
        bad = await client.call_tool("probe", {"good": False})
        assert bad.is_error and "a block of type 'image' without a data" in text_of(bad)
        assert text_of(await client.call_tool("probe", {"good": True})) == "fine"


@pytest.mark.needs("model_loop")
def test_f22_an_application_cannot_submit_a_malformed_result() -> None:
    from mcp_toolset.extensions.model_loop.calls import result_of

    with pytest.raises(RoundError, match="does not follow the protocol"):
        result_of(ToolCall("probe", {}, "c1"), ToolResult({"content": [{"type": "text"}]}))


TEXTS = st.one_of(st.text(max_size=5), st.none(), st.integers())
BLOCKS = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(["text", "image", "audio", "resource_link", "resource", None]),
        "resource": st.fixed_dictionaries({}, optional={"uri": TEXTS, "text": TEXTS, "blob": TEXTS}),
        **dict.fromkeys(("text", "data", "mimeType", "uri", "name"), TEXTS),
    },
)
RESULTS = st.fixed_dictionaries(
    {"content": st.lists(BLOCKS, max_size=3)}, optional={"isError": st.one_of(st.booleans(), TEXTS)}
)


@given(RESULTS)
def test_f22_what_passes_can_be_read_by_a_client(wire: dict[str, Any]) -> None:
    if fault_of_result(wire) is None:
        types.CallToolResult.model_validate(wire, by_name=False)
