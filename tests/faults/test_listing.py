"""What an upstream may list, and what a caller may ask for: bombs, doubles, references to elsewhere."""

from __future__ import annotations

import json
import socket
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.faults.harness import SOON, calls_of, mount, names, ready, received, tool, until
from tests.support.bounds import bounds

from mcp_toolset import ToolContext, Toolset, ToolsetServer
from mcp_toolset import tool as local_tool
from mcp_toolset.errors import UpstreamProtocolError

pytestmark = pytest.mark.anyio


def served(*members: Toolset) -> ToolsetServer:
    return ToolsetServer(Toolset(*members))


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"in": schema}}
    return schema


def takes(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


@contextmanager
def nobody_may_call() -> Generator[str]:
    """The address of a socket that must see no connection."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setblocking(False)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        with pytest.raises(BlockingIOError):
            listening.accept()


@pytest.mark.parametrize("pages", ["endless", "loop"])
async def test_f15_pagination_without_end_is_cut_and_the_part_is_kept_and_marked(
    pages: str, log: Path
) -> None:
    up = mount(pages=pages, log=str(log))
    with anyio.fail_after(40):
        async with served(up) as server:
            assert ready(server)()
            assert "it was cut after" in server.statuses()["up"].reason
            assert not up.connection.snapshot.complete
            assert len(names(server)) == (200 if pages == "endless" else 6)
            assert not (await server.call_tool(names(server)[0], {})).is_error
    asked = [entry for entry in received(log) if entry.get("method") == "tools/list"]
    assert len(asked) == (200 if pages == "endless" else 2)


async def test_f15_a_listing_is_cut_at_a_number_of_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    bounds(monkeypatch, listed_tools=10)
    async with served(mount(tools=[tool(f"t{number}") for number in range(25)])) as server:
        assert len(names(server)) == 10


async def test_f15_a_slow_listing_is_cut_in_time_and_what_came_is_served(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bounds(monkeypatch, listed_pages=10**9)
    with anyio.fail_after(40):
        async with served(mount(pages="endless", start_timeout=1)) as server:
            assert ready(server)()
            assert len(names(server)) > 1
            assert not (await server.call_tool(names(server)[-1], {})).is_error


@local_tool
def search() -> str:
    """Be called locally."""
    return "local"


async def test_f16_one_name_twice_in_one_list_keeps_the_first_and_names_the_second() -> None:
    async with served(
        mount(tools=[tool("same", description="One."), tool("same", description="Two.")])
    ) as server:
        assert [shown["description"] for shown in server.tools()] == ["One."]
        assert server.statuses()["up"].set_aside == (
            ("same", "the server lists this name twice; the first one is used"),
        )


async def test_f16_one_name_across_mounts_is_told_apart_by_the_servers_and_stays_so() -> None:
    def server() -> ToolsetServer:
        one, two = (mount(name, tools=[tool("search"), tool("own")]) for name in ("one", "two"))
        return served(Toolset(search), one, two.prefixed("t"))

    seen: list[list[str]] = []
    for _ in range(2):
        async with server() as running:
            seen.append(names(running))
            assert (await running.call_tool("search", {})).text == "local"
            for name in names(running)[1:]:
                assert (await running.call_tool(name, {})).text == "{}"
    assert seen[0] == seen[1]
    assert len(set(seen[0])) == 5
    assert seen[0][0] == "search" and seen[0][1].startswith("one_search_")


async def test_f16_prefixes_that_make_one_name_of_two_lose_no_tool() -> None:
    first = mount("first", tools=[tool("b_c")]).prefixed("a")
    second = mount("second", tools=[tool("c")]).prefixed("a_b")
    async with served(first, second) as server:
        one, other = names(server)
        assert one == "a_b_c" and other.startswith("second_a_b_c_")
        assert [(await server.call_tool(name, {})).text for name in (one, other)] == ["{}", "{}"]


async def test_f16_names_that_become_one_by_the_alphabet_of_names_lose_no_tool(log: Path) -> None:
    theirs = ["a b", "a/b", "a_b", "ä" * 100, "ä" * 99]
    async with served(mount(log=str(log), tools=[tool(name) for name in theirs])) as server:
        assert len(set(names(server))) == 5
        for name in names(server):
            assert len(name) <= 64 and name.isascii()
            await server.call_tool(name, {})
    assert sorted(call["params"]["name"] for name in theirs for call in calls_of(log, name)) == sorted(theirs)


MALFORMED = {
    "no object": 7,
    "a list": [1],
    "no name": {"inputSchema": {"type": "object"}},
    "an empty name": tool(""),
    "a number for a name": {**tool("x"), "name": 5},
    "no input schema": {"name": "x"},
    "a schema that is true": tool("x", inputSchema=True),
    "a schema of another type": tool("x", inputSchema={"type": "string"}),
    "a schema of no type": tool("x", inputSchema={}),
    "a schema that breaks its dialect": tool("x", inputSchema=takes(a={"type": "nothing"})),
    "properties that are a list": tool("x", inputSchema={"type": "object", "properties": [1]}),
    "a pattern that is none": tool("x", inputSchema=takes(a={"pattern": "("})),
    "a pattern that is a bomb": tool("x", inputSchema=takes(a={"pattern": "((a{1,999}){1,999}){1,999}"})),
    "a reference to nowhere": tool("x", inputSchema=takes(a={"$ref": "#/$defs/none"})),
    "a description that is a number": tool("x", description=5),
    "a title that is a list": tool("x", title=["x"]),
    "annotations that are a list": tool("x", annotations=[1]),
    "icons that are texts": tool("x", icons=["x"]),
    "an icon that is null": tool("x", icons=[None]),
    "a _meta that is a list": tool("x", _meta=[]),
    "an output schema that is a text": tool("x", outputSchema="object"),
    "an output schema that breaks its dialect": tool("x", outputSchema={"type": 5}),
    "a dialect that nobody knows": tool("x", inputSchema={"type": "object", "$schema": "urn:nobody"}),
    "an $id that is no address": tool("x", inputSchema={"type": "object", "$id": "::::"}),
}


async def test_f17_each_malformed_tool_is_set_aside_alone_with_a_reason() -> None:
    tools = [tool("first"), *MALFORMED.values(), tool("last")]
    async with served(mount(tools=tools)) as server:
        assert names(server) == ["first", "last"]
        aside = server.statuses()["up"].set_aside
        assert len(aside) == len(MALFORMED)
        assert all(name and reason for name, reason in aside)
        assert not (await server.call_tool("last", {})).is_error


async def test_f17_f13_a_tool_that_turns_bad_later_goes_alone(tmp_path: Path) -> None:
    async with served(mount(tools=[tool("echo"), tool("change")])) as server:
        await server.call_tool("change", {})
        await until(lambda: "other" in names(server))
        assert names(server) == ["other", "echo"]


REMOTE = {
    "a $ref": lambda base: takes(a={"$ref": f"{base}/schema"}),
    "a $ref in a definition": lambda base: {
        **takes(a={"$ref": "#/$defs/d"}),
        "$defs": {"d": {"$ref": f"{base}/d"}},
    },
    "a $dynamicRef": lambda base: takes(a={"$dynamicRef": f"{base}/schema#x"}),
    "a $schema": lambda base: {"type": "object", "$schema": f"{base}/dialect"},
    "an $id with a relative $ref": lambda base: {"$id": f"{base}/root", **takes(a={"$ref": "other"})},
}


async def test_f18_a_remote_reference_is_refused_without_a_look() -> None:
    parts = ("inputSchema", "outputSchema")
    with nobody_may_call() as base:
        schemas = {kind: made(base) for kind, made in REMOTE.items()}
        listed = [tool(f"{part} {kind}", **{part: schemas[kind]}) for kind in schemas for part in parts]
        async with served(mount(tools=[*listed, tool("echo")])) as server:
            assert names(server) == ["echo"]
            aside = server.statuses()["up"].set_aside
            assert [name for name, _ in aside] == [one["name"] for one in listed]
            assert [reason for name, reason in aside if name.partition(" ")[0] not in reason] == []
            await server.call_tool("echo", {})
        await anyio.wait_all_tasks_blocked()


async def test_f47_no_address_and_no_command_of_a_server_is_ever_used(tmp_path: Path) -> None:
    trap = tmp_path / "spawned"
    with nobody_may_call() as base:
        bait = {
            "icons": [{"src": f"{base}/icon.png", "mimeType": "image/png"}],
            "_meta": {
                "url": base,
                "command": "touch",
                "args": [str(trap)],
                "ui": {"resourceUri": f"{base}/ui"},
            },
            "mcpServers": {"more": {"command": "touch", "args": [str(trap)]}, "web": {"url": base}},
        }
        output = {"url": base, "command": f"touch {trap}", "$ref": base}
        async with served(
            mount(tools=[tool("bait", **bait, outputSchema={"type": "object"})], output=output)
        ) as server:
            assert names(server) == ["bait"]
            assert (await server.call_tool("bait", {})).structured == output
        await anyio.wait_all_tasks_blocked()
    assert not trap.exists()


async def test_f19_cyclic_references_that_end_are_used_and_pure_loops_are_refused(log: Path) -> None:
    tree = takes(name={"type": "string"}, children={"type": "array", "items": {"$ref": "#"}})
    loops = [
        {"type": "object", "$ref": "#"},
        {"type": "object", "allOf": [{"$ref": "#"}]},
        takes(a={"$ref": "#/properties/a"}),
        {
            **takes(a={"$ref": "#/$defs/b"}),
            "$defs": {"b": {"$ref": "#/$defs/c"}, "c": {"anyOf": [{"$ref": "#/$defs/b"}]}},
        },
    ]
    tools = [
        tool("tree", inputSchema=tree),
        *(tool(f"loop{i}", inputSchema=loop) for i, loop in enumerate(loops)),
    ]
    async with served(mount(log=str(log), tools=tools)) as server:
        assert names(server) == ["tree"]
        assert [name for name, _ in server.statuses()["up"].set_aside] == ["loop0", "loop1", "loop2", "loop3"]
        wrong = await server.call_tool("tree", {"children": [{"children": [{"name": [5]}]}]})
        assert wrong.is_error and "children[0].children[0].name" in wrong.text
        assert not (await server.call_tool("tree", {"children": [{"children": [{"name": "x"}]}]})).is_error
    assert len(calls_of(log, "tree")) == 1


async def test_f20_bombs_of_depth_size_and_expansion_are_set_aside_quickly(tmp_path: Path) -> None:
    doubling = {f"d{i}": {"allOf": [{"$ref": f"#/$defs/d{i + 1}"}] * 2} for i in range(40)}
    bombs = {
        "deep": tool("deep", inputSchema=nested(60)),
        "deep elsewhere": tool("deep_meta", _meta=nested(60)),
        "wide": tool("wide", inputSchema=takes(**{f"p{i}": {"type": "string"} for i in range(50_000)})),
        "long": tool("long", description="x" * 5_000_000),
        "doubling": tool(
            "doubling",
            inputSchema={**takes(a={"$ref": "#/$defs/d0"}), "$defs": {**doubling, "d40": {"type": "string"}}},
        ),
    }
    listed = tmp_path / "tools.json"
    listed.write_text(json.dumps([*bombs.values(), tool("echo")]))
    with anyio.fail_after(SOON):
        async with served(mount(tools_file=str(listed))) as server:
            assert names(server) == ["echo"]
            assert len(server.statuses()["up"].set_aside) == len(bombs)


async def test_f20_arguments_that_are_a_bomb_themselves_are_no_burden(log: Path) -> None:
    bomb: Any = 1
    for _ in range(10_000):
        bomb = [bomb]
    async with served(mount(log=str(log))) as server:
        with anyio.fail_after(SOON), pytest.raises(UpstreamProtocolError, match="no JSON can carry this"):
            await server.call_tool("echo", {"x": bomb})
        assert not (await server.call_tool("echo", {})).is_error


PATTERNS = ["^(a+)+$", "^(a|a)*$", "^(?=(a+)+$)b", r"^(a+)+\1$", "(.*a){25}"]


async def test_f21_a_catastrophic_pattern_leaves_the_loop_alive() -> None:
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await anyio.sleep(0.01)
            ticks += 1

    tools = [
        tool(f"match{number}", inputSchema=takes(a={"type": "string", "pattern": pattern}))
        for number, pattern in enumerate(PATTERNS)
    ]
    async with served(mount(tools=tools)) as server:
        for one in tools:
            async with anyio.create_task_group() as group:
                group.start_soon(tick)
                with anyio.fail_after(SOON):
                    for length in (30, 1000, 50_000):
                        await server.call_tool(one["name"], {"a": "a" * length + "!"})
                before = ticks
                with anyio.fail_after(SOON):
                    await until(lambda before=before: ticks > before + 3)
                group.cancel_scope.cancel()


NO_RESULTS = [
    {},
    {"content": 5},
    {"content": None},
    {"content": {"type": "text"}},
    {"content": ["text"]},
    {"content": [{"text": "no type"}]},
    {"content": [{"type": 1}]},
    {"content": [{"type": "text"}]},
    {"content": [{"type": "text", "text": {"a": 1}}]},
    {"content": [], "isError": "yes"},
]


async def test_f22_what_is_no_result_at_all_is_an_error_that_names_the_server() -> None:
    async with served(mount(results=NO_RESULTS)) as server:
        for result in NO_RESULTS:
            wrong = await server.call_tool("echo", {})
            told = "up: its result does not follow the protocol: "
            assert wrong.is_error and wrong.text.startswith(told), result
        assert ready(server)()


@pytest.mark.parametrize("result", [{"content": []}, {"content": [{"type": "of tomorrow", "x": 1}]}])
async def test_f22_an_unusual_result_is_passed_on(result: Any) -> None:
    async with served(mount(result=result)) as server:
        assert (await server.call_tool("echo", {})).wire == {"content": [], **result}


@pytest.mark.parametrize("output", [{"n": "text"}, {}, [1], None])
async def test_f22_a_result_that_breaks_its_schema_is_an_error_that_names_the_server(output: Any) -> None:
    schema = {**takes(n={"type": "integer"}), "required": ["n"]}
    async with served(mount(tools=[tool("lie", outputSchema=schema)], output=output).prefixed("p")) as server:
        lie = await server.call_tool("p_lie", {})
        assert lie.is_error
        assert lie.text.startswith("up: p_lie returned a result that does not fit its output schema")


QUERIES = [
    "(a+)+$" * 300,
    "^(.*)*$",
    "[",
    "\\",
    "<script>alert(1)</script>",
    "' OR 1=1 --",
    "%_*?",
    "\x00\x1b[31m\u202e",
    "a" * 2000,
    " ".join(["list"] * 400),
    "\U0001f600" * 500,
    "",
]


async def test_f36_a_query_is_literal_and_quick_whatever_is_in_it() -> None:
    tools = [tool(f"list_{number}", description="List (a+)+$ things.") for number in range(300)]
    async with served(mount(tools=tools).deferred()) as server:
        for query in QUERIES:
            with anyio.fail_after(SOON):
                found = await server.call_tool(
                    "search_tools", {"query": query, "limit": 100}, context=ToolContext()
                )
            assert not found.is_error, query
            assert len(found.structured["hits"]) <= 100
            with anyio.fail_after(SOON):
                assert (await server.call_tool("search_tools", {"query": "list things"})).structured["hits"]
