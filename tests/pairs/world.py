"""`World`: a server with some features, its clients, and one way to pay by it, whatever is between.

Every feature has a part in `features.py`. `World.pay` goes the way that the features ask for: it resolves a
grant, runs code, polls a task, answers a question, has an approval granted, reads a long result.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import count, cycle
from pathlib import Path
from typing import Any

import anyio
import httpx2
from mcp import Client, MCPError
from mcp.client.extension import advertise
from mcp.client.streamable_http import streamable_http_client
from mcp_types import ElicitResult, ResourceLink
from tests.pairs import desk
from tests.support.asking import text_of
from tests.support.served import listening
from tests.support.warm import Warm

from mcp_toolset import HookSet, RemoteToolset, Rules, Toolset, ToolsetServer, load_toolset
from mcp_toolset.auth import StaticTokens
from mcp_toolset.config import load_config
from mcp_toolset.journal import JournalGuard
from mcp_toolset.policy import Approvals
from mcp_toolset.shared import SharedState

ONCE = "allow once"
REPLAY_META_KEY = "mcp-toolset/replay-key"

TOKEN = "t0ken-of-ann-0123456789"


class World:
    """What two features have made of a server."""

    def __init__(self, folder: Path, era: str, warm: Warm, store: str) -> None:
        self.folder, self.era, self.warm, self.store = folder, era, warm, store
        self.options: dict[str, Any] = {"approvals": False, "keep": False, "code": None}
        self.tool: dict[str, Any] = {}
        self.entry: dict[str, Any] = {}
        self.policy: dict[str, Any] = {}
        self.rules = Rules(hooks=HookSet())
        self.mounted = self.deferred = self.code = self.tasks = False
        self.nested = self.replicas = self.http = self.profiled = self.by_name = False
        self.approvals: Approvals | None = None
        self.servers: list[ToolsetServer] = []
        self.clients: list[Client] = []
        self.users: list[str] = []
        self.asked: list[str] = []
        self.approved = 0
        self.answer = "yes"
        self.amounts = count(1)

    # What happens at the end of all ways.

    @property
    def effects(self) -> list[tuple[int, str]]:
        """Amount and stamp of each payment."""
        paid = self.folder / "paid"
        return (
            [tuple(json.loads(line)[:2]) for line in paid.read_text().splitlines()] if paid.exists() else []
        )

    @property
    def name(self) -> str:
        return "desk_pay" if self.mounted else "pay"

    def other(self, name: str) -> str:
        return f"desk_{name}" if self.mounted else name

    # A server and its clients.

    @asynccontextmanager
    async def opened(self) -> AsyncGenerator[None]:
        """The server, and a client for each replica of it."""
        async with AsyncExitStack() as stack:
            stack.enter_context(anyio.fail_after(60))
            upstream = await stack.enter_async_context(self._upstream()) if self.http else ""
            self.servers = [self._server(upstream) for _ in range(2 if self.replicas else 1)]
            own: dict[str, Any] = {"profiles": {"all": {}}} if self.profiled else {}
            outer = [
                ToolsetServer(RemoteToolset(each, name="inner"), keep=False, **own) if self.nested else each
                for each in self.servers
            ]
            self.clients = [await stack.enter_async_context(self._client(each)) for each in outer]
            self._turns = cycle(self.clients)
            yield

    def _server(self, upstream: str) -> ToolsetServer:
        options = {name: value for name, value in self.options.items() if value is not None}
        if self.replicas:
            options["shared"] = SharedState(self.store)
            options |= {"journal": True} if "journal" in options else {}
        elif "journal" in options and self.tool.get("safe"):
            # Tools that only read are recorded if the program says so.
            options["journal"] = JournalGuard(options["journal"], {"*": "once"})
        if self.http:
            options["auth"] = [StaticTokens({"ann": TOKEN})]
        if self.profiled:
            options["profiles"] = {"all": {}}
        toolset: Toolset = desk.made(self.folder, **self.tool).toolset
        options["capabilities"] = ["ask"]
        if self.mounted:
            self.write(upstream)
            toolset, _ = load_toolset(load_config(self.config)), options.pop("capabilities")
        if self.deferred:
            toolset = toolset.deferred(code=self.code)
        return ToolsetServer(toolset, name="bridge", rules=self.rules, **options)

    @property
    def config(self) -> Path:
        return self.folder / "mcp.json"

    def write(self, upstream: str = "", **more: Any) -> None:
        """The configuration of the mounted server."""
        script, *rest = self.warm.command(desk.__file__, str(self.folder), json.dumps(self.tool))
        entry = {"url": upstream} if upstream else {"command": script, "args": rest}
        draft = self.folder / "draft"
        draft.write_text(json.dumps({"mcpServers": {"desk": {**entry, **self.entry}, **more}}))
        draft.replace(self.config)

    @asynccontextmanager
    async def _upstream(self) -> AsyncGenerator[str]:
        """The mounted server over HTTP, which notes for whom it is called."""
        app = desk.made(self.folder, **self.tool).http_app()

        async def noting(scope: Any, receive: Any, send: Any) -> None:
            async def heard() -> Any:
                message = await receive()
                if b'"tools/call"' in message.get("body", b""):
                    self.users.append(dict(scope["headers"]).get(b"x-user", b"").decode())
                return message

            await app(scope, heard, send)

        noting.state = app.state  # type: ignore[attr-defined]
        async with listening(noting) as url:
            yield f"{url}/mcp"

    @asynccontextmanager
    async def _client(self, server: ToolsetServer) -> AsyncGenerator[Client]:
        mode: Any = "legacy" if self.era == "legacy" else "auto"
        asking: Any = {"elicitation_callback": self._asked} if self.tool.get("asks") else {}
        if self.tool.get("extends"):
            asking["extensions"] = [advertise(desk.RECEIPTS)]
        async with AsyncExitStack() as stack:
            target: Any = server.lowlevel
            if self.http:
                url = await stack.enter_async_context(listening(server.http_app()))
                headers = {"Authorization": f"Bearer {TOKEN}"}
                http = await stack.enter_async_context(httpx2.AsyncClient(headers=headers, timeout=60))
                below = "/p/all" if self.profiled else ""
                target = streamable_http_client(f"{url}{below}/mcp", http_client=http)
            else:
                await stack.enter_async_context(server)
            if self.mounted:
                await server.settled()
            if self.profiled and not self.http:
                target = (await server.extensions["profiles"].view("all", None)).lowlevel
            yield await stack.enter_async_context(Client(target, mode=mode, cache=None, **asking))

    async def _asked(self, context: Any, params: Any) -> ElicitResult:
        self.asked.append(params.message)
        if (
            params.message.startswith("mcp-toolset needs your approval")
            and "Allow the call" in params.message
        ):
            self.approved += 1
            return ElicitResult(action="accept", content={"decision": ONCE})
        if self.answer != "yes":
            return ElicitResult(action="decline")
        return ElicitResult(action="accept", content={"answer": "yes"})

    # Ways of a call.

    async def pay(self, amount: int | None = None, key: str = "", *, approves: bool = True) -> str:
        """Pay, by the next client, and say what that came to; "unapproved" waits for an approval."""
        client, amount = next(self._turns), next(self.amounts) if amount is None else amount
        told = await self.call(client, "pay", {"amount": amount}, key)
        if approves and self.approvals is not None and "needs an approval" in told:
            for waits in self.approvals.waiting():
                self.approvals.decide(waits.id, "granted")
            self.approved += 1
            told = await self.call(client, "pay", {"amount": amount}, key)
        return told

    async def call(self, client: Client, name: str, arguments: dict[str, Any], key: str = "") -> str:
        """The text of a result or an error, by the way that the features ask for."""
        meta: Any = {REPLAY_META_KEY: key} if key else None
        name = self.other(name)

        async def plain() -> tuple[str, dict[str, Any]]:
            return name, arguments

        async def granted() -> tuple[str, dict[str, Any]]:
            return "call_tool", {"grant": await self.grant(client, name), "arguments": arguments}

        async def coded() -> tuple[str, dict[str, Any]]:
            given = ", ".join(f"{one}={value!r}" for one, value in arguments.items())
            return "run_code", {"code": f"await {name}({given})", "grants": [await self.grant(client, name)]}

        way: Callable[[], Awaitable[tuple[str, dict[str, Any]]]]
        way = coded if self.code else granted if self.deferred else plain
        # An outer bridge that is listed all tools has no search.
        if self.by_name or (self.nested and "surface" in self.options):
            way = plain
        try:
            result = await client.call_tool(*await way(), meta=meta)
            return await self._whole(client, result)
        except MCPError as fault:
            return f"error {fault.error.code}: {fault.error.message}"

    async def grant(self, client: Client, name: str) -> str:
        """A grant for a tool."""
        found = await client.call_tool("resolve_tools", {"ids": [name]})
        tools = (found.structured_content or {}).get("tools") or []
        return tools[0].get("grant", "cap_none") if tools else "cap_none"

    async def _whole(self, client: Client, result: Any) -> str:
        """The text of a result, with what was left out of it."""
        if found := re.search(r"task_id: (\S+)", text_of(result)):
            working = True
            while working:
                result = await client.call_tool("get_task", {"task_id": found[1]})
                working = text_of(result).startswith("The task is working")
        links = [block for block in result.content if isinstance(block, ResourceLink)]
        self.linked = bool(links)
        whole = [(await client.read_resource(link.uri)).contents[0] for link in links]
        return "".join(getattr(one, "text", "") for one in whole) or text_of(result)
