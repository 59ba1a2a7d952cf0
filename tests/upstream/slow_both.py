"""A server of both eras over stdio, which is slow to start: `slow_both.py FOLDER SECONDS…`.

Its n-th process waits for the n-th number of seconds, and each later one for the last.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

folder, *seconds = sys.argv[1:]
starts = Path(folder, "starts")
with starts.open("a") as noted:
    noted.write("x")
before = len(starts.read_text()) - 1
time.sleep(float(seconds[min(before, len(seconds) - 1)]))  # noqa: TID251

from mcp.server.mcpserver import Context, MCPServer  # noqa: E402
from mcp_types import ToolAnnotations  # noqa: E402
from pydantic import BaseModel  # noqa: E402

server = MCPServer("slow")


class Word(BaseModel):
    word: str


async def asked(ctx: Context[Any, Any]) -> str:
    answer = await ctx.elicit("Which word?", Word)
    return answer.data.word if answer.action == "accept" else answer.action


server.add_tool(asked, "ask")
server.add_tool(asked, "look", annotations=ToolAnnotations(read_only_hint=True))
server.run()
