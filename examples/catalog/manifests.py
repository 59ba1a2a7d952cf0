import anyio

from mcp_toolset import (
    DynamicToolset,
    ManifestProvider,
    ToolCall,
    ToolContext,
    ToolDefinition,
    ToolManifest,
    ToolResult,
    ToolsetServer,
)

SCHEMA = {"type": "object", "properties": {"month": {"type": "string"}}, "required": ["month"]}


class Reports(ManifestProvider):
    """A table of reports; the schema of one is a query of its own."""

    schema = SCHEMA

    async def list_manifests(self) -> list[ToolManifest]:
        return [
            ToolManifest("turnover", "Turnover of one month.", annotations={"readOnlyHint": True}),
            ToolManifest("returns", "Goods that customers sent back.", annotations={"readOnlyHint": True}),
        ]

    async def resolve(self, name: str) -> ToolDefinition:
        return ToolDefinition(name, f"The {name} of a month.", self.schema)

    async def execute(self, call: ToolCall, context: ToolContext) -> ToolResult:
        return ToolResult.of_text(f"{call.name} of {call.arguments['month']}: 1,200")


class Client(ToolContext):
    session = "one"


async def main() -> None:
    reports = Reports()
    async with ToolsetServer(DynamicToolset(reports, name="reports")) as server:

        async def ask(name: str, **arguments: object) -> ToolResult:
            return await server.call(ToolCall(name, arguments), Client())

        found = await ask("search_tools", query="what did customers send back")
        print(found.structured["hits"][0]["signature"])
        resolved = await ask("resolve_tools", ids=["returns"])
        tool = resolved.structured["tools"][0]
        print(tool["definition"]["inputSchema"]["properties"])
        call = {"grant": tool["grant"], "arguments": {"month": "May"}}
        print((await ask("call_read_only_tool", **call)).text)

        reports.schema = {**SCHEMA, "required": ["month", "year"]}
        print((await ask("call_read_only_tool", **call)).text)


if __name__ == "__main__":
    anyio.run(main)
