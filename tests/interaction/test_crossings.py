"""What is listed, read and reported: every crossing of the eras, every pair of transports (P4, P6, X4).

The upstream is `library.py`, mounted over each transport and in each era in one hub, a process of its own
wherever a wire leads to it. As all have the same names, the hub has to tell them apart.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from hashlib import sha256
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.extension import advertise
from mcp.client.sse import sse_client
from mcp.shared.exceptions import MCPDeprecationWarning
from pydantic import ConfigDict
from tests.interaction import library
from tests.interaction.asking_hub import hub
from tests.interaction.conftest import UPSTREAMS
from tests.interaction.test_questions import ENVIRONMENT, HERE, PrintingPorts, upstreams
from tests.support.asking import text_of
from tests.support.warm import Warm

from mcp_toolset import ToolsetServer

pytestmark = [pytest.mark.anyio, pytest.mark.pairwise]

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
LIBRARY = ("-c", "from tests.interaction import library as l; l.run()")

MINE = {"example.com/kind": "text"}


class Heard(list[str]):
    """The kinds of news that a client was told, and an event for the next."""

    def __init__(self) -> None:
        super().__init__()
        self._next = anyio.Event()

    def add(self, method: str) -> None:
        self.append(method)
        self._next.set()
        self._next = anyio.Event()

    async def more(self) -> None:
        """Wait for the next."""
        await self._next.wait()


LOOK_AGAIN = 0.5
"""Seconds after which something is looked for again although nothing was told."""


class Visitor:
    """A client, and the names under which it sees the library of one upstream."""

    def __init__(self, client: Client, upstream: str, heard: Heard) -> None:
        self.client = client
        self.upstream = upstream
        self.heard = heard

    def tool(self, name: str) -> str:
        return f"{self.upstream}_{name}"

    async def call(self, name: str, tag: str = "", **options: Any) -> types.CallToolResult:
        return await self.client.call_tool(self.tool(name), {"tag": tag}, **options)

    async def listed(self) -> dict[str, types.Resource]:
        """The library's resources by the last part of their addresses."""
        start = f"{self.upstream.replace('_', '-')}+lib://"
        found = [entry async for entry in _every(self.client.list_resources, "resources")]
        return {entry.uri.removeprefix(start): entry for entry in found if entry.uri.startswith(start)}

    async def prompts(self) -> dict[str, types.Prompt]:
        found = [entry async for entry in _every(self.client.list_prompts, "prompts")]
        start = f"{self.upstream}_"
        return {entry.name.removeprefix(start): entry for entry in found if entry.name.startswith(start)}


async def _every(ask: Any, key: str) -> AsyncGenerator[Any]:
    cursor: str | None = None
    while True:
        page = await ask(cursor=cursor)
        for entry in getattr(page, key):
            yield entry
        cursor = page.next_cursor
        if cursor is None:
            return


Visiting = list[Visitor]
Logged = tuple[str, Any]


@pytest.fixture(scope="module")
def targets(warm: Warm) -> Generator[dict[str, Any]]:
    with upstreams(warm, *LIBRARY) as made:
        yield made


@pytest.fixture(scope="module")
def hub_url(warm: Warm, targets: dict[str, Any]) -> Generator[str]:
    """One hub of all upstreams, on HTTP and SSE."""
    script = str(HERE / "asking_hub.py")
    with PrintingPorts(warm.command(script, json.dumps(targets), "http", "library")) as (port,):
        yield f"http://127.0.0.1:{port}"


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def hub_here(anyio_backend: str, targets: dict[str, Any]) -> AsyncGenerator[ToolsetServer]:
    """One hub of all upstreams in this process."""
    async with hub(targets, library.make) as server:
        await server.settled()
        yield server


@pytest.fixture(scope="module")
def target(request: pytest.FixtureRequest, transport: str) -> Callable[[], Any]:
    """What clients connect to: one hub for the module, or over stdio one for each of them."""
    match transport:
        case "memory":
            here = request.getfixturevalue("hub_here").lowlevel
            return lambda: here
        case "stdio":
            here = request.getfixturevalue("hub_on_stdio")
            return lambda: here
        case _:
            here = request.getfixturevalue("hub_url")
            return lambda: sse_client(f"{here}/sse") if transport == "sse" else f"{here}/mcp"


@pytest.fixture(scope="module")
async def hub_on_stdio(
    anyio_backend: str, targets: dict[str, Any], warm: Warm, tmp_path_factory: pytest.TempPathFactory
) -> StdioServerParameters:
    """A hub that has run once: one that nobody has started yet knows of its upstreams from its last run."""
    environment = {**ENVIRONMENT, "MCP_TOOLSET_CACHE": str(tmp_path_factory.mktemp("kept"))}
    python, *arguments = warm.command(str(HERE / "asking_hub.py"), json.dumps(targets), "stdio", "library")
    hub = StdioServerParameters(command=python, args=arguments, env=environment)
    with anyio.fail_after(60):
        async with Client(hub, mode="legacy", cache=None) as client:
            await _joined(client)
    return hub


@pytest.fixture(scope="module")
async def column(
    anyio_backend: str, target: Callable[[], Any], era: str
) -> AsyncGenerator[tuple[list[Visitor], list[Logged]]]:
    """A client of one era over one transport, which all tests share, and what was logged to it."""
    mode: Any = "legacy" if era == "legacy" else "auto"
    heard = Heard()
    logged: list[Logged] = []

    async def hear(message: Any) -> None:
        heard.add(str(getattr(message, "method", "")))

    async def log(params: types.LoggingMessageNotificationParams) -> None:
        logged.append((params.level, params.data))

    known = [advertise(library.SHELVES, {"mine": 1})]
    async with Client(
        target(), mode=mode, cache=None, message_handler=hear, logging_callback=log, extensions=known
    ) as client:
        with anyio.fail_after(60):
            await _joined(client)
        yield [Visitor(client, upstream, heard) for upstream in UPSTREAMS], logged


@pytest.fixture
async def visiting(
    column: tuple[list[Visitor], list[Logged]], met: list[str]
) -> AsyncGenerator[list[Visitor]]:
    """One client, seen from the upstreams that it meets of the hub that it is connected to."""
    with anyio.fail_after(60):
        yield [visitor for visitor in column[0] if visitor.upstream in met]


@pytest.fixture
def logged(column: tuple[list[Visitor], list[Logged]]) -> list[Logged]:
    return column[1]


async def _joined(client: Client) -> None:
    """Wait until every upstream has joined."""
    while True:
        names = {entry.name async for entry in _every(client.list_prompts, "prompts")}
        if {f"{upstream}_plain" for upstream in UPSTREAMS} <= names:
            return


@contextmanager
def about(visitor: Visitor) -> Generator[None]:
    """Says in a failure which upstream it was."""
    try:
        yield
    except BaseException as fault:
        fault.add_note(f"upstream: {visitor.upstream}")
        raise


async def test_x4_p4_what_a_server_lists_and_what_is_read_of_it_crosses(visiting: Visiting) -> None:
    for visitor in visiting:
        with about(visitor):
            await reads(visitor)


async def reads(visitor: Visitor) -> None:
    client, upstream = visitor.client, visitor.upstream
    declared = client.server_capabilities
    assert declared.resources and declared.resources.subscribe and declared.resources.list_changed
    assert declared.prompts and declared.prompts.list_changed and declared.completions is not None

    resources = await visitor.listed()
    assert {"one", "two", "three"} <= set(resources)
    one = resources["one"]
    assert (one.title, one.size, one.mime_type) == ("The resource one", 7, "text/plain")
    assert one.icons == [library.ICON] and one.meta == MINE
    assert one.annotations is not None and one.annotations.priority == 0.5
    (text,) = (await client.read_resource(one.uri)).contents
    assert isinstance(text, types.TextResourceContents) and (text.uri, text.text) == (one.uri, "about one")
    (blob,) = (await client.read_resource(resources["two"].uri)).contents
    assert isinstance(blob, types.BlobResourceContents) and blob.blob == library.PIXEL
    with pytest.raises(MCPError) as missing:
        await client.read_resource(one.uri.replace("one", "nothing"))
    modern = client.protocol_version >= "2026-07-28"
    assert missing.value.code == (types.INVALID_PARAMS if modern else -32002)
    assert missing.value.message.startswith(f"{upstream}: ")

    templates = [entry async for entry in _every(client.list_resource_templates, "resource_templates")]
    start = one.uri.removesuffix("one")
    (shelf,) = [entry for entry in templates if entry.uri_template == f"{start}shelf/{{number}}"]
    assert shelf.title == "A shelf" and shelf.icons == [library.ICON]
    (found,) = (await client.read_resource(f"{start}shelf/7")).contents
    assert isinstance(found, types.TextResourceContents) and found.text == "about shelf/7"

    prompts = await visitor.prompts()
    assert prompts["plain"].title == "The prompt plain" and prompts["plain"].icons == [library.ICON]
    arguments = prompts["filled"].arguments
    assert arguments is not None and (arguments[0].name, arguments[0].required) == ("word", True)
    filled = await client.get_prompt(prompts["filled"].name, {"word": "rain"})
    said, image, embedded = [message.content for message in filled.messages]
    assert isinstance(said, types.TextContent) and said.text == "filled about rain"
    assert isinstance(image, types.ImageContent) and image.data == library.PIXEL
    assert isinstance(embedded, types.EmbeddedResource) and embedded.resource.uri == one.uri

    of_prompt = types.PromptReference(type="ref/prompt", name=prompts["filled"].name)
    proposed = await client.complete(of_prompt, {"name": "word", "value": "ra"}, {"other": "x"})
    assert proposed.completion.values == ["filled:word:ra", "x"] and proposed.completion.total == 9
    of_template = types.ResourceTemplateReference(type="ref/resource", uri=shelf.uri_template)
    proposed = await client.complete(of_template, {"name": "number", "value": "1"})
    assert proposed.completion.values == ["lib://shelf/{number}:number:1"]


async def test_u11_what_a_server_says_about_itself_crosses(visiting: Visiting) -> None:
    answer = visiting[0].client.session.discover_result or visiting[0].client.session.initialize_result
    assert answer is not None and answer.meta is not None and answer.instructions is not None
    servers = {one["name"]: one["serverInfo"] for one in answer.meta["mcp-toolset/servers"]}
    for visitor in visiting:
        with about(visitor):
            said = servers[visitor.upstream]
            assert (said["title"], said["websiteUrl"]) == ("The library", "https://library.example")
            assert said["icons"][0]["src"] == library.ICON.src
            framed = f'<server name="{visitor.upstream}">\nRead quietly.\n</server>'
            assert framed in answer.instructions


async def test_x4_p4_what_tools_say_and_return_crosses(visiting: Visiting, era: str) -> None:
    for visitor in visiting:
        with about(visitor):
            await calls(visitor, era)


async def calls(visitor: Visitor, era: str) -> None:
    client, upstream = visitor.client, visitor.upstream
    tools = {tool.name: tool for tool in [entry async for entry in _every(client.list_tools, "tools")]}
    described = tools[visitor.tool("described")]
    assert described.title == "A described tool" and described.icons == [library.ICON]
    assert described.annotations is not None and described.annotations.read_only_hint
    assert described.meta == {"example.com/kind": "sample"}
    any_json = era == "modern" and upstream.endswith("modern")
    assert (tools[visitor.tool("numbers")].output_schema is not None) == any_json
    numbers = await visitor.call("numbers")
    assert text_of(numbers) == "[1, 2]"
    assert numbers.structured_content == ([1, 2] if any_json else None)

    blocks = await visitor.call("blocks")
    text, image, audio, link, embedded = blocks.content
    assert isinstance(text, types.TextContent) and text.annotations is not None
    assert text.annotations.audience == ["assistant"]
    assert isinstance(image, types.ImageContent) and image.data == library.PIXEL
    assert isinstance(audio, types.AudioContent) and audio.mime_type == "audio/wav"
    assert blocks.meta is not None and blocks.meta["example.com/cost"] == 3
    assert isinstance(link, types.ResourceLink) and isinstance(embedded, types.EmbeddedResource)
    assert (await client.read_resource(link.uri)).contents[0].uri == link.uri
    assert embedded.resource.uri == link.uri.replace("one", "two")

    with pytest.raises(MCPError) as refused:
        await visitor.call("refuse")
    assert (refused.value.code, refused.value.data) == (-31999, {"why": ["test"]})
    assert refused.value.message == f"{upstream}: refused"
    meta = json.loads(text_of(await visitor.call("meta", meta={"traceparent": TRACE, **MINE})))
    assert (meta["traceparent"], meta["example.com/kind"]) == (TRACE, "text")


class Answer(types.Result):
    """The answer to a method of an extension."""

    model_config = ConfigDict(extra="allow")


class Params(types.RequestParams):
    """Parameters of any name."""

    model_config = ConfigDict(extra="allow")


class Asked(types.Request[Params, str]):
    """A request of a method of an extension."""

    params: Params


async def ask(client: Client, method: str, meta: dict[str, Any] | None = None, **said: Any) -> dict[str, Any]:
    params = Params.model_validate({**said, **({"_meta": meta} if meta else {})})
    answer = await client.session.send_request(Asked(method=method, params=params), Answer)
    return answer.model_dump(by_alias=True, exclude_none=True)


@pytest.mark.needs("pass_extensions")
async def test_u88_g5_an_extension_that_the_bridge_does_not_know_crosses(visiting: Visiting) -> None:
    declared = visiting[0].client.server_capabilities
    assert declared is not None and (declared.extensions or {})[library.SHELVES] == {"most": 9}
    for visitor in visiting:
        with about(visitor):
            answer = await ask(
                visitor.client, f"{library.SHELVES}/count", {"mcp-toolset/server": visitor.upstream}
            )
            table = "experimental" if visitor.upstream.endswith("legacy") else "extensions"
            assert answer["declared"][table][library.SHELVES] == {"mine": 1}
            assert answer["_meta"]["example.com/shelves"] == 7


@pytest.mark.needs("skills")
async def test_g3_skills_cross_with_their_digests(visiting: Visiting) -> None:
    client = visiting[0].client
    found = {one["uri"]: one for one in (await ask(client, "skills/list"))["skills"]}
    for visitor in visiting:
        with about(visitor):
            uri = f"skill://{visitor.upstream.replace('_', '-')}/lending/SKILL.md"
            (file,) = found[uri]["resources"]
            (content,) = (await client.read_resource(uri)).contents
            assert isinstance(content, types.TextResourceContents) and content.uri == file["uri"] == uri
            whole = content.text.encode()
            assert (len(whole), f"sha256:{sha256(whole).hexdigest()}") == (file["size"], file["digest"])
            assert (await ask(client, "skills/get", uri=uri))["skill"] == found[uri]


async def test_x4_p6_changes_reach_the_client(visiting: Visiting, era: str) -> None:
    for visitor in visiting:
        with about(visitor):
            await changes(visitor, era)


async def changes(visitor: Visitor, era: str) -> None:
    three = (await visitor.listed())["three"].uri
    tag = f"_{visitor.upstream}_{len(await _uris(visitor))}"
    async with _told(visitor, era, three) as told:
        visitor.heard.clear()
        await visitor.call("grow", tag)
        await told("notifications/tools/list_changed")
        await told("notifications/resources/list_changed")
        await told("notifications/prompts/list_changed")
        await visitor.call("touch")
        await told("notifications/resources/updated")
        with anyio.fail_after(40):
            while not await _shows(visitor, f"grown{tag}"):
                with anyio.move_on_after(LOOK_AGAIN):
                    await visitor.heard.more()


async def _shows(visitor: Visitor, name: str) -> bool:
    """True if a new name is in each list; told apart where the server is mounted over two transports."""
    tools = [tool.name async for tool in _every(visitor.client.list_tools, "tools")]
    prompts = [prompt.name async for prompt in _every(visitor.client.list_prompts, "prompts")]
    listed = any(uri.endswith(f"lib://{name}") for uri in await _uris(visitor))
    return listed and visitor.tool(name) in tools and bool({name, visitor.tool(name)} & {*prompts})


async def _uris(visitor: Visitor) -> list[str]:
    return [entry.uri async for entry in _every(visitor.client.list_resources, "resources")]


@asynccontextmanager
async def _told(visitor: Visitor, era: str, uri: str) -> AsyncGenerator[Callable[[str], Any]]:
    """Subscribes to everything; yields what waits for one kind of news."""
    client = visitor.client
    async with AsyncExitStack() as stack:
        if era == "modern":
            await stack.enter_async_context(
                client.listen(
                    tools_list_changed=True,
                    resources_list_changed=True,
                    prompts_list_changed=True,
                    resource_subscriptions=[uri],
                )
            )
        else:
            with pytest.warns(MCPDeprecationWarning):
                await client.subscribe_resource(uri)

        async def told(method: str) -> None:
            with anyio.fail_after(40):
                while method not in visitor.heard:
                    await visitor.heard.more()

        yield told
        if era == "legacy":
            with pytest.warns(MCPDeprecationWarning):
                await client.unsubscribe_resource(uri)


async def test_x4_p5_reports_of_a_call_reach_it_and_cancelling_it_reaches_the_server(
    visiting: Visiting, era: str, logged: list[Logged]
) -> None:
    for visitor in visiting:
        with about(visitor):
            await reports(visitor, era, logged)
            await cancels(visitor, era)


async def reports(visitor: Visitor, era: str, logged: list[tuple[str, Any]]) -> None:
    steps: list[tuple[float, str | None]] = []
    complete = anyio.Event()

    async def step(progress: float, total: float | None, message: str | None) -> None:
        steps.append((progress, message))
        if len(steps) == 3:
            complete.set()

    await visitor.call("steps", "climb", progress_callback=step)
    with anyio.fail_after(40):
        await complete.wait()
    assert steps == [(1, "climb"), (2, "climb"), (3, "climb")]

    logged.clear()
    wanted: dict[str, Any] = {}
    if era == "modern":
        wanted = {"io.modelcontextprotocol/logLevel": "warning"}
    else:
        with pytest.warns(MCPDeprecationWarning):
            await visitor.client.set_logging_level("warning")
    await visitor.call("note", "spoken", meta=wanted)
    with anyio.fail_after(40):
        while not logged:
            await visitor.call("seen")
    assert logged == [("warning", "spoken warning")]


async def cancels(visitor: Visitor, era: str) -> None:
    tag = f"{era} {id(visitor)}"

    async def seen() -> dict[str, int]:
        return json.loads(text_of(await visitor.call("seen")))

    async with anyio.create_task_group() as group:
        before = (await seen()).get("wait", 0)
        group.start_soon(visitor.call, "wait", tag)
        while (await seen()).get("wait", 0) == before:
            pass
        group.cancel_scope.cancel()
    while f"cancelled {tag}" not in await seen():
        pass
