"""Resources in two lines, toolsets that carry resources and prompts, and results with images and files."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from base64 import b64decode
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp import MCPError

from mcp_toolset import Prompts, Resources, ToolResult, Toolset, ToolsetServer, file_block, image_block, tool
from mcp_toolset.errors import DefinitionError
from mcp_toolset.testing import Client

PIXEL = b"\x89PNG\r\n\x1a\n"


def library() -> Resources:
    resources = Resources()

    @resources.add("book://{id}")
    def book(id: int) -> str:
        """Read a book."""
        return f"book {id + 1}"

    @resources.add("data://config", mime_type="application/json")
    async def config() -> dict[str, int]:
        return {"size": 3}

    @resources.add("file://{+path}")
    def file(path: str) -> bytes:
        return path.encode()

    return resources


def written() -> Prompts:
    prompts = Prompts()

    @prompts.add
    def review(title: str) -> str:
        """Review a book."""
        return f"Review {title}."

    return prompts


@tool
def chart() -> ToolResult:
    """Draw a chart."""
    return ToolResult.of_content(
        ["a chart", image_block(PIXEL, "image/png")], structured={"n": 1}, meta={"a": 2}
    )


async def read(client: Client, uri: str) -> Any:
    (found,) = (await client.read_resource(uri)).contents
    return found


async def check(server: ToolsetServer) -> None:
    with anyio.fail_after(30):
        async with Client(server) as client:
            assert [one.uri for one in (await client.list_resources()).resources] == ["data://config"]
            templates = (await client.list_resource_templates()).resource_templates
            assert [one.uri_template for one in templates] == ["book://{id}", "file://{+path}"]
            assert templates[0].description == "Read a book."
            assert (await read(client, "book://1")).text == "book 2"
            assert (await read(client, "data://config")).text == '{"size":3}'
            assert b64decode((await read(client, "file://a/b%20c")).blob) == b"a/b c"
            for missing in ("book://x", "book://1/2", "other://1"):
                with pytest.raises(MCPError):
                    await read(client, missing)
            assert [one.name for one in (await client.list_prompts()).prompts] == ["review"]
            prompt: Any = await client.get_prompt("review", {"title": "Dune"})
            assert prompt.messages[0].content.text == "Review Dune."


@pytest.mark.anyio
async def test_u108_a_resource_takes_two_lines():
    await check(ToolsetServer(Toolset(chart), resources=library(), prompts=written()))


@pytest.mark.anyio
async def test_u108_resources_and_prompts_of_a_nested_toolset_are_served():
    inner = Toolset(chart, resources=library(), prompts=written())
    await check(ToolsetServer(inner))
    await check(ToolsetServer(Toolset(Toolset(inner.prefixed("x").deferred()))))

    class Shop(Toolset):
        chart = chart

        def __init__(self) -> None:
            super().__init__(resources=library())

    await check(ToolsetServer(Toolset(Shop().off()), prompts=written()))


@pytest.mark.anyio
@pytest.mark.parametrize(
    "uri", ["note://..", "note://a%2Fb", "note://..%2F..%2Fetc", "note://a%5Cb", "note://%2e%2e"]
)
async def test_u108_a_variable_of_a_template_is_never_a_path(uri: str):
    resources = Resources()
    resources.add("note://{id}")(lambda id: id)
    with pytest.raises(LookupError):
        await resources.read_resource(uri)
    assert (await resources.read_resource("note://a%20b"))[0]["text"] == "a b"


@pytest.mark.anyio
async def test_u108_of_two_resources_with_one_uri_the_outer_one_counts():
    outer = Resources()

    @outer.add("data://config")
    def config() -> str:
        return "outer"

    server = ToolsetServer(Toolset(Toolset(chart, resources=library())), resources=outer)
    with anyio.fail_after(30):
        async with Client(server) as client:
            assert [one.uri for one in (await client.list_resources()).resources] == ["data://config"]
            assert (await read(client, "data://config")).text == "outer"
            assert (await read(client, "book://1")).text == "book 2"


def test_u108_a_resource_that_cannot_be_one_is_refused_with_the_mend():
    resources = library()
    with pytest.raises(DefinitionError, match="one parameter for each variable"):
        resources.add("note://{id}")(lambda name: name)
    with pytest.raises(DefinitionError, match=r"@resources\.add takes a URI"):
        resources.add(lambda: "x")  # pyright: ignore[reportArgumentType]
    with pytest.raises(DefinitionError, match="two resources"):
        resources.add("data://config")(lambda: "x")


@pytest.mark.anyio
async def test_u108_a_tool_returns_images_with_meta():
    with anyio.fail_after(30):
        async with Client(ToolsetServer(Toolset(chart))) as client:
            result: Any = await client.call_tool("chart")
    assert [block.type for block in result.content] == ["text", "image"]
    assert b64decode(result.content[1].data) == PIXEL
    assert (result.structured_content, result.meta["a"]) == ({"n": 1}, 2)


def test_u108_files_become_blocks(tmp_path: Path):
    picture, note = tmp_path / "a.png", tmp_path / "a.txt"
    picture.write_bytes(PIXEL)
    note.write_text("hello")
    assert image_block(picture)["mimeType"] == "image/png"
    held = file_block(note)["resource"]
    assert (held["uri"], held["text"], held["mimeType"]) == (note.as_uri(), "hello", "text/plain")
    assert b64decode(file_block(PIXEL, "pixel://1")["resource"]["blob"]) == PIXEL
    with pytest.raises(DefinitionError, match="give the media type"):
        image_block(PIXEL)
    with pytest.raises(DefinitionError, match="a URI"):
        file_block(PIXEL)


LITERALS = st.sampled_from(["", "/", ".", "-", "..", "/x/", "a", "?"])
VARIABLES = st.lists(st.tuples(st.sampled_from(["", "+"]), LITERALS), max_size=4)


@given(VARIABLES, LITERALS, st.text("a./-x?\n", max_size=9))
def test_u113_a_template_reads_what_an_expression_with_backtracking_would(
    variables: list[tuple[str, str]], first: str, rest: str
) -> None:
    template = f"x://{first}" + "".join(f"{{{way}v{at}}}{text}" for at, (way, text) in enumerate(variables))
    pattern = f"x://{first}".replace(".", r"\.").replace("?", r"\?") + "".join(
        f"({'.+' if way else '[^/?#]+'}){re.escape(text)}" for way, text in variables
    )
    resources, names = Resources(), [f"v{at}" for at in range(len(variables))]
    space: dict[str, Any] = {}
    exec(f"def read({', '.join(names)}): return [{', '.join(names)}]", space)
    resources.add(template)(space["read"])
    found = re.fullmatch(pattern, f"x://{rest}")
    values = None if found is None else list(found.groups())
    kept = [value for value, (way, _) in zip(values or (), variables, strict=False) if not way]
    if values is None or {".", ".."} & {*kept}:
        with pytest.raises(LookupError):
            anyio.run(resources.read_resource, f"x://{rest}")
    else:
        [content] = anyio.run(resources.read_resource, f"x://{rest}")
        assert json.loads(content["text"]) == values


COSTLY = """
import anyio
from mcp_toolset import Resources

resources = Resources()

@resources.add("gg://{+a}/{+b}/{+c}/{+d}/end")
def walk(a: str, b: str, c: str, d: str) -> str:
    return a

@resources.add("img://{name}.{ext}")
def image(name: str, ext: str) -> str:
    return name

async def refused(uri: str) -> None:
    try:
        await resources.read_resource(uri)
    except LookupError:
        print("refused")

anyio.run(refused, "gg://" + "a/" * 2000 + "x")
anyio.run(refused, "img://" + "." * 60000 + "/")
anyio.run(refused, "img://" + "." * 4_000_000 + "/")
"""


def test_u113_no_uri_makes_a_template_costly() -> None:
    done = subprocess.run([sys.executable, "-c", COSTLY], capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["refused"] * 3, done.stderr


def test_a_template_names_each_variable_once() -> None:
    with pytest.raises(DefinitionError, match="a variable stands in it twice"):
        Resources().add("x://{a}/{a}")(lambda a: a)
