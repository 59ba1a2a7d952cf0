"""A bridge for one server with `"unlisted": "pass"`: calls of what the server does not list (U90)."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import anyio
import mcp_types as types
import pytest
from mcp import Client, MCPError
from mcp.server.lowlevel import Server
from tests.support.warm import python

from mcp_toolset import PinPolicy, RemoteToolset, Toolset, ToolsetServer, load_toolset
from mcp_toolset.catalog.pins.lockfile import LockFile
from mcp_toolset.errors import DefinitionError
from mcp_toolset.policy import Policy

pytestmark = pytest.mark.anyio

HERE = Path(__file__).parent

LISTED = types.Tool(
    name="count",
    description="Counts.",
    input_schema={"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]},
    output_schema={"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]},
)
BROKEN = types.Tool(name="broken", input_schema={"type": "object", "$ref": "http://elsewhere/schema"})


class Upstream:
    """A server that lists one tool and answers calls of any name."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.server = Server(
            "upstream",
            version="3.2.1",
            instructions="Count with care.",
            on_list_tools=self._list,
            on_call_tool=self._call,
            on_list_prompts=self._prompts,
            on_read_resource=self._read,
            on_completion=self._complete,
            on_get_prompt=self._prompt,
        )

    async def _list(self, context: Any, params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[LISTED, BROKEN])

    async def _call(self, context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        self.ran.append(params.name)
        if params.name == "refused":
            raise MCPError(-32042 + 2000, "not today", {"why": "closed"})
        text = json.dumps(params.arguments)
        return types.CallToolResult(
            content=[types.TextContent(type="text", text=text)], structured_content={"n": "many"}
        )

    async def _read(self, context: Any, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        self.ran.append(params.uri)
        return types.ReadResourceResult(contents=[types.TextResourceContents(uri=params.uri, text="read")])

    async def _complete(self, context: Any, params: types.CompleteRequestParams) -> types.CompleteResult:
        self.ran.append(params.argument.value)
        return types.CompleteResult(completion=types.Completion(values=["all"]))

    async def _prompts(self, context: Any, params: Any) -> types.ListPromptsResult:
        return types.ListPromptsResult(prompts=[])

    async def _prompt(self, context: Any, params: types.GetPromptRequestParams) -> types.GetPromptResult:
        self.ran.append(params.name)
        raise MCPError(-31000, "no such prompt here")


@asynccontextmanager
async def bridged(
    served: Toolset | ToolsetServer, mode: Literal["legacy", "auto"] = "legacy"
) -> AsyncGenerator[Client]:
    server = served if isinstance(served, ToolsetServer) else ToolsetServer(served)
    with anyio.fail_after(30):
        async with server, Client(server.lowlevel, mode=mode) as client:
            yield client


def passing(upstream: Upstream, **options: Any) -> RemoteToolset:
    return RemoteToolset(upstream.server, name="odd", unlisted="pass", **options)


async def refused(client: Client, name: str, arguments: Mapping[str, Any] | None = None) -> str:
    with pytest.raises(MCPError) as caught:
        await client.session.send_request(
            types.CallToolRequest(
                params=types.CallToolRequestParams(name=name, arguments=dict(arguments or {}))
            ),
            types.CallToolResult,
        )
    return caught.value.error.message


async def raw(client: Client, name: str, arguments: Mapping[str, Any]) -> types.CallToolResult:
    """Call without the checks that the SDK's client makes of results."""
    return await client.session.send_request(
        types.CallToolRequest(params=types.CallToolRequestParams(name=name, arguments=dict(arguments))),
        types.CallToolResult,
    )


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_u90_a_call_of_an_unlisted_tool_reaches_the_server(mode: Literal["legacy", "auto"]) -> None:
    upstream = Upstream()
    async with bridged(passing(upstream), mode) as client:
        result = await raw(client, "unseen", {"a": [1]})
        assert result.content[0].text == '{"a": [1]}'  # type: ignore[union-attr]
        with pytest.raises(MCPError) as caught:
            await client.get_prompt("unseen_prompt")
    assert upstream.ran == ["unseen", "unseen_prompt"]
    assert (caught.value.error.code, caught.value.error.message) == (-31000, "no such prompt here")


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_u90_a_read_and_a_completion_of_unlisted_things_reach_the_server(
    mode: Literal["legacy", "auto"],
) -> None:
    upstream = Upstream()
    async with bridged(passing(upstream), mode) as client:
        read = await client.read_resource("memo:///unseen")
        assert read.contents[0].text == "read"  # type: ignore[union-attr]
        for ref in (
            types.PromptReference(type="ref/prompt", name="unseen"),
            types.ResourceTemplateReference(type="ref/resource", uri="memo:///{unseen}"),
        ):
            completed = await client.complete(ref, {"name": "a", "value": ref.type})
            assert completed.completion.values == ["all"]
    assert upstream.ran == ["memo:///unseen", "ref/prompt", "ref/resource"]


class Doubled(types.Result):
    doubled: int


class Number(types.RequestParams):
    n: int


class Double(types.Request[Number, str]):
    params: Number


async def double(context: Any, params: Number) -> dict[str, Any]:
    return {"doubled": 2 * params.n}


def extended() -> Upstream:
    upstream = Upstream()
    upstream.server.extensions = {"com.example/double": {"limit": 9}}
    for method in ("com.example/double", "tasks/double"):
        upstream.server.add_request_handler(method, Number, double)
    return upstream


async def asked(client: Client, method: str) -> Doubled:
    return await client.session.send_request(Double(method=method, params=Number(n=4)), Doubled)


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_u88_a_private_extension_of_one_server_crosses_as_without_the_bridge(
    mode: Literal["legacy", "auto"],
) -> None:
    async with Client(extended().server, mode=mode) as direct:
        async with bridged(passing(extended()), mode) as client:
            assert client.server_capabilities is not None
            assert client.server_capabilities.extensions == {"com.example/double": {"limit": 9}}
            assert (await asked(client, "com.example/double")).doubled == 8
            assert (await asked(direct, "com.example/double")).doubled == 8


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_u88_no_method_of_mcp_and_no_method_behind_a_policy_is_passed_on(
    mode: Literal["legacy", "auto"],
) -> None:
    async with bridged(passing(extended()), mode) as client:
        with pytest.raises(MCPError, match="Method not found"):
            await asked(client, "tasks/double")
    guarded = ToolsetServer(passing(extended()), policy=Policy(deny=["delete_*"]))
    for served in (guarded, RemoteToolset(extended().server, name="odd")):
        async with bridged(served, mode) as client:
            assert client.server_capabilities is not None
            declared = client.server_capabilities.extensions or {}
            assert served is not guarded or "com.example/double" not in declared
            # Of the other one the client would have to declare it, too.
            with pytest.raises(MCPError, match="Method not found"):
                await asked(client, "com.example/double")


async def test_u90_arguments_results_errors_and_instructions_of_listed_tools_stay_as_they_are() -> None:
    upstream = Upstream()
    async with bridged(passing(upstream)) as client:
        assert client.instructions == "Count with care."
        assert client.server_info is not None
        assert (client.server_info.name, client.server_info.version) == ("upstream", "3.2.1")
        result = await raw(client, "count", {"n": "3"})
        assert result.content[0].text == '{"n": "3"}'  # type: ignore[union-attr]
        assert result.structured_content == {"n": "many"}
        with pytest.raises(MCPError) as caught:
            await raw(client, "refused", {})
    error = caught.value.error
    assert (error.code, error.message, error.data) == (-30042, "not today", {"why": "closed"})


async def test_u90_an_unlisted_tool_is_unknown_without_the_option() -> None:
    upstream = Upstream()
    async with bridged(RemoteToolset(upstream.server, name="odd")) as client:
        assert "Unknown tool" in await refused(client, "unseen")
        with pytest.raises(MCPError):
            await client.get_prompt("unseen")
    assert upstream.ran == []


async def test_u90_a_name_that_is_set_aside_or_looks_like_a_listed_one_is_not_passed_on() -> None:
    upstream = Upstream()
    async with bridged(passing(upstream)) as client:
        for name in ("broken", "Broken", "COUNT", "cou\u200bnt", "count\u202e"):
            await refused(client, name)
    assert upstream.ran == []


def _hidden(upstream: Upstream) -> ToolsetServer:
    server = ToolsetServer(passing(upstream))
    server.registry.hide("delete_*", strict=False)
    return server


CHOOSING = {
    "a policy": lambda one: ToolsetServer(passing(one), policy=Policy(deny=["delete_*"])),
    "a hidden pattern": _hidden,
    "a filter": lambda one: passing(one).filtered(exclude=["delete_*"]),
    "a prefix": lambda one: passing(one).prefixed("x"),
    "search": lambda one: passing(one).deferred(),
    "a second server": lambda one: Toolset(passing(one), RemoteToolset(Upstream().server, name="second")),
}


@pytest.mark.parametrize("how", CHOOSING)
async def test_u90_nothing_is_passed_on_where_tools_are_chosen_by_name(how: str) -> None:
    upstream = Upstream()
    async with bridged(CHOOSING[how](upstream)) as client:
        for name in ("delete_all", "other"):
            await refused(client, name)
            with pytest.raises(MCPError):
                await client.get_prompt(name)
            with pytest.raises(MCPError):
                await client.complete(
                    types.PromptReference(type="ref/prompt", name=name), {"name": "a", "value": ""}
                )
    assert upstream.ran == []


async def test_u90_a_tool_that_is_switched_off_is_not_passed_on() -> None:
    upstream = Upstream()
    server = ToolsetServer(passing(upstream))
    async with bridged(server) as client:
        await client.list_tools()
        server.registry.disable("count")
        await refused(client, "count", {"n": 1})
        await refused(client, "unseen")
    assert upstream.ran == []


@pytest.mark.needs("limits")
async def test_u90_hooks_and_limits_judge_an_unlisted_call() -> None:
    from mcp_toolset.policy import Limits

    upstream = Upstream()
    server = ToolsetServer(passing(upstream), limits={"*": Limits(rate="1/min")})
    async with bridged(server) as client:
        await raw(client, "unseen", {})
        again = await raw(client, "unseen", {})
    assert again.is_error and upstream.ran == ["unseen"]


@pytest.mark.needs("upstream_access")
@pytest.mark.parametrize(
    "options",
    [
        {"pins": PinPolicy("quarantine")},
        {"pins": PinPolicy(None, "quarantine")},
        {"forward": {"X-User": "identity.name"}},
    ],
)
def test_u90_the_option_does_not_go_with_what_decides_by_the_list(options: dict[str, Any]) -> None:
    with pytest.raises(DefinitionError, match="unlisted='pass' does not go with"):
        RemoteToolset("http://127.0.0.1:9/mcp", name="odd", unlisted="pass", **options)


async def test_u90_a_lock_file_ends_the_passing_on(tmp_path: Path) -> None:
    upstream, path = Upstream(), tmp_path / "lock.json"
    lock = LockFile(path)
    remote = passing(upstream, lock=lock.entry("odd"))
    async with bridged(remote) as client:
        await raw(client, "unseen", {})
        lock.update(lambda servers: {**servers, "odd": {}})
        await refused(client, "unseen")
    assert upstream.ran == ["unseen"]
    with pytest.raises(DefinitionError, match="lock file"):
        passing(upstream, lock=path)


ENTRY: dict[str, Any] = {"command": sys.executable, "args": ["server.py"], "unlisted": "pass"}


@pytest.mark.parametrize(
    ("entry", "rest", "told"),
    [
        ({"exclude": ["delete_*"]}, {}, "`exclude`"),
        ({"include": ["read_*"]}, {}, "`include`"),
        ({"includeTools": ["read"]}, {}, "`include`"),
        ({"deferred": True}, {}, "`deferred`"),
        ({"names": {"a": "b"}}, {}, "`names`"),
        ({"prefix": "a"}, {}, "`prefix`"),
        ({"permissions": {"deny": ["x"]}}, {}, "`permissions`"),
        ({}, {"toolset": {"permissions": {"deny": ["x"]}}}, "only server"),
        ({}, {"toolset": {"deferred": True}}, "`deferred`"),
        ({}, {"more": {"command": sys.executable}}, "only server"),
        ({"pins": "quarantine"}, {}, "pins that quarantine"),
    ],
)
async def test_u90_an_entry_that_protects_by_names_is_misconfigured_with_the_option(
    tmp_path: Path, entry: dict[str, Any], rest: dict[str, Any], told: str
) -> None:
    more = {"more": rest["more"]} if "more" in rest else {}
    written: dict[str, Any] = {"mcpServers": {"odd": {**ENTRY, **entry}, **more}}
    if "toolset" in rest:
        written["toolset"] = rest["toolset"]
    path = tmp_path / "mcp.json"
    path.write_text(json.dumps(written))
    status = {one.source_name: one.status for one in load_toolset(path).sources()}["odd"]
    assert status.state == "misconfigured"
    assert told in status.reason


def configured(folder: Path, **more: Any) -> Toolset:
    """The server of this module as a process that a configuration names."""
    (folder / "server.py").write_text(
        "import anyio, sys\nsys.path.insert(0, sys.argv[1])\n"
        "from tests.hub.test_unlisted import Upstream\nfrom mcp.server.stdio import stdio_server\n"
        "async def main():\n    server = Upstream().server\n    async with stdio_server() as (read, write):\n"
        "        await server.run(read, write, server.create_initialization_options())\nanyio.run(main)\n"
    )
    path = folder / "mcp.json"
    command, *args = python(str(folder / "server.py"), str(HERE.parents[1]))
    entry = {**ENTRY, "command": command, "args": args, **more}
    path.write_text(json.dumps({"mcpServers": {"odd": entry}}))
    return load_toolset(path)


@pytest.mark.usefixtures("warm")
async def test_u90_a_configured_server_is_passed_what_it_does_not_list(tmp_path: Path) -> None:
    async with bridged(configured(tmp_path)) as client:
        result = await raw(client, "unseen", {"a": 1})
        assert result.content[0].text == '{"a": 1}'  # type: ignore[union-attr]
        assert [tool.name for tool in (await client.list_tools()).tools] == ["count"]
        assert client.instructions == "Count with care."


@pytest.mark.usefixtures("warm")
async def test_u90_a_server_that_is_stopped_is_started_before_a_name_is_taken_for_unlisted(
    tmp_path: Path,
) -> None:
    kept = tmp_path / "kept"
    with anyio.fail_after(60):
        async with ToolsetServer(configured(tmp_path), keep=kept) as server:
            await server.settled()
    server = ToolsetServer(configured(tmp_path, start="lazy"), keep=kept)
    async with bridged(server) as client:
        assert server.statuses()["odd"].state == "stopped"
        result = await raw(client, "broken", {})
        assert result.is_error and "list the tools again" in str(result.content)


def test_u90_the_example_is_a_server_that_can_be_mounted() -> None:
    toolset = load_toolset(HERE.parents[1] / "examples" / "transparent" / "mcp.json")
    passes = toolset.passing()
    assert passes is not None and passes.source_name == "notes"
