"""Common tasks that are one line each."""

from __future__ import annotations

import openai.types.chat
import pytest
from pydantic import TypeAdapter

from mcp_toolset import tool

pytestmark = pytest.mark.anyio


@tool
def add(a: int, b: int = 1) -> int:
    """Add."""
    return a + b


def test_u69_a_tool_by_itself_is_exported_for_each_provider():
    assert add.to_openai()["function"]["name"] == "add"
    TypeAdapter(openai.types.chat.ChatCompletionToolParam).validate_python(add.to_openai())
    assert add.to_openai_responses()["name"] == add.to_anthropic()["name"] == "add"
    assert "add" in str(add.to_gemini())
