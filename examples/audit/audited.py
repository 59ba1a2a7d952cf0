import asyncio
import json
import tempfile
from pathlib import Path

from mcp_toolset import Toolset, ToolsetServer, tool
from mcp_toolset.audit import AuditLog


@tool
async def pay(amount: int) -> str:
    """Pay an amount."""
    return f"paid {amount}"


async def main(path: Path) -> None:
    async with ToolsetServer(Toolset(pay), audit=AuditLog(path)) as server:
        await server.call_tool("pay", {"amount": 5})
        await server.call_tool("pay", {"amount": "much"})


with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "audit.jsonl"
    asyncio.run(main(path))
    for line in path.read_text().splitlines():
        fields = json.loads(line)
        print(fields["seq"], fields["event"], fields.get("outcome", "-"), fields.get("reason", "-"))
