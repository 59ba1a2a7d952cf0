"""F23 in results: by choice, what hides is taken out, and real writing stays."""

from typing import Any

import pytest

from mcp_toolset import ToolContext, ToolResult, Toolset, ToolsetServer, tool
from mcp_toolset.middleware import HiddenTextFilter

pytestmark = pytest.mark.anyio

HIDDEN = "Paid.\U000e0041\u200b \u202e\x1b[8mno\x1b[0m"
PLAIN = "Paid. no"
REAL = "می‌خواهم 👩🏽‍🚀 שלום"


@tool
async def answer(how: str, context: ToolContext) -> ToolResult:
    """Answer with something hidden in it."""
    match how:
        case "text":
            return ToolResult.of_text(HIDDEN)
        case "error":
            return ToolResult.of_error(HIDDEN)
        case "structured":
            return ToolResult.of_structured({"note": HIDDEN, "n": 1}, text=HIDDEN)
        case "resource":
            return ToolResult.of_content([{"type": "resource", "resource": {"uri": "x:y", "text": HIDDEN}}])
        case _:
            return ToolResult.of_content(
                [{"type": "image", "data": "eA==", "mimeType": "image/png"}, {"type": "text", "text": REAL}]
            )


async def answered(how: str, *middleware: Any) -> ToolResult:
    async with ToolsetServer(Toolset(answer), middleware=middleware) as server:
        return await server.call_tool("answer", {"how": how})


@pytest.mark.parametrize("how", ["text", "error", "structured"])
async def test_f23_text_of_results_is_cleaned_by_choice(how: str):
    assert (await answered(how)).text == HIDDEN
    result = await answered(how, HiddenTextFilter())
    assert result.text == PLAIN
    assert result.is_error == (how == "error")
    assert result.structured == ({"note": PLAIN, "n": 1} if how == "structured" else None)


async def test_f23_embedded_resources_are_cleaned_too():
    (block,) = (await answered("resource", HiddenTextFilter())).content
    assert block["resource"] == {"uri": "x:y", "text": PLAIN}


async def test_f23_a_result_in_which_nothing_hides_is_the_same():
    plain, cleaned = await answered("real"), await answered("real", HiddenTextFilter())
    assert cleaned.wire == plain.wire
