"""The server that `scripts/suspended` runs three of: two tools with effects; one needs an approval."""

import os
from pathlib import Path
from typing import Literal

from mcp_toolset import ToolCall, Toolset, ToolsetServer, tool
from mcp_toolset.code import CodeMode
from mcp_toolset.middleware import PermissionChecker

EFFECTS = Path(os.environ["REPLICAS_EFFECTS"])


def note(line: str) -> None:
    """Append a line to the file of effects."""
    place = os.open(EFFECTS, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(place, f"{line}\n".encode())
    finally:
        os.close(place)


@tool
async def book(number: int) -> dict[str, int]:
    """Book an invoice."""
    note(f"book {number}")
    return {"total": number * 10}


@tool
async def pay(amount: int) -> str:
    """Pay an amount."""
    note(f"pay {amount}")
    return f"paid {amount}"


def rule(call: ToolCall) -> Literal["ask", "allow"]:
    """Payments need an approval."""
    return "ask" if call.name == "pay" else "allow"


server = ToolsetServer(
    Toolset(book, pay).deferred(),
    middleware=[PermissionChecker(rule)],
    code=CodeMode(workers=1),
    journal=True,
    keep=False,
)
