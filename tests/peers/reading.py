"""Results, read."""

from __future__ import annotations

from typing import Any

from mcp import Client
from mcp_types import CallToolResult, TextContent


def text_of(result: CallToolResult) -> str:
    return "\n".join(block.text for block in result.content if isinstance(block, TextContent))


def value_of(result: CallToolResult) -> dict[str, Any]:
    assert not result.is_error, text_of(result)
    assert result.structured_content is not None
    return result.structured_content


async def names_of(client: Client) -> list[str]:
    return [tool.name for tool in (await client.list_tools()).tools]
