"""Deferred tools behind a whole server: every path, both eras, many sessions, owners, restarts."""

from __future__ import annotations

import json
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import httpx2
import mcp_types as types
import pytest
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.lowlevel import Server
from starlette.types import ASGIApp, Receive, Scope, Send
from tests.server.test_server import upstream
from tests.support.served import listening

from mcp_toolset import (
    HookSet,
    RemoteToolset,
    RunNormally,
    ToolBinding,
    ToolCall,
    ToolContext,
    ToolResult,
    Toolset,
    ToolsetServer,
    ToolView,
    tool,
)
from mcp_toolset.errors import DefinitionError, GrantError, GrantStoreError, UnknownToolError
from mcp_toolset.grants import AccessDenied, GrantLedger
from mcp_toolset.middleware import CallNext, tool_middleware
from mcp_toolset.upstream.mount_state import ServerInfo

pytestmark = pytest.mark.anyio


class Caller(ToolContext):
    """Somebody on a wire of the test's own."""

    def __init__(self, session: str | None = None, principal: str | None = None) -> None:
        self.session = session
        self.principal = principal


ANN, SESSION = Caller(principal="ann"), Caller(session="one")


class Upstream:
    """A server of this process that counts what reaches it and can be changed."""

    def __init__(self, *names: str, name: str = "up", hints: dict[str, Any] | None = None) -> None:
        self.reached: list[str] = []
        schema = {"type": "object", "properties": {"n": {"type": "integer", "x-mcp-header": "N"}}}
        self.tools = {
            each: types.Tool(
                name=each,
                description=f"The {each}.",
                input_schema=schema,
                annotations=types.ToolAnnotations.model_validate(hints or {}),
            )
            for each in names
        }
        self.server: Server[Any] = Server(name, on_list_tools=self.list, on_call_tool=self.call)

    async def list(self, ctx: Any, params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=list(self.tools.values()))

    async def call(self, ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        self.reached.append(params.name)
        shown = f"{params.name} {json.dumps(params.arguments)}"
        return types.CallToolResult(content=[types.TextContent(type="text", text=shown)])

    def mounted(self, name: str = "erp") -> Toolset:
        return RemoteToolset(self.server, name=name).deferred()


async def handle_for(server: ToolsetServer, context: ToolContext, name: str = "x") -> str:
    answer = await server.call_tool("resolve_tools", {"ids": [name]}, context=context)
    return answer.structured["tools"][0]["grant"]


async def use(server: ToolsetServer, handle: str, context: ToolContext) -> str:
    return (await server.call_tool("call_tool", {"grant": handle}, context=context)).text


# Every path


def gated(server: ToolsetServer) -> ToolBinding:
    return next(binding for binding in server.bindings() if binding.name == "x")


async def by_name(server: ToolsetServer) -> object:
    return await server.call_tool("x", context=SESSION)


async def by_call_tool(server: ToolsetServer) -> object:
    return await server.call_tool("call_tool", {"grant": "x"}, context=SESSION)


async def by_read_only_tool(server: ToolsetServer) -> object:
    return await server.call_tool("call_read_only_tool", {"grant": "x"}, context=SESSION)


async def by_call_with_a_made_up_grant(server: ToolsetServer) -> object:
    return await server.call(ToolCall("x", {}, grant="x.AAAAAAAAAAAAAAAA"), SESSION)


async def by_a_calling_tool_on_a_calling_tool(server: ToolsetServer) -> object:
    arguments = {"grant": "call_tool", "arguments": {"grant": "x"}}
    return await server.call_tool("call_tool", arguments, context=SESSION)


async def by_the_binding(server: ToolsetServer) -> object:
    return await gated(server).execute(ToolCall("x", {}), SESSION)


async def by_a_view_of_the_server(server: ToolsetServer) -> object:
    return await ToolView(server.bindings()).execute("x", {}, SESSION)


async def by_a_round(server: ToolsetServer) -> object:
    from mcp_toolset.rounds import ToolRound

    view = ToolView(server.bindings())
    calls = [ToolCall("x", {}, "1"), ToolCall("call_tool", {"grant": "x"}, "2")]
    plan = await ToolRound.from_calls(calls, view).apply(HookSet(), context=SESSION)
    return await plan.run_pending(context=SESSION)


async def by_the_toolset(server: ToolsetServer) -> object:
    return await server.toolset.execute("x", {}, SESSION)


PATHS: list[Callable[[ToolsetServer], Awaitable[object]]] = [
    by_name,
    by_call_tool,
    by_read_only_tool,
    by_call_with_a_made_up_grant,
    by_a_calling_tool_on_a_calling_tool,
    by_the_binding,
    by_a_view_of_the_server,
    by_a_round,
    by_the_toolset,
]


@pytest.mark.needs("model_loop")
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("local", [False, True])
async def test_x1_no_path_leads_to_a_deferred_tool_without_a_grant(
    path: Callable[[ToolsetServer], Awaitable[object]], local: bool
) -> None:
    up, ran = Upstream("x", hints={"readOnlyHint": True}), list[str]()

    @tool(read_only=True)
    async def x() -> str:
        """The x."""
        ran.append("x")
        return "x"

    mounted = Toolset(x).deferred() if local else up.mounted()
    async with ToolsetServer(Toolset(mounted)) as server:
        try:
            await path(server)
        except (UnknownToolError, GrantError):
            pass
        assert up.reached == [] and ran == []
        assert not (await server.call_as_host("x")).is_error
        assert [*up.reached, *ran] == ["x"]


@pytest.mark.needs("model_loop")
async def test_x1_with_a_grant_the_ways_of_a_caller_lead_there() -> None:
    up = Upstream("x", hints={"readOnlyHint": True})
    async with ToolsetServer(up.mounted()) as server:
        await handle_for(server, SESSION)
        for path in (by_name, by_call_tool, by_read_only_tool, by_the_binding, by_a_view_of_the_server):
            await path(server)
        await by_a_round(server)
    assert up.reached == ["x"] * 6


async def test_x1_a_manual_tool_needs_a_grant_before_it_waits_for_the_application() -> None:
    @tool(manual=True)
    def approve() -> bool:
        """Approve it."""
        raise AssertionError("never run")

    async with ToolsetServer(Toolset(approve).deferred()) as server:
        with pytest.raises(UnknownToolError):
            await server.call_tool("approve", context=SESSION)
        assert server.pending_calls == []
        handle = await handle_for(server, SESSION, "approve")
        async with anyio.create_task_group() as group:
            group.start_soon(use, server, handle, SESSION)
            with anyio.fail_after(30):
                server.submit_result((await server.next_pending()).id, True)


# Between the gate and the tool


async def nothing_more(server: ToolsetServer, up: Upstream) -> None:
    """The control: without a change the call goes through."""


async def revoke(server: ToolsetServer, up: Upstream) -> None:
    assert server.grants.revoke(source="erp") == 1


async def lapse(server: ToolsetServer, up: Upstream) -> None:
    server.now[0] += 3600  # type: ignore[attr-defined]


async def change(server: ToolsetServer, up: Upstream) -> None:
    """The upstream has listed another definition, and no new table has been made of it yet."""
    from mcp_toolset.catalog.snapshot import take_snapshot

    (source,) = server.toolset.sources()
    assert isinstance(source, RemoteToolset)
    other = {"name": "x", "description": "Now it deletes.", "inputSchema": {"type": "object"}}
    source.connection.tools.snapshot = take_snapshot([other])


@pytest.mark.parametrize("meanwhile", [nothing_more, revoke, lapse, change])
@pytest.mark.parametrize("where", ["middleware", "hook"])
async def test_x1_a_grant_must_still_be_good_when_the_tool_is_run(
    meanwhile: Callable[[ToolsetServer, Upstream], Awaitable[None]], where: str
) -> None:
    up, now, hooks = Upstream("x"), [1000.0], HookSet()

    @tool_middleware
    async def slow(call: ToolCall, context: ToolContext, next: CallNext) -> ToolResult:
        if call.name == "x" and where == "middleware":
            await meanwhile(server, up)
        return await next()

    @hooks.execution("x")
    async def asking(call: ToolCall, input: dict[str, Any]) -> RunNormally:
        if where == "hook":
            await meanwhile(server, up)
        return RunNormally(input)

    ledger = GrantLedger(clock=lambda: now[0])
    server = ToolsetServer(up.mounted(), middleware=[slow], hooks=hooks, grants=ledger)
    server.now = now  # type: ignore[attr-defined]
    async with server:
        handle = await handle_for(server, SESSION)
        said = await use(server, handle, SESSION)
        if meanwhile is nothing_more:
            assert up.reached == ["x"]
        else:
            assert up.reached == [] and "search for it and resolve it again" in said


async def test_x1_a_bearers_use_is_not_spent_by_a_call_that_never_ran() -> None:
    up = Upstream("x")
    ledger = GrantLedger(bearer_uses=1)
    async with ToolsetServer(up.mounted(), grants=ledger) as server:
        handle = await handle_for(server, Caller())
        wrong = {"grant": handle, "arguments": {"n": "no number"}}
        assert (await server.call_tool("call_tool", wrong, context=Caller())).is_error
        assert await use(server, handle, Caller()) == "x {}"
        assert "used up" in await use(server, handle, Caller())
    assert up.reached == ["x"]


# Which server


async def test_f35_another_server_under_the_name_voids_the_grants() -> None:
    ledger = GrantLedger()
    first, second = Upstream("x"), Upstream("x")
    async with ToolsetServer(first.mounted(), grants=ledger) as server:
        handle = await handle_for(server, ANN)
        assert await use(server, handle, ANN) == "x {}"
    async with ToolsetServer(second.mounted(), grants=ledger) as server:
        for reference in (handle, "x"):
            assert "another server than the one granted" in await use(server, reference, ANN)
        assert second.reached == []
        assert await use(server, await handle_for(server, ANN), ANN) == "x {}"


async def test_f35_a_tool_of_another_server_or_of_our_own_that_takes_the_name_is_not_granted() -> None:
    @tool
    async def x() -> str:
        """The x."""
        return "ours"

    ledger, up = GrantLedger(), Upstream("x")
    async with ToolsetServer(up.mounted(), grants=ledger) as server:
        handle = await handle_for(server, ANN)
    async with ToolsetServer(up.mounted("other"), grants=ledger) as server:
        assert "another server or tool" in await use(server, handle, ANN)
    async with ToolsetServer(Toolset(x).deferred(), grants=ledger) as server:
        assert "another server or tool" in await use(server, handle, ANN)
    mounted = RemoteToolset(up.server, name="erp").renamed({"x": "y"}).deferred()
    async with ToolsetServer(Toolset(x, mounted), grants=ledger) as server:
        assert "no longer in the catalog" in await use(server, handle, ANN)
    assert up.reached == []


async def test_f35_a_server_that_names_itself_otherwise_is_another_one() -> None:
    """A process replaced behind the same command or address: only what it says of itself tells."""
    mount = RemoteToolset(["never", "run"], name="erp")
    before = mount.connection.identity
    mount.connection._listing.main.server = ServerInfo("up", "1")
    named = mount.connection.identity
    mount.connection._listing.main.server = ServerInfo("up", "2")
    assert mount.connection.identity == named != before
    mount.connection._listing.main.server = ServerInfo("impostor", "1")
    assert mount.connection.identity not in (named, before)


def test_f35_an_address_is_told_from_others_and_shows_no_secret() -> None:
    def identity(target: Any, **options: Any) -> str:
        return RemoteToolset(target, name="a", **options).connection.link.identity

    same = identity(["run", "--token=hunter2"])
    assert same == identity(["run", "--token=hunter2"], env={"A": "b"}) and "hunter2" not in same
    others = [
        identity(["run"]),
        identity(["run", "--token=hunter3"]),
        identity(["run", "--token=hunter2"], cwd="/tmp"),
        identity("http://h/mcp"),
        identity("http://h/mcp?tenant=2"),
        identity("http://h/mcp", transport="sse"),
        identity(upstream("x")),
        identity(upstream("x")),
    ]
    assert len({same, *others}) == 9
    assert identity("http://h/mcp") == identity("http://h/mcp", headers={"Authorization": "Bearer new"})


# Restarts


async def test_f37_after_a_restart_principals_keep_their_grants_and_sessions_do_not(tmp_path: Path) -> None:
    @tool(id="stable")
    async def x() -> str:
        """The x."""
        return "ran"

    path, tools = tmp_path / "grants.db", Toolset(x).deferred()
    with GrantLedger(path) as ledger:
        async with ToolsetServer(tools, grants=ledger) as server:
            anns = await handle_for(server, ANN)
            async with Client(server.lowlevel, mode="legacy") as client:
                answer = await client.call_tool("resolve_tools", {"ids": ["x"]})
                assert answer.structured_content is not None
                sessions = answer.structured_content["tools"][0]["grant"]
    with GrantLedger(path) as ledger:
        async with ToolsetServer(tools, grants=ledger) as server:
            assert await use(server, anns, ANN) == "ran"
            async with Client(server.lowlevel, mode="legacy") as client:
                refused = await client.call_tool("call_tool", {"grant": sessions})
                assert refused.is_error and "no live grant" in str(refused.content)
                with pytest.raises(MCPError, match="Unknown tool: x"):
                    await client.call_tool("x", {})


async def test_f37_a_store_that_fails_is_no_way_in_and_tells_nobody_apart(tmp_path: Path) -> None:
    up = Upstream("x")
    async with ToolsetServer(up.mounted(), grants=tmp_path / "grants.db") as server:
        handle = await handle_for(server, ANN)
        server.grants.close()
        for name in ("x", "unknown"):
            with pytest.raises(
                UnknownToolError, match=f"^Unknown tool: {name}; find tools with search_tools\n"
            ):
                await server.call_tool(name, context=ANN)
        said = {await use(server, reference, ANN) for reference in (handle, "x", "unknown")}
        assert said == {"the grants cannot be looked up or kept now; try again later"}
        resolved = await server.call_tool("resolve_tools", {"ids": ["x"]}, context=ANN)
        assert resolved.is_error and str(tmp_path) not in resolved.text
        assert len(server.listed(Caller("one", "ann"))) == 4
        found = await server.call_tool("search_tools", {"query": "x"}, context=ANN)
        assert [hit["id"] for hit in found.structured["hits"]] == ["erp_x"]
        with pytest.raises(GrantStoreError):
            server.grants.revoke_all()
    assert up.reached == []


# Who may have it


async def test_x5_what_the_host_withholds_is_said_or_hidden_and_never_runs() -> None:
    up = Upstream("x", "y", "z", "w")
    kept = {
        "x": AccessDenied("unauthorised", "ask an administrator", retry_in=60),
        "y": AccessDenied("filtered", "switched off in this project"),
        "z": AccessDenied(shown=False),
    }
    barred = {"ann": kept}

    def access(binding: ToolBinding, context: ToolContext) -> AccessDenied | None:
        return barred.get(context.principal or "", {}).get(binding.name)

    async with ToolsetServer(up.mounted(), access=access) as server:
        found = await server.call_tool("search_tools", {"query": "the x y z w"}, context=ANN)
        said = ("state", "reason", "retry_in")
        hits = {hit["id"]: tuple(hit.get(key) for key in said) for hit in found.structured["hits"]}
        assert hits == {
            "erp_x": ("unauthorised", "ask an administrator", 60),
            "erp_y": ("filtered", "switched off in this project", None),
            "erp_w": (None, None, None),
        }
        answer = await server.call_tool("resolve_tools", {"ids": ["x", "y", "z", "w", "q"]}, context=ANN)
        reasons = [one.get("reason") for one in answer.structured["tools"]]
        assert reasons[:2] == ["ask an administrator", "switched off in this project"]
        assert reasons[2] == reasons[4] and reasons[3] is None
        others = await handle_for(server, Caller(principal="bob"), "z")
        assert await use(server, others, Caller(principal="bob")) == "z {}"


async def test_f34_what_is_withheld_after_it_was_granted_is_as_unknown_as_what_never_was() -> None:
    up, barred = Upstream("x"), set[str]()

    def access(binding: ToolBinding, context: ToolContext) -> AccessDenied | None:
        return AccessDenied() if binding.name in barred else None

    async with ToolsetServer(up.mounted(), access=access) as server:
        handle = await handle_for(server, SESSION)
        assert [one["name"] for one in server.listed(SESSION)][-1] == "x"
        barred.add("x")
        assert "x" not in [one["name"] for one in server.listed(SESSION)]
        for name in ("x", "never"):
            with pytest.raises(
                UnknownToolError, match=f"^Unknown tool: {name}; find tools with search_tools\n"
            ):
                await server.call_tool(name, context=SESSION)
        assert await use(server, handle, SESSION) == (
            f"no live grant for {handle!r}; find the tool with search_tools, then resolve_tools\n"
            f'Next: resolve_tools {{"ids": ["{handle}"]}}'
        )
    assert up.reached == []


async def test_f34_what_nobody_in_particular_may_find_is_in_no_text_that_all_read() -> None:
    up = Upstream("secret_one", "open_one")

    def access(binding: ToolBinding, context: ToolContext) -> AccessDenied | None:
        is_secret = binding.name == "secret_one" and context.principal != "ann"
        return AccessDenied(shown=False) if is_secret else None

    async with ToolsetServer(up.mounted(), access=access) as server, Client(server.lowlevel) as client:
        listed = (await client.list_tools()).model_dump_json()
        assert client.instructions is not None and "open_one" in client.instructions
        assert "secret_one" not in listed + client.instructions and "open_one" in listed
        assert (await handle_for(server, ANN, "secret_one")).startswith("secret_one.")


async def test_f34_a_policy_that_fails_lets_nobody_in_and_tells_nothing() -> None:
    up, broken = Upstream("x"), list[bool]()

    def access(binding: ToolBinding, context: ToolContext) -> AccessDenied | None:
        if broken:
            raise KeyError("no such role")
        return None

    async with ToolsetServer(up.mounted(), access=access) as server:
        handle = await handle_for(server, SESSION)
        broken.append(True)
        for name in ("x", "never"):
            with pytest.raises(
                UnknownToolError, match=f"^Unknown tool: {name}; find tools with search_tools\n"
            ):
                await server.call_tool(name, context=SESSION)
        assert "no live grant" in await use(server, handle, SESSION)
        found = await server.call_tool("search_tools", {"query": "x"}, context=SESSION)
        assert found.structured["hits"] == []
    assert up.reached == []


def test_x5_a_policy_that_would_wait_is_refused_at_once() -> None:
    async def access(binding: ToolBinding, context: ToolContext) -> None:
        return None

    with pytest.raises(DefinitionError, match="without waiting"):
        ToolsetServer(Upstream("x").mounted(), access=access)  # pyright: ignore[reportArgumentType]


async def test_x5_a_server_that_is_down_is_not_named_to_whom_it_is_hidden() -> None:
    def access(binding: ToolBinding, context: ToolContext) -> AccessDenied | None:
        return AccessDenied(shown=False) if context.principal != "ann" else None

    up = RemoteToolset(Upstream("x").server, name="vault")
    async with ToolsetServer(up.deferred(), access=access) as server:
        up.connection.lose()
        for who, seen in ((ANN, ["vault"]), (SESSION, [])):
            found = await server.call_tool("search_tools", {"query": "zzz"}, context=who)
            assert [one["server"] for one in found.structured.get("unavailable", [])] == seen


# On the wire


def authenticating(app: ASGIApp) -> ASGIApp:
    """A host's own authentication: the bearer token is the subject, all users share one client."""

    async def authenticated(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            value = dict(scope["headers"]).get(b"authorization", b"").decode()
            if value:
                token = AccessToken(token=value, client_id="app", scopes=[], subject=value)
                scope = {**scope, "user": AuthenticatedUser(token)}
        await app(scope, receive, send)

    return authenticated


@asynccontextmanager
async def over_http(server: ToolsetServer) -> AsyncGenerator[str]:
    async with server:
        app = server.http_app()
        app.add_middleware(authenticating)
        async with listening(app) as url:
            yield f"{url}/mcp"


@asynccontextmanager
async def client_of(url: str, mode: str, token: str = "") -> AsyncGenerator[Client]:
    headers = {"Authorization": token} if token else {}
    async with httpx2.AsyncClient(headers=headers, trust_env=False, timeout=60) as http:
        transport = streamable_http_client(url, http_client=http)
        async with Client(transport, mode=mode, cache=None) as client:
            yield client


async def resolved(client: Client, *ids: str) -> list[Any]:
    answer = await client.call_tool("resolve_tools", {"ids": list(ids)})
    assert answer.structured_content is not None
    return answer.structured_content["tools"]


@pytest.mark.long
@pytest.mark.parametrize("stored", [False, True])
async def test_x1_many_sessions_of_both_eras_at_once_have_each_their_own(
    stored: bool, tmp_path: Path
) -> None:
    """16 clients over HTTP: legacy sessions, modern principals, modern strangers; none meets another's."""
    up = Upstream(*[f"t{n}" for n in range(6)])
    kinds = [("legacy", ""), ("auto", "user-{}"), ("legacy", "user-{}-legacy")]
    handles: dict[int, str] = {}
    everybody = anyio.Event()
    ready: list[int] = []

    async def one(url: str, number: int) -> None:
        mode, token = kinds[number % 3]
        name = f"t{number % 6}"
        async with client_of(url, mode, token.format(number)) as client:
            before = [tool.name for tool in (await client.list_tools()).tools]
            (granted,) = await resolved(client, name)
            handles[number] = granted["grant"]
            ready.append(number)
            if len(ready) == 16:
                everybody.set()
            await everybody.wait()
            for other in ((number + 1) % 16, (number + 3) % 16, (number + 6) % 16):
                stolen = await client.call_tool("call_tool", {"grant": handles[other]})
                assert stolen.is_error and "no live grant" in str(stolen.content)
            for reference in (granted["grant"], name):
                arguments = {"grant": reference, "arguments": {"n": number}}
                used = await client.call_tool("call_tool", arguments)
                assert f'{name} {{"n": {number}}}' in str(used.content).replace("\\", "")
            after = [tool.name for tool in (await client.list_tools()).tools]
            assert after == ([*before, name] if mode == "legacy" else before)
            with pytest.raises(MCPError, match="Unknown tool"):
                await client.call_tool(f"t{(number + 1) % 6}", {})

    server = ToolsetServer(up.mounted(), grants=tmp_path / "grants.db" if stored else None)
    async with over_http(server) as url:
        with anyio.fail_after(30):
            async with anyio.create_task_group() as group:
                for number in range(16):
                    group.start_soon(one, url, number)
    assert len(set(handles.values())) == 16 and len(up.reached) == 32


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_x1_users_of_one_client_program_are_told_apart(mode: str) -> None:
    """Their tokens carry one client id; the principal is issuer and subject, too."""
    up = Upstream("x")
    async with over_http(ToolsetServer(up.mounted())) as url:
        async with client_of(url, mode, "ann") as ann, client_of(url, mode, "bob") as bob:
            (granted,) = await resolved(ann, "x")
            assert not (await ann.call_tool("call_tool", {"grant": granted["grant"]})).is_error
            assert (await bob.call_tool("call_tool", {"grant": granted["grant"]})).is_error
            assert (await bob.call_tool("call_tool", {"grant": "x"})).is_error
    assert up.reached == ["x"]


def modern_request(name: str, arguments: dict[str, Any]) -> tuple[dict[str, str], dict[str, Any]]:
    version = "2026-07-28"
    meta = {
        "io.modelcontextprotocol/protocolVersion": version,
        "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    headers = {
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": version,
        "Mcp-Method": "tools/call",
        "Mcp-Name": name,
        "Mcp-Param-N": "7",
    }
    params = {"name": name, "arguments": arguments, "_meta": meta}
    return headers, {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}


async def test_f34_what_is_deferred_withheld_or_unknown_answers_alike_to_the_last_byte() -> None:
    """Also where the transport looks at headers before any gate: a schema there would tell."""
    up = Upstream("hidden1", "barred1")

    def access(binding: ToolBinding, context: ToolContext) -> AccessDenied | None:
        return AccessDenied(shown=False) if binding.name == "barred1" else None

    answers: set[tuple[int, str]] = set()
    async with over_http(ToolsetServer(up.mounted(), access=access)) as url:
        async with httpx2.AsyncClient(trust_env=False, timeout=60) as http:
            for name in ("hidden1", "barred1", "unknown"):
                for arguments in ({}, {"n": 8}, {"n": "wrong"}, {"other": [1]}):
                    headers, body = modern_request(name, arguments)
                    answer = await http.post(url, headers=headers, json=body)
                    shown = answer.text.replace(name, "NAME")
                    answers.add((answer.status_code, shown))
            for name in ("hidden1", "barred1", "unknown"):
                headers, body = modern_request("call_tool", {"grant": f"{name}.AAAAAAAAAAAAAAAA"})
                answer = await http.post(url, headers=headers, json=body)
                answers.add((answer.status_code, answer.text.replace(name, "NAME")))
    assert len(answers) == 2, answers
    assert up.reached == []


@pytest.mark.parametrize("from_thread", [False, True])
async def test_x2_a_legacy_session_is_told_when_its_own_list_moves(from_thread: bool) -> None:
    up, moved = Upstream("x"), anyio.Event()
    told: list[str] = []

    async def on_message(message: Any) -> None:
        if "ToolListChanged" in type(getattr(message, "root", message)).__name__:
            told.append("changed")
            moved.set()

    server = ToolsetServer(up.mounted())
    async with server, Client(server.lowlevel, mode="legacy", message_handler=on_message) as client:
        await resolved(client, "x")
        with anyio.fail_after(30):
            await moved.wait()
        assert "x" in [one.name for one in (await client.list_tools()).tools]
        moved = anyio.Event()
        if from_thread:
            thread = threading.Thread(target=server.grants.revoke_all)
            thread.start()
            await anyio.to_thread.run_sync(thread.join, 5)
        else:
            server.grants.revoke_all()
        with anyio.fail_after(30):
            await moved.wait()
        assert "x" not in [one.name for one in (await client.list_tools()).tools]
        assert told == ["changed"] * 2
        refused = await client.call_tool("x", {})
        assert refused.is_error and "was taken back" in str(refused.content)


async def test_x3_the_fixed_tools_say_all_that_clients_ask_for() -> None:
    """Claude's directory wants a title and hints on each tool, ChatGPT all three of read-only, destructive
    and open-world, and Codex takes what is missing for the worst."""
    server = ToolsetServer(Upstream("x").mounted())
    async with server, Client(server.lowlevel) as client:
        listed = {one.name: one for one in (await client.list_tools()).tools}
    hints = {
        name: (
            each.annotations.read_only_hint,
            each.annotations.destructive_hint,
            each.annotations.open_world_hint,
        )
        for name, each in listed.items()
        if each.annotations is not None
    }
    assert hints == {
        "search_tools": (True, False, False),
        "resolve_tools": (True, False, False),
        "call_tool": (False, True, True),
        "call_read_only_tool": (True, False, True),
    }
    for each in listed.values():
        assert each.annotations is not None
        assert each.title and each.annotations.title == each.title
        assert each.annotations.idempotent_hint is not None


@pytest.mark.parametrize(
    ("hints", "may"),
    [
        ({"readOnlyHint": True}, True),
        ({"readOnlyHint": True, "destructiveHint": False}, True),
        ({"readOnlyHint": True, "destructiveHint": True}, False),
        ({"readOnlyHint": False}, False),
        ({"destructiveHint": False}, False),
        ({}, False),
    ],
)
async def test_x3_only_what_says_that_it_changes_nothing_is_run_as_read_only(
    hints: dict[str, Any], may: bool
) -> None:
    up = Upstream("x", hints=hints)
    async with ToolsetServer(up.mounted()) as server:
        handle = await handle_for(server, SESSION)
        said = await server.call_tool("call_read_only_tool", {"grant": handle}, context=SESSION)
    assert (up.reached == ["x"]) == may == (not said.is_error)
