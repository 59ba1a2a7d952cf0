"""A server made with the SDK alone that has all that can be listed, read and reported, in both eras.

`run` takes the same command line as `asker.py`.
"""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any

import anyio
import mcp_types as types
from mcp.server.caching import CacheHint
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ToolsListChanged,
)
from mcp.shared.exceptions import MCPError
from mcp_types import CLIENT_CAPABILITIES_META_KEY
from tests.interaction import asker

PIXEL = asker.PIXEL
ICON = types.Icon(src="https://example.com/icon.png", mime_type="image/png", sizes=["48x48"])
HINT = CacheHint(ttl_ms=60_000, scope="public")
PAGE = 2
"""Entries on a page, so that each list has several."""

NUMBERS = {"type": "array", "items": {"type": "integer"}}
TAGGED: dict[str, Any] = {"type": "object", "properties": {"tag": {"type": "string"}}}


def tool(name: str, **more: Any) -> types.Tool:
    return types.Tool(name=name, description=f"The tool {name}.", input_schema=TAGGED, **more)


TOOLS = [
    tool(
        "described",
        title="A described tool",
        icons=[ICON],
        annotations=types.ToolAnnotations(read_only_hint=True, title="Read only"),
        _meta={"example.com/kind": "sample"},
    ),
    tool("numbers", output_schema=NUMBERS),
    *map(tool, ["blocks", "refuse", "steps", "wait", "seen", "note", "meta", "grow", "touch"]),
]


def described_resource(name: str) -> types.Resource:
    return types.Resource(
        name=name,
        title=f"The resource {name}",
        uri=f"lib://{name}",
        description="A text.",
        mime_type="text/plain",
        size=7,
        icons=[ICON],
        annotations=types.Annotations(audience=["user"], priority=0.5, last_modified="2026-01-02T03:04:05Z"),
        _meta={"example.com/kind": "text"},
    )


class Library:
    """The shelves, and who is told of changes."""

    def __init__(self) -> None:
        self.tools, self.calls = list(TOOLS), dict[str, int]()
        self.resources = [described_resource(name) for name in ("one", "two", "three")]
        self.prompts = [
            types.Prompt(name=name, title=f"The prompt {name}", description="A prompt.", icons=[ICON])
            for name in ("plain", "second")
        ]
        self.prompts.append(
            types.Prompt(name="filled", arguments=[types.PromptArgument(name="word", required=True)])
        )
        self.bus = InMemorySubscriptionBus()
        self.watched: set[str] = set()

    def page(
        self, entries: list[Any], params: types.PaginatedRequestParams | None
    ) -> tuple[list[Any], str | None]:
        start = int(params.cursor) if params is not None and params.cursor else 0
        following = start + PAGE
        return entries[start:following], str(following) if following < len(entries) else None

    async def list_tools(self, ctx: Any, params: Any) -> types.ListToolsResult:
        page, cursor = self.page([_in_era(tool, ctx) for tool in self.tools], params)
        return types.ListToolsResult(tools=page, next_cursor=cursor)

    async def list_resources(self, ctx: Any, params: Any) -> types.ListResourcesResult:
        page, cursor = self.page(self.resources, params)
        return types.ListResourcesResult(resources=page, next_cursor=cursor)

    async def list_templates(self, ctx: Any, params: Any) -> types.ListResourceTemplatesResult:
        template = types.ResourceTemplate(
            name="shelf",
            title="A shelf",
            uri_template="lib://shelf/{number}",
            mime_type="text/plain",
            icons=[ICON],
        )
        return types.ListResourceTemplatesResult(resource_templates=[template])

    async def list_prompts(self, ctx: Any, params: Any) -> types.ListPromptsResult:
        page, cursor = self.page(self.prompts, params)
        return types.ListPromptsResult(prompts=page, next_cursor=cursor)

    async def read(self, ctx: Any, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        name = params.uri.removeprefix("lib://")
        if name == "two":
            contents: Any = types.BlobResourceContents(uri=params.uri, mime_type="image/png", blob=PIXEL)
        elif name in ("one", "three", "four") or name.startswith("shelf/"):
            contents = types.TextResourceContents(
                uri=params.uri, mime_type="text/plain", text=f"about {name}"
            )
        elif params.uri == SKILL:
            contents = types.TextResourceContents(uri=SKILL, mime_type="text/markdown", text=LENDING)
        else:
            raise MCPError(types.INVALID_PARAMS, "no such resource", {"uri": params.uri})
        return types.ReadResourceResult(contents=[contents])

    async def prompt(self, ctx: Any, params: types.GetPromptRequestParams) -> types.GetPromptResult:
        word = (params.arguments or {}).get("word", "nothing")
        embedded = types.TextResourceContents(uri="lib://one", mime_type="text/plain", text="about one")
        blocks: list[Any] = [
            types.TextContent(type="text", text=f"{params.name} about {word}"),
            types.ImageContent(type="image", data=PIXEL, mime_type="image/png"),
            types.EmbeddedResource(type="resource", resource=embedded),
        ]
        messages = [types.PromptMessage(role="user", content=block) for block in blocks]
        return types.GetPromptResult(description="Filled in.", messages=messages)

    async def complete(self, ctx: Any, params: types.CompleteRequestParams) -> types.CompleteResult:
        about = params.ref.name if isinstance(params.ref, types.PromptReference) else params.ref.uri
        settled = (params.context.arguments if params.context else None) or {}
        values = [f"{about}:{params.argument.name}:{params.argument.value}", *settled.values()]
        return types.CompleteResult(completion=types.Completion(values=values, total=9, has_more=True))

    async def call(self, ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        self.calls[params.name] = self.calls.get(params.name, 0) + 1
        tag = (params.arguments or {}).get("tag", "")
        return await getattr(self, f"run_{params.name}", self.run_any)(ctx, tag)

    async def run_any(self, ctx: Any, tag: str) -> types.CallToolResult:
        return asker.text("ran")

    async def run_numbers(self, ctx: Any, tag: str) -> types.CallToolResult:
        shown = types.TextContent(type="text", text="[1, 2]")
        return types.CallToolResult(content=[shown], structured_content=[1, 2] if _is_modern(ctx) else None)

    async def run_blocks(self, ctx: Any, tag: str) -> types.CallToolResult:
        blob = types.BlobResourceContents(uri="lib://two", mime_type="image/png", blob=PIXEL)
        seen = types.Annotations(audience=["assistant"], priority=1.0)
        blocks: list[Any] = [
            types.TextContent(type="text", text="text", annotations=seen),
            types.ImageContent(type="image", data=PIXEL, mime_type="image/png"),
            types.AudioContent(type="audio", data="UklGRg==", mime_type="audio/wav"),
            types.ResourceLink(type="resource_link", name="one", uri="lib://one", mime_type="text/plain"),
            types.EmbeddedResource(type="resource", resource=blob),
        ]
        return types.CallToolResult(content=blocks, _meta={"example.com/cost": 3})

    async def run_refuse(self, ctx: Any, tag: str) -> types.CallToolResult:
        raise MCPError(code=-31999, message="refused", data={"why": ["test"]})

    async def run_steps(self, ctx: Any, tag: str) -> types.CallToolResult:
        for step in range(3):
            await ctx.session.report_progress(step + 1, 3, tag)
        return asker.text("done")

    async def run_note(self, ctx: Any, tag: str) -> types.CallToolResult:
        for level in ("debug", "warning"):
            params = types.LoggingMessageNotificationParams(
                level=level, data=f"{tag} {level}", logger="library"
            )
            note = types.LoggingMessageNotification(params=params)
            await ctx.session.send_notification(note, related_request_id=ctx.request_id)
        return asker.text("noted")

    async def run_meta(self, ctx: Any, tag: str) -> types.CallToolResult:
        return asker.text(dict(ctx.meta or {}))

    async def run_wait(self, ctx: Any, tag: str) -> types.CallToolResult:
        try:
            await anyio.sleep_forever()
        finally:
            self.calls[f"cancelled {tag}"] = 1
        raise AssertionError("unreachable")

    async def run_seen(self, ctx: Any, tag: str) -> types.CallToolResult:
        return asker.text(json.dumps(self.calls))

    async def run_grow(self, ctx: Any, tag: str) -> types.CallToolResult:
        self.tools.append(tool(f"grown{tag}"))
        self.resources.append(described_resource(f"grown{tag}"))
        self.prompts.append(types.Prompt(name=f"grown{tag}", description="New."))
        await ctx.session.send_tool_list_changed()
        await ctx.session.send_resource_list_changed()
        await ctx.session.send_prompt_list_changed()
        for event in (ToolsListChanged(), ResourcesListChanged(), PromptsListChanged()):
            await self.bus.publish(event)
        return asker.text("grown")

    async def run_touch(self, ctx: Any, tag: str) -> types.CallToolResult:
        if "lib://three" in self.watched:
            await ctx.session.send_resource_updated("lib://three")
        await self.bus.publish(ResourceUpdated(uri="lib://three"))
        return asker.text("touched")

    async def subscribe(self, ctx: Any, params: types.SubscribeRequestParams) -> types.EmptyResult:
        self.watched.add(params.uri)
        return types.EmptyResult()

    async def unsubscribe(self, ctx: Any, params: types.UnsubscribeRequestParams) -> types.EmptyResult:
        self.watched.discard(params.uri)
        return types.EmptyResult()


def _is_modern(ctx: Any) -> bool:
    return ctx.protocol_version >= asker.MODERN


def _in_era(tool: types.Tool, ctx: Any) -> types.Tool:
    """Legacy revisions have no output schema but that of an object."""
    return tool if _is_modern(ctx) else tool.model_copy(update={"output_schema": None})


class LibraryServer(Server[Any]):
    """Declares that its lists change, whatever application runs it."""

    def create_initialization_options(
        self, notification_options: Any = None, *more: Any, **named: Any
    ) -> Any:
        changing = NotificationOptions(prompts_changed=True, resources_changed=True, tools_changed=True)
        options = super().create_initialization_options(changing, *more, **named)
        # Of the SDK's servers, those up to 2025-11-25 have no `extensions`.
        options.capabilities.experimental = self.extensions
        return options


SHELVES = "com.example/shelves"
"""An extension that the bridge does not know."""

SKILLS = "io.modelcontextprotocol/skills"
SKILL = "skill://lending/SKILL.md"
LENDING = "---\nname: lending\ndescription: Use it to lend a book.\n---\nAsk for the card.\n"


async def _count(ctx: Any, params: types.RequestParams) -> dict[str, Any]:
    """What is declared to the server, and what came in `_meta`."""
    able: Any = ctx.session.client_params.capabilities if not _is_modern(ctx) else None
    meta: Any = params.meta or {}
    said = able.model_dump(by_alias=True, exclude_none=True) if able else meta[CLIENT_CAPABILITIES_META_KEY]
    return {"declared": said, "_meta": {"example.com/shelves": 7}}


def _entry() -> dict[str, Any]:
    content = LENDING.encode()
    file = {"uri": SKILL, "digest": f"sha256:{sha256(content).hexdigest()}", "size": len(content)}
    said = {"name": "lending", "description": "Use it to lend a book."}
    return {"uri": SKILL, "frontmatter": said, "resources": [file]}


async def _skills(ctx: Any, params: types.PaginatedRequestParams) -> dict[str, Any]:
    return {"skills": [_entry()], **({"ttlMs": 1000, "cacheScope": "public"} if _is_modern(ctx) else {})}


async def _skill(ctx: Any, params: types.ReadResourceRequestParams) -> dict[str, Any]:
    return {"skill": _entry(), **({"ttlMs": 1000, "cacheScope": "public"} if _is_modern(ctx) else {})}


async def _level(ctx: Any, params: types.SetLevelRequestParams) -> types.EmptyResult:
    return types.EmptyResult()


def make() -> Server[Any]:
    library = Library()
    server = LibraryServer(
        "library",
        version="1",
        title="The library",
        website_url="https://library.example",
        icons=[ICON],
        instructions="Read quietly.",
        cache_hints={
            "resources/read": HINT,
            "resources/list": HINT,
            "prompts/list": HINT,
            "tools/list": HINT,
        },
        on_list_tools=library.list_tools,
        on_call_tool=library.call,
        on_list_resources=library.list_resources,
        on_list_resource_templates=library.list_templates,
        on_read_resource=library.read,
        on_subscribe_resource=library.subscribe,
        on_unsubscribe_resource=library.unsubscribe,
        on_list_prompts=library.list_prompts,
        on_get_prompt=library.prompt,
        on_completion=library.complete,
        on_subscriptions_listen=ListenHandler(library.bus),
    )
    server.add_request_handler("logging/setLevel", types.SetLevelRequestParams, _level)
    server.extensions = {SHELVES: {"most": 9}, SKILLS: {}}
    server.add_request_handler(f"{SHELVES}/count", types.RequestParams, _count)
    server.add_request_handler("skills/list", types.PaginatedRequestParams, _skills)
    server.add_request_handler("skills/get", types.ReadResourceRequestParams, _skill)
    return server


def run() -> None:
    """Serve on every transport."""
    asker.main(make)
