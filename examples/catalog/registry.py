import anyio

from mcp_toolset import (
    DynamicToolset,
    ToolCall,
    ToolContext,
    ToolDefinition,
    ToolProvider,
    ToolResult,
    Toolset,
    ToolsetServer,
    tool,
)
from mcp_toolset.errors import StateError


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


class Lights(ToolProvider):
    async def list_definitions(self) -> list[ToolDefinition]:
        return [ToolDefinition("on"), ToolDefinition("off")]

    async def execute(self, call: ToolCall, context: ToolContext) -> ToolResult:
        return ToolResult.of_text(f"turned {call.name}")


async def main() -> None:
    async with ToolsetServer(Toolset(add)) as server:
        registry = server.registry
        lights = await server.attach(DynamicToolset(Lights(), name="lights").prefixed("lights"))
        print(registry.names, (await server.call_tool("lights_on")).text)

        state = registry.snapshot()
        await server.choose({"lights_off": False})
        print(registry.names)
        try:
            registry.apply_state(state)
        except StateError as fault:
            print(fault)

        await server.detach(lights)
        print(registry.names, [orphan.id for orphan in registry.orphaned])
        await server.attach(DynamicToolset(Lights(), name="lights").prefixed("lights"))
        print(registry.names)


if __name__ == "__main__":
    anyio.run(main)
