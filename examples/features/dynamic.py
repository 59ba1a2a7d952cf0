from collections.abc import Iterable, Mapping
from typing import Any

import anyio

from mcp_toolset import DynamicToolset, ToolCall, ToolContext, ToolDefinition, ToolProvider, ToolResult

SCHEMA = {"type": "object", "properties": {"room": {"type": "string"}}, "required": ["room"]}


class Lights(ToolProvider):
    def __init__(self) -> None:
        self.names = ["turn_on"]

    async def list_definitions(self) -> Iterable[ToolDefinition]:
        return [ToolDefinition(name, input_schema=SCHEMA) for name in self.names]

    async def resolve(self, name: str) -> ToolDefinition | None:
        return ToolDefinition(name, input_schema=SCHEMA) if name in self.names else None

    def prepare(self, call: ToolCall, turn: Any) -> Mapping[str, Any]:
        return {"room": turn, **call.arguments} if turn else call.arguments

    async def execute(self, call: ToolCall, context: ToolContext) -> ToolResult:
        return ToolResult.of_text(f"{call.name} in the {call.arguments['room']}")


async def main() -> None:
    lights = Lights()
    async with DynamicToolset(lights, name="lights") as tools:
        view = tools.view(turn="kitchen")
        print(list(view), (await view.execute("turn_on", {})).text)
        lights.names.append("turn_off")
        await tools.refresh()
        print(tools.names(), tools.status.state)


if __name__ == "__main__":
    anyio.run(main)
