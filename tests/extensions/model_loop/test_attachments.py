"""Images, documents and links of results, in the form that each provider's client library takes."""

from __future__ import annotations

from typing import Any

import anthropic.types
import pytest
from openai.types.responses import ResponseInputItemParam
from pydantic import TypeAdapter

from mcp_toolset import HookSet, ToolCall, ToolResult, Toolset, tool
from mcp_toolset.rounds import CallResult, ToolRound

pytestmark = pytest.mark.anyio

IMAGE = {"type": "image", "mimeType": "image/png", "data": "AAAA"}
PDF = {
    "type": "resource",
    "resource": {"uri": "file:///a/report.pdf", "mimeType": "application/pdf", "blob": "AAAA"},
}
SOUND = {"type": "audio", "mimeType": "audio/wav", "data": "AAAA"}
LINK = {
    "type": "resource_link",
    "uri": "file:///a/sales.csv",
    "name": "sales",
    "title": "Sales",
    "description": "by month",
}
BARE = {"type": "resource_link", "uri": "file:///b", "name": "b"}


@tool(manual=True)
def report() -> ToolResult:
    """Report."""
    raise AssertionError


async def committed(*blocks: dict[str, Any], is_error: bool = False) -> Any:
    call = ToolCall("report", {}, "1")
    plan = await ToolRound.from_calls([call], Toolset(report).view()).apply(HookSet())
    wire = {"content": [{"type": "text", "text": "here"}, *blocks], "isError": is_error}
    return plan.commit([CallResult.of(call, ToolResult(wire))])


async def test_u29_responses_take_images_and_documents_as_such():
    commit = await committed(IMAGE, PDF, SOUND)
    item = commit.to_openai_responses()[-1]
    assert item["output"] == [
        {"type": "input_text", "text": "here"},
        {"type": "input_image", "image_url": "data:image/png;base64,AAAA"},
        {"type": "input_file", "filename": "report.pdf", "file_data": "data:application/pdf;base64,AAAA"},
        {"type": "input_text", "text": "[audio/wav: not shown here]"},
    ]
    TypeAdapter(ResponseInputItemParam).validate_python(item)
    failed = (await committed(IMAGE, is_error=True)).to_openai_responses()[-1]["output"]
    assert failed[0] == {"type": "input_text", "text": "Error:"}
    assert (await committed(BARE)).to_openai_responses()[-1]["output"] == "here\nfile:///b"


async def test_u29_anthropic_takes_documents_beside_images():
    commit = await committed(IMAGE, PDF)
    message = commit.to_anthropic()[-1]
    source = {"type": "base64", "media_type": "application/pdf", "data": "AAAA"}
    assert message["content"][0]["content"][2] == {
        "type": "document",
        "source": source,
        "title": "report.pdf",
    }
    TypeAdapter(anthropic.types.MessageParam).validate_python(message)


async def test_u29_a_link_says_its_title_and_description_to_every_provider():
    told = "Sales: by month <file:///a/sales.csv>"
    commit = await committed(LINK)
    assert commit.to_openai()[-1]["content"] == f"here\n{told}"
    assert commit.to_openai_responses()[-1]["output"] == f"here\n{told}"
    assert commit.to_anthropic()[-1]["content"][0]["content"][1] == {"type": "text", "text": told}
