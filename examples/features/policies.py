import logging
import sys

import anyio
from pydantic import BaseModel

from mcp_toolset import (
    Complete,
    HookSet,
    Reject,
    RunNormally,
    ToolCall,
    ToolDefinition,
    ToolResult,
    Toolset,
    ToolsetServer,
    rejection_reason,
    tool,
)


class City(BaseModel):
    city: str


@tool
async def weather(city: str) -> str:
    """Tell the weather."""
    return f"It is sunny in {city}."


class House:
    async def weather_hook(self, call: ToolCall, input: City) -> RunNormally | Complete | Reject:
        if not input.city.strip():
            return Reject("city must not be blank")
        if input.city == "Atlantis":
            return Complete("It is wet.")
        return RunNormally(City(city=input.city.title()))

    async def weather_description_hook(self, definition: ToolDefinition) -> str | None:
        return f"{definition.description} Use metric units."

    async def weather_result_hook(self, call: ToolCall, result: ToolResult) -> ToolResult | None:
        return None if result.is_error else ToolResult.of_text(result.text.upper())


async def main() -> None:
    logging.basicConfig(stream=sys.stdout, format="%(message)s")
    logging.getLogger("mcp_toolset.hooks").setLevel(logging.INFO)
    hooks = HookSet()
    hooks.register(House())
    nested = HookSet().nested("eu", hooks)
    async with ToolsetServer(Toolset(weather).prefixed("eu"), hooks=nested) as server:
        print(server.tools()[0]["description"])
        for city in ("bern", "Atlantis", " "):
            result = await server.call_tool("eu_weather", {"city": city})
            print(result.text, rejection_reason(result))


if __name__ == "__main__":
    anyio.run(main)
