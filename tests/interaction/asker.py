"""A server made with the SDK alone that asks its client for everything a server can ask for.

    python asker.py stdio legacy|modern
    python asker.py http            prints its port; serves /legacy and /modern, each with mcp and sse

The legacy one knows nothing of 2026-07-28 and refuses it, as servers of its time do.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import anyio
import mcp_types as types
import uvicorn
from mcp import MCPError
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.runner import serve_loop
from mcp.server.sse import SseServerTransport
from mcp.shared.message import ServerMessageMetadata
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.types import ASGIApp, Receive, Scope, Send
from tests.interaction import lines

MODERN = "2026-07-28"
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
FORM: dict[str, Any] = {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]}
LOOK_UP = types.Tool(name="look_up", description="Look something up.", input_schema={"type": "object"})
RESULTS: dict[str, type[types.Result]] = {
    "elicitation/create": types.ElicitResult,
    "sampling/createMessage": types.CreateMessageResultWithTools,
    "roots/list": types.ListRootsResult,
}
Asked = dict[str, types.ElicitRequest | types.CreateMessageRequest | types.ListRootsRequest]
Answers = dict[str, Any]
Made = Callable[[], Server[Any]]


def text(value: object) -> types.CallToolResult:
    shown = value if isinstance(value, str) else json.dumps(value, sort_keys=True)
    return types.CallToolResult(content=[types.TextContent(type="text", text=shown)])


def form(tag: str) -> types.ElicitRequest:
    return types.ElicitRequest(params=types.ElicitRequestFormParams(message=tag, requested_schema=FORM))


def page(tag: str, modern: bool) -> types.ElicitRequest:
    name = None if modern else f"page-{tag}"
    address = f"https://example.com/{tag}"
    params = types.ElicitRequestURLParams(message=tag, url=address, elicitation_id=name)
    return types.ElicitRequest(params=params)


def sample(tag: str) -> types.CreateMessageRequest:
    content = [
        types.TextContent(type="text", text=tag),
        types.ImageContent(type="image", data=PIXEL, mime_type="image/png"),
    ]
    return types.CreateMessageRequest(
        params=types.CreateMessageRequestParams(
            messages=[types.SamplingMessage(role="user", content=content)],
            max_tokens=7,
            system_prompt="Be brief.",
            stop_sequences=["."],
            tools=[LOOK_UP],
            tool_choice=types.ToolChoice(mode="required"),
        )
    )


def plain_sample(tag: str) -> types.CreateMessageRequest:
    said = types.SamplingMessage(role="user", content=types.TextContent(type="text", text=tag))
    return types.CreateMessageRequest(
        params=types.CreateMessageRequestParams(messages=[said], max_tokens=7, system_prompt="Be brief.")
    )


class Asker:
    """The tools, in both eras."""

    def __init__(self) -> None:
        self.seen: Counter[str] = Counter()
        self.level = ""
        self.gates: dict[str, Any] = {}
        self.opened: set[str] = set()

    async def list(self, ctx: Any, params: Any) -> types.ListToolsResult:
        names = sorted(name.removeprefix("run_") for name in dir(self) if name.startswith("run_"))
        declared = ctx.session.client_capabilities
        if declared is None or declared.sampling is None:
            names.remove("lent")
        return types.ListToolsResult(
            tools=[types.Tool(name=name, input_schema={"type": "object"}) for name in names]
        )

    async def call(self, ctx: Any, params: types.CallToolRequestParams) -> Any:
        self.seen[params.name] += 1
        tag = str((params.arguments or {}).get("tag", ""))
        return await getattr(self, f"run_{params.name}")(ctx, params, tag)

    async def run_ask(self, ctx: Any, params: Any, tag: str) -> Any:
        return await self.asked(ctx, params, {"word": form(tag)}, lambda got: got["word"]["content"]["word"])

    async def run_write(self, ctx: Any, params: Any, tag: str) -> Any:
        """Have a model write."""
        return await self.asked(
            ctx, params, {"text": plain_sample(tag)}, lambda got: got["text"]["content"]["text"]
        )

    async def run_write_and_ask(self, ctx: Any, params: Any, tag: str) -> Any:
        """Have a model write, and ask its user at the same time."""
        requests: Asked = {"text": plain_sample(tag), "word": form(tag)}
        return await self.asked(
            ctx,
            params,
            requests,
            lambda got: f"{got['text']['content']['text']} {got['word']['content']['word']}",
        )

    async def prompts(self, ctx: Any, params: Any) -> types.ListPromptsResult:
        tag = types.PromptArgument(name="tag")
        return types.ListPromptsResult(prompts=[types.Prompt(name="ask", arguments=[tag])])

    async def prompt(self, ctx: Any, params: types.GetPromptRequestParams) -> Any:
        asked = await self.run_ask(ctx, params, (params.arguments or {}).get("tag", ""))
        if isinstance(asked, types.InputRequiredResult):
            return asked
        return types.GetPromptResult(messages=[types.PromptMessage(role="user", content=asked.content[0])])

    async def resources(self, ctx: Any, params: Any) -> types.ListResourcesResult:
        return types.ListResourcesResult(resources=[types.Resource(uri="ask://word", name="word")])

    async def read(self, ctx: Any, params: types.ReadResourceRequestParams) -> Any:
        asked = await self.run_ask(ctx, params, params.uri)
        if isinstance(asked, types.InputRequiredResult):
            return asked
        said = types.TextResourceContents(uri=params.uri, text=asked.content[0].text)
        return types.ReadResourceResult(contents=[said])

    async def run_page(self, ctx: Any, params: Any, tag: str) -> Any:
        modern = ctx.protocol_version >= MODERN
        result = await self.asked(ctx, params, {"page": page(tag, modern)}, lambda got: got["page"]["action"])
        if not modern:
            await ctx.session.send_elicit_complete(f"page-{tag}", related_request_id=ctx.request_id)
        return result

    async def run_gate(self, ctx: Any, params: Any, tag: str) -> Any:
        """Let nobody in who has not opened a page before."""
        if ctx.protocol_version >= MODERN:
            return await self.asked(ctx, params, {"page": page(tag, True)}, lambda got: "in")
        if tag in self.opened:
            return text("in")
        self.gates[tag] = ctx.session
        shown = dumped(page(tag, False).params)
        raise MCPError(types.URL_ELICITATION_REQUIRED, "a page first", {"elicitations": [shown]})

    async def run_unlock(self, ctx: Any, params: Any, tag: str) -> Any:
        """What the page does when it is done with."""
        self.opened.add(tag)
        await self.gates[tag].send_elicit_complete(f"page-{tag}")
        return text("unlocked")

    async def run_lent(self, ctx: Any, params: Any, tag: str) -> Any:
        """Listed only for clients that lend their model."""
        return await self.run_sample(ctx, params, tag)

    async def run_sample(self, ctx: Any, params: Any, tag: str) -> Any:
        return await self.asked(ctx, params, {"said": sample(tag)}, lambda got: got["said"])

    async def run_roots(self, ctx: Any, params: Any, tag: str) -> Any:
        request = types.ListRootsRequest()
        return await self.asked(ctx, params, {"roots": request}, lambda got: got["roots"]["roots"][0]["uri"])

    async def run_both(self, ctx: Any, params: Any, tag: str) -> Any:
        requests: Asked = {"word": form(tag), "said": sample(tag)}
        return await self.asked(
            ctx, params, requests, lambda got: [got["word"]["content"]["word"], got["said"]["stopReason"]]
        )

    async def run_twice(self, ctx: Any, params: Any, tag: str) -> Any:
        if ctx.protocol_version < MODERN:
            words = [(await self.sent(ctx, form(f"{tag}{n}")))["content"]["word"] for n in (1, 2)]
            return text(words)
        words = json.loads(params.request_state or "[]")
        if params.input_responses:
            words.append(params.input_responses["word"].content["word"])
        if len(words) == 2:
            return text(words)
        asked: Asked = {"word": form(f"{tag}{len(words) + 1}")}
        return types.InputRequiredResult(input_requests=asked, request_state=json.dumps(words))

    async def run_wait(self, ctx: Any, params: Any, tag: str) -> Any:
        await ctx.session.report_progress(1, 2, tag)
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            self.seen["cancelled"] += 1
            raise

    async def run_withdraw(self, ctx: Any, params: Any, tag: str) -> Any:
        """Ask, and take the question back when the user has seen it, told by another call."""
        if ctx.protocol_version >= MODERN:
            return text("withdrawn")
        self.withdrawing = anyio.Event()
        async with anyio.create_task_group() as group:

            async def ask() -> None:
                await self.sent(ctx, form(tag))

            group.start_soon(ask)
            await self.withdrawing.wait()
            group.cancel_scope.cancel()
        return text("withdrawn")

    async def run_now(self, ctx: Any, params: Any, tag: str) -> Any:
        if hasattr(self, "withdrawing"):
            self.withdrawing.set()
        return text("now")

    async def run_log(self, ctx: Any, params: Any, tag: str) -> Any:
        for level in ("debug", "warning"):
            note = types.LoggingMessageNotification(
                params=types.LoggingMessageNotificationParams(level=level, data=f"{tag} {level}")
            )
            if ctx.protocol_version < MODERN or wants(ctx.meta, level):
                await ctx.session.send_notification(note, related_request_id=ctx.request_id)
        return text(self.level)

    async def run_who(self, ctx: Any, params: Any, tag: str) -> Any:
        declared = ctx.session.client_capabilities
        return text(declared.model_dump(by_alias=True, exclude_none=True) if declared else {})

    async def run_meta(self, ctx: Any, params: Any, tag: str) -> Any:
        return text({key: value for key, value in dict(ctx.meta or {}).items() if isinstance(value, str)})

    async def run_seen(self, ctx: Any, params: Any, tag: str) -> Any:
        return text(self.seen)

    async def asked(
        self, ctx: Any, params: Any, requests: Asked, shown: Callable[[Answers], object]
    ) -> types.CallToolResult | types.InputRequiredResult:
        if ctx.protocol_version < MODERN:
            return text(shown(await self.all_sent(ctx, requests)))
        if not params.input_responses:
            return types.InputRequiredResult(input_requests=requests, request_state="mine")
        assert params.request_state == "mine"
        return text(shown({key: dumped(each) for key, each in params.input_responses.items()}))

    async def all_sent(self, ctx: Any, requests: Asked) -> Answers:
        answers: Answers = {}
        if len(requests) == 1:
            return {key: await self.sent(ctx, request) for key, request in requests.items()}

        async def one(key: str) -> None:
            answers[key] = await self.sent(ctx, requests[key])

        async with anyio.create_task_group() as group:
            for key in requests:
                group.start_soon(one, key)
        return answers

    async def sent(self, ctx: Any, request: Any) -> dict[str, Any]:
        related = ServerMessageMetadata(related_request_id=ctx.request_id)
        answer = await ctx.session.send_request(request, RESULTS[request.method], metadata=related)
        return dumped(answer)

    async def set_level(self, ctx: Any, params: types.SetLevelRequestParams) -> types.EmptyResult:
        self.level = params.level
        return types.EmptyResult()

    async def roots_changed(self, ctx: Any, params: Any) -> None:
        self.seen["roots changed"] += 1


def wants(meta: Any, level: str) -> bool:
    levels = ("debug", "info", "notice", "warning")
    asked = (meta or {}).get("io.modelcontextprotocol/logLevel")
    return asked in levels and levels.index(level) >= levels.index(asked)


def dumped(model: Any) -> dict[str, Any]:
    return model.model_dump(by_alias=True, exclude_none=True, mode="json")


def make() -> Server[Any]:
    asker = Asker()
    server = Server[Any](
        "asker",
        version="1",
        on_list_tools=asker.list,
        on_call_tool=asker.call,
        on_list_prompts=asker.prompts,
        on_get_prompt=asker.prompt,
        on_list_resources=asker.resources,
        on_read_resource=asker.read,
    )
    server.add_request_handler("logging/setLevel", types.SetLevelRequestParams, asker.set_level)
    server.add_notification_handler(
        "notifications/roots/list_changed", types.NotificationParams, asker.roots_changed
    )
    return server


async def serve(server: Server[Any], read: Any, write: Any, *, legacy: bool) -> None:
    options = server.create_initialization_options(NotificationOptions(tools_changed=True))
    if not legacy:
        return await server.run(read, write, options)
    await serve_loop(server, read, write, lifespan_state={}, init_options=options)


class LegacyOnly:
    """Refuses what it does not know, as servers before 2026-07-28 do."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and Request(scope).headers.get("mcp-protocol-version") == MODERN:
            refusal = Response("Bad Request: Unsupported protocol version", status_code=400)
            return await refusal(scope, receive, send)
        await self.app(scope, receive, send)


def app_of(server: Server[Any], *, legacy: bool) -> Starlette:
    messages = SseServerTransport("/messages/")

    class Stream:
        async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
            async with messages.connect_sse(scope, receive, send) as (read, write):
                await serve(server, read, write, legacy=legacy)

    app = server.streamable_http_app(
        streamable_http_path="/mcp",
        custom_starlette_routes=[
            Route("/sse", endpoint=Stream(), methods=["GET"]),
            Mount("/messages/", app=messages.handle_post_message),  # pyright: ignore[reportArgumentType]
        ],
    )
    if legacy:
        app.add_middleware(LegacyOnly)
    return app


def http_app(made: Made) -> Starlette:
    apps = {era: app_of(made(), legacy=era == "legacy") for era in ("legacy", "modern")}

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncGenerator[None]:
        async with AsyncExitStack() as stack:
            for inner in apps.values():
                await stack.enter_async_context(inner.router.lifespan_context(inner))
            yield

    return Starlette(routes=[Mount(f"/{era}", app=app) for era, app in apps.items()], lifespan=lifespan)


async def on_ports(made: Made) -> None:
    """Serve HTTP and relays; prints the port of each."""

    async def relayed(era: str, read: Any, write: Any) -> None:
        await serve(made(), read, write, legacy=era == "legacy")

    http = uvicorn.Server(uvicorn.Config(http_app(made), log_level="error"))
    relays = await lines.listening(relayed)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        sys.stdout.write(f"{listening.getsockname()[1]} {lines.port_of(relays)}\n")
        sys.stdout.flush()
        await http.serve(sockets=[listening])


def main(made: Made = make) -> None:
    """Serve what `made` makes, on every transport."""
    asyncio.run(on_ports(made))


if __name__ == "__main__":
    main()
