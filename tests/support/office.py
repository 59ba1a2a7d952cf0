"""A server of this process with tools, a prompt, a resource, a template and instructions."""

from __future__ import annotations

from typing import Any

import mcp_types as types
from mcp import MCPError
from mcp.server.lowlevel import Server

from mcp_toolset import RemoteToolset, Toolset


class Office:
    """A server named `name` whose tools are `name`-free words; everything else has the name in it."""

    def __init__(self, name: str, *tools: str, hints: dict[str, Any] | None = None) -> None:
        self.name = name
        self.names = list(tools)
        self.hints = hints
        self.called: list[str] = []
        self.server: Server[Any] = Server(
            name,
            version="1",
            instructions=f"Use {name} for the {name} work.",
            on_list_tools=self._tools,
            on_call_tool=self._call,
            on_list_resources=self._resources,
            on_read_resource=self._read,
            on_list_resource_templates=self._templates,
            on_list_prompts=self._prompts,
            on_get_prompt=self._prompt,
            on_completion=self._complete,
        )

    def mounted(self, **options: Any) -> Toolset:
        return RemoteToolset(self.server, name=self.name, **options).prefixed(self.name)

    async def _tools(self, ctx: Any, params: Any) -> types.ListToolsResult:
        hints = types.ToolAnnotations.model_validate(self.hints or {})
        made = [
            types.Tool(
                name=name, description=f"To {name}.", input_schema={"type": "object"}, annotations=hints
            )
            for name in self.names
        ]
        return types.ListToolsResult(tools=made)

    async def _call(self, ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        self.called.append(params.name)
        return types.CallToolResult(content=[types.TextContent(type="text", text=params.name)])

    async def _resources(self, ctx: Any, params: Any) -> types.ListResourcesResult:
        found = types.Resource(uri=f"{self.name}://text", name=f"{self.name} text")
        return types.ListResourcesResult(resources=[found])

    async def _read(self, ctx: Any, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        if not str(params.uri).startswith(self.name):
            raise MCPError(types.INVALID_PARAMS, "no such text", {"uri": params.uri})
        text = types.TextResourceContents(uri=params.uri, text=f"{self.name} has it")
        return types.ReadResourceResult(contents=[text])

    async def _templates(self, ctx: Any, params: Any) -> types.ListResourceTemplatesResult:
        found = types.ResourceTemplate(uri_template=f"{self.name}://{{id}}", name=f"{self.name} by id")
        return types.ListResourceTemplatesResult(resource_templates=[found])

    async def _prompts(self, ctx: Any, params: Any) -> types.ListPromptsResult:
        return types.ListPromptsResult(prompts=[types.Prompt(name=f"{self.name}_plan")])

    async def _prompt(self, ctx: Any, params: Any) -> types.GetPromptResult:
        content = types.TextContent(type="text", text=f"Plan the {self.name}.")
        return types.GetPromptResult(messages=[types.PromptMessage(role="user", content=content)])

    async def _complete(self, ctx: Any, params: Any) -> types.CompleteResult:
        return types.CompleteResult(completion=types.Completion(values=[f"{self.name}-1"]))
