"""The tests of the extension: as an object and as a keyword."""

from typing import Any

import anyio
import pytest
from redact import Redact

from mcp_toolset import Toolset, ToolsetServer, tool
from mcp_toolset.testing import Client


@tool
def account() -> dict[str, str]:
    """Show an account."""
    return {"key": "sk-4f2a9c10b7d1"}


@pytest.mark.parametrize(
    "options", [{"extensions": [Redact()]}, {"redact": True}, {"redact": "sk-[0-9a-f]+"}]
)
def test_secrets_are_blanked(options: dict[str, Any]) -> None:
    async def called() -> None:
        async with ToolsetServer(Toolset(account), **options) as server, Client(server) as client:
            shown = await client.call_tool("account", {})
            assert shown.structured_content == {"key": "***"}
            assert "4f2a9c10b7d1" not in str(shown)
            count = await client.call_tool("blanked", {})
            assert count.structured_content == {"result": 2}

    anyio.run(called)
