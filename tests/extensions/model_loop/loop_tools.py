"""The tools that the loops of the tests offer, in the first process and in the second."""

from __future__ import annotations

from mcp_toolset import AskUser, Toolset, tool


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
def shout(text: str) -> str:
    """Say it louder; runs in a worker thread."""
    return text.upper()


@tool
async def delete(id: str) -> str:
    """Delete a record."""
    raise AssertionError("the hook refuses it")


@tool(manual=True)
async def pay(amount: int) -> dict[str, int]:
    """Pay an amount; the application does it."""
    raise AssertionError("a manual tool is never run by itself")


@tool
async def book(seat: str) -> str | AskUser:
    """Book a seat, if the user agrees."""
    return AskUser(f"seat {seat}?")


TOOLS = Toolset(add, shout, delete, pay, book)
