"""The reference server that uses every feature, mounted over stdio and over streamable HTTP."""

from __future__ import annotations

import base64
from collections.abc import Callable, Generator

import anyio
import pytest
from mcp import Client, MCPError
from mcp_types import ImageContent, ResourceLink, TextContent
from tests.peers.conftest import Bridged
from tests.peers.processes import listening_process
from tests.peers.programs import EVERYTHING, LOOPBACK, node, node_script
from tests.peers.reading import text_of, value_of

from mcp_toolset import RemoteToolset

pytestmark = pytest.mark.anyio

SOME = {"echo", "get-sum", "get-structured-content", "get-tiny-image", "trigger-long-running-operation"}
Mount = Callable[..., RemoteToolset]


@pytest.fixture(scope="module")
def address() -> Generator[str]:
    """The server's own HTTP server, started once, on loopback and a free port."""
    command = [node(), "--require", str(LOOPBACK), node_script(EVERYTHING), "streamableHttp"]
    with listening_process(command, r"port (\d+)") as port:
        yield f"http://127.0.0.1:{port}/mcp"


@pytest.fixture
def mount(request: pytest.FixtureRequest, era: str) -> Mount:
    """Mounted over stdio for clients of the one era, and over HTTP for those of the other one."""
    target = (
        [node(), node_script(EVERYTHING), "stdio"] if era == "modern" else request.getfixturevalue("address")
    )
    return lambda **options: RemoteToolset(target, name="everything", **options)


async def test_n9_the_list_carries_titles_schemas_and_annotations(bridged: Bridged, mount: Mount) -> None:
    async with bridged(mount().prefixed("all")) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
    assert {f"all_{name}" for name in SOME} <= set(tools)
    weather = tools["all_get-structured-content"]
    assert weather.title == "Get Structured Content Tool"
    assert set((weather.output_schema or {})["properties"]) == {"temperature", "conditions", "humidity"}
    assert weather.input_schema["properties"]["location"]["enum"] == ["New York", "Chicago", "Los Angeles"]
    assert weather.annotations is not None
    assert (weather.annotations.read_only_hint, weather.annotations.open_world_hint) == (True, False)


async def test_n9_every_kind_of_content_crosses_the_bridge(bridged: Bridged, mount: Mount) -> None:
    async with bridged(mount()) as client:
        assert text_of(await client.call_tool("echo", {"message": "grüß dich 🌍"})) == "Echo: grüß dich 🌍"
        assert (
            text_of(await client.call_tool("get-sum", {"a": 2, "b": 0.5})) == "The sum of 2 and 0.5 is 2.5."
        )
        weather = value_of(await client.call_tool("get-structured-content", {"location": "Chicago"}))
        assert weather == {"temperature": 36, "conditions": "Light rain / drizzle", "humidity": 82}

        before, image, after = (await client.call_tool("get-tiny-image", {})).content
        assert isinstance(before, TextContent) and isinstance(after, TextContent)
        assert isinstance(image, ImageContent) and image.mime_type == "image/png"
        assert base64.b64decode(image.data, validate=True).startswith(b"\x89PNG\r\n\x1a\n")

        links = (await client.call_tool("get-resource-links", {"count": 2})).content[1:]
        assert [type(link) for link in links] == [ResourceLink, ResourceLink]
        embedded = (
            await client.call_tool("get-resource-reference", {"resourceType": "Text", "resourceId": 1})
        ).content
        assert [block.type for block in embedded] == ["text", "resource", "text"]
        noted = (await client.call_tool("get-annotated-message", {"messageType": "error"})).content[0]
        assert noted.annotations is not None and noted.annotations.audience == ["user", "assistant"]


async def test_p5_progress_of_long_operations_reaches_the_call_that_started_it(
    bridged: Bridged, mount: Mount
) -> None:
    heard: dict[int, list[tuple[float, float | None]]] = {2: [], 4: []}
    complete = anyio.Event()

    async def operate(client: Client, steps: int) -> None:
        async def note(progress: float, total: float | None, message: str | None) -> None:
            heard[steps].append((progress, total))
            if sum(map(len, heard.values())) == 6:
                complete.set()

        arguments = {"duration": 0.4, "steps": steps}
        done = await client.call_tool("trigger-long-running-operation", arguments, progress_callback=note)
        assert f"Steps: {steps}." in text_of(done)

    async with bridged(mount()) as client:
        async with anyio.create_task_group() as group:
            group.start_soon(operate, client, 2)
            group.start_soon(operate, client, 4)
        with anyio.fail_after(30):
            await complete.wait()
    assert heard == {steps: [(float(step), float(steps)) for step in range(1, steps + 1)] for steps in (2, 4)}


async def test_f4_a_call_beyond_its_deadline_is_an_error_and_the_server_stays_of_use(
    bridged: Bridged, mount: Mount
) -> None:
    async with bridged(mount(timeout=1)) as client:
        with anyio.fail_after(30):
            late = await client.call_tool("trigger-long-running-operation", {"duration": 2, "steps": 1})
        assert late.is_error and "everything" in text_of(late)
        assert text_of(await client.call_tool("echo", {"message": "still here"})) == "Echo: still here"


async def test_n6_n10_errors_say_whose_they_are(bridged: Bridged, mount: Mount) -> None:
    async with bridged(mount()) as client:
        bad = await client.call_tool("get-sum", {"a": "one"})
        assert bad.is_error
        assert '"b" is a required property' in text_of(bad) and 'a: "one" is not of type' in text_of(bad)
        failed = await client.call_tool("gzip-file-as-resource", {"data": "ftp://example.org/file"})
        assert failed.is_error and "Unsupported URL protocol" in text_of(failed)
        with pytest.raises(MCPError, match="Unknown tool: get-difference") as unknown:
            await client.call_tool("get-difference", {})
        assert unknown.value.code == -32602
