"""The server that `scripts/replicas` runs three of: a tool with an effect, a deferred one, and a switch."""

import os
from pathlib import Path

import anyio

from mcp_toolset import ToolContext, Toolset, ToolsetServer, tool

EFFECTS = Path(os.environ["REPLICAS_EFFECTS"])


@tool
async def append(id: str, seconds: float) -> str:
    """Append a line to the file of effects, and take a while before and after."""
    await anyio.sleep(seconds / 2)
    place = os.open(EFFECTS, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(place, f"{id}\n".encode())
    finally:
        os.close(place)
    await anyio.sleep(seconds / 2)
    return id


@tool(read_only=True)
def read_invoice(number: int) -> str:
    """Read an invoice."""
    return f"invoice {number}"


@tool(read_only=True)
def extra() -> str:
    """A tool that comes and goes."""
    return "here"


@tool
async def switch(context: ToolContext, on: bool) -> str:
    """Switch `extra` on or off."""
    members = context.membership
    members.change({"extra": on}, generation=members.generation)
    return str(on)


server = ToolsetServer(
    Toolset(append, extra, switch, Toolset(read_invoice).deferred()),
    capabilities=["membership"],
    keep=False,
    journal="REPLICAS_JOURNAL" in os.environ,
)
