"""The tools of both programs: two that a model sees at once, many more that it finds by search."""

from typing import Any

from mcp_toolset import Toolset, tool


@tool(read_only=True)
def today() -> str:
    """Say which day it is."""
    return "2026-11-22"


@tool(read_only=True)
def get_weather(city: str) -> str:
    """Get the weather forecast of a city."""
    return f"sunny in {city}"


@tool
def delete_invoice(id: str) -> str:
    """Delete an invoice."""
    return f"deleted {id}"


tools: Toolset[Any] = Toolset(today, Toolset(get_weather, delete_invoice).deferred())
