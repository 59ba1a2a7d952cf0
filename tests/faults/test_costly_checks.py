"""What values may cost to check against schemas of mounted servers: a budget, and a refusal beyond it."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.faults.harness import SOON, mount, tool
from tests.transports.client.raw_server import Request, raw_server

from mcp_toolset import RemoteToolset, Toolset, ToolsetServer
from mcp_toolset import tool as local
from mcp_toolset.catalog.deferred.preparing import names_in
from mcp_toolset.protocol.eras import forwarded_meta
from mcp_toolset.server.resource_handlers import whole_answer

pytestmark = pytest.mark.anyio

NESTED = "(a{1,100}){1,100}b"
LONG = "a" * 2_000
CHOICES = [{"const": number} for number in range(9_000)]
COSTLY: dict[str, tuple[dict[str, Any], Any]] = {
    "values against thousands of subschemas": ({"items": {"anyOf": CHOICES}}, [8_999] * 250),
    "items that are looked for": ({"contains": {"anyOf": CHOICES}}, [-1] * 250),
    "names of members": (
        {"propertyNames": {"anyOf": [{"const": f"p{number}"} for number in range(9_000)]}},
        {f"p{8_000 + number}": 1 for number in range(250)},
    ),
    "values against thousands of objects": (
        {"items": {"enum": [{"a": number} for number in range(9_000)]}},
        [{"a": 8_999}] * 250,
    ),
    "values against thousands of fractions": (
        {"items": {"enum": [number + 0.5 for number in range(9_000)]}},
        [8_999.5] * 250,
    ),
    "multiples of a fraction": ({"items": {"multipleOf": 0.0001}}, [1e300] * 60_000),
    "a text against thousands of states": ({"pattern": NESTED}, LONG),
    "a name against thousands of states": ({"patternProperties": {NESTED: True}}, {LONG: 1}),
    "texts with look-around": ({"items": {"pattern": "^(?=(a+)+$)(a|aa)+$"}}, ["a" * 40] * 4_000),
}


def answering(schema: dict[str, Any], output: Any) -> AbstractAsyncContextManager[ToolsetServer]:
    """A mounted server with one tool, `costly`, that answers so, beside another one."""
    return answering_each({"costly": (schema, output)})


@asynccontextmanager
async def answering_each(tools: dict[str, tuple[dict[str, Any], Any]]) -> AsyncGenerator[ToolsetServer]:
    """A mounted server with some tools, of which each has a schema and answers so, beside another one."""
    listed = {"tools": [tool(name, outputSchema=schema) for name, (schema, _) in tools.items()]}
    begun = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}}
    results: dict[str, Any] = {
        "initialize": {**begun, "serverInfo": {"name": "up", "version": "1"}},
        "tools/list": listed,
    }

    async def handler(request: Request) -> None:
        if not request.body or "id" not in request.message:
            await request.answer(None, "405 Method Not Allowed" if request.verb == "GET" else "202 Accepted")
        elif request.message["method"] == "tools/call":
            output = tools[request.message["params"]["name"]][1]
            await request.answer(request.result({"content": [], "structuredContent": output}))
        else:
            await request.answer(request.result(results.get(request.message["method"])))

    async with raw_server(handler) as raw:
        costly = RemoteToolset(raw.url, name="up", protocol="legacy")
        async with ToolsetServer(Toolset(costly, mount("other"))) as server:
            with anyio.fail_after(SOON):
                yield server


def choices(again: dict[str, Any], *, all_of: bool = False) -> dict[str, Any]:
    """A schema with two choices for a value, each of which holds its member `q` against the same."""
    parts = [{"properties": {"q": again}, "required": [name]} for name in ("y", "z")]
    return {"allOf": parts} if all_of else {"anyOf": [*parts, {"type": "null"}]}


def named(depth: int, target: str, **more: Any) -> dict[str, Any]:
    """A schema whose definitions each hold a member twice against the next one."""
    steps = {f"n{step}": choices({"$ref": target.format(step - 1)}, **more) for step in range(1, depth)}
    defs: dict[str, Any] = {"n0": {"type": "string"}, **steps}
    anchored = {name: {**one, "$anchor": name} for name, one in defs.items()}
    return {"$defs": anchored, "type": "object", "properties": {"x": {"$ref": f"#/$defs/n{depth - 1}"}}}


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = {"q": value}
    return value


CHOICES_OF_CHOICES: dict[str, tuple[dict[str, Any], int]] = {
    "a definition that names itself": (
        {
            "$defs": {"n": choices({"$ref": "#/$defs/n"})},
            "type": "object",
            "properties": {"x": {"$ref": "#/$defs/n"}},
        },
        60,
    ),
    "definitions that name the next one": (named(12, "#/$defs/n{}"), 12),
    "a thousand million choices": (named(30, "#/$defs/n{}"), 30),
    "a thousand million choices by anchors": (named(30, "#n{}"), 30),
    "a thousand million parts": (named(30, "#/$defs/n{}", all_of=True), 30),
}


async def test_u113_choices_that_share_choices_are_not_tried_for_ever() -> None:
    """A few bytes of an answer took all memory, or the loop for ever."""
    kinds = {
        name.replace(" ", "_"): (schema, {"x": nested(depth)})
        for name, (schema, depth) in CHOICES_OF_CHOICES.items()
    }
    async with answering_each(kinds) as server:
        for kind in kinds:
            refused = await server.call_tool(kind, {})
            assert not (await server.call_tool("echo", {})).is_error
            assert refused.is_error, kind
            assert "too big to be checked" in refused.text or "takes too long to be found out" in refused.text


async def test_u113_kinds_that_name_each_other_are_checked() -> None:
    """A grammar: each of ten kinds may hold each, which by its schema alone is millions of choices."""
    kinds = {
        f"k{kind}": {"anyOf": [*({"properties": {"q": {"$ref": f"#/$defs/k{one}"}}} for one in range(10))]}
        for kind in range(10)
    }
    schema = {"$defs": kinds, "type": "object", "properties": {"x": {"$ref": "#/$defs/k0"}}}
    async with answering(schema, {"x": nested(40)}) as server:
        assert not (await server.call_tool("costly", {})).is_error


async def test_u113_a_tree_of_choices_is_checked_and_told() -> None:
    kinds = [
        {"type": "object", "properties": {"kind": {"const": kind}, "q": {"$ref": "#/$defs/n"}}}
        for kind in ("a", "b", "c")
    ]
    schema = {
        "$defs": {"n": {"anyOf": [*({**one, "required": ["kind"]} for one in kinds), {"type": "integer"}]}},
        "type": "object",
        "properties": {"x": {"$ref": "#/$defs/n"}},
    }
    value: Any = 1
    for _ in range(60):
        value = {"kind": "c", "q": value}
    async with answering(schema, {"x": value}) as server:
        assert not (await server.call_tool("costly", {})).is_error
    async with answering(schema, {"x": {"kind": "d", "q": 1}}) as server:
        assert "is not valid under any of the schemas" in (await server.call_tool("costly", {})).text


async def test_u113_a_result_that_is_costly_to_check_is_refused() -> None:
    kinds = {
        name.replace(" ", "_"): ({"type": "object", "properties": {"x": schema}}, {"x": value})
        for name, (schema, value) in COSTLY.items()
    }
    async with answering_each(kinds) as server:
        for kind in kinds:
            refused = await server.call_tool(kind, {})
            assert not (await server.call_tool("echo", {})).is_error
            assert refused.is_error, kind
            assert "too big to be checked against this schema" in refused.text, kind


@pytest.mark.parametrize("fits", [True, False])
async def test_u113_ordinary_patterns_and_lists_are_checked_as_before(fits: bool) -> None:
    names = {"items": {"pattern": "^[a-z0-9-]{1,64}$"}}
    kinds = {"items": {"enum": [f"kind {number}" for number in range(2_000)]}}
    shape = {"type": "object", "properties": {"names": names, "kinds": kinds, "format": {"format": "email"}}}
    fitting = {
        "names": ["a-name"] * 2_000,
        "kinds": ["kind 1999"] * 20_000,
        "format": "no address",
        "more": "x" * 1_000_000,
    }
    async with answering(shape, fitting if fits else {"names": ["NO"]}) as server:
        result = await server.call_tool("costly", {})
    assert result.is_error != fits
    assert fits or 'names[0]: "NO" does not match "^[a-z0-9-]{1,64}$"' in result.text


async def test_u113_a_client_that_sends_a_long_list_of_mistakes_is_told_the_first() -> None:
    @local
    def join(parts: list[str]) -> str:
        """Join texts."""
        return "".join(parts)

    async with ToolsetServer(Toolset(join)) as served:
        few = await served.call_tool("join", {"parts": [1] * 50})
        many = await served.call_tool("join", {"parts": [1] * 50_000})
    assert few.text.count("is not of type") == 5
    assert many.text.count("is not of type") == 1


async def test_u113_a_choice_that_a_long_value_does_not_fit_does_not_tell_the_problems_of_each_part() -> None:
    @local
    def place(rows: dict[str, list[int]] | None = None) -> str:
        """Place rows."""
        return "placed"

    async with ToolsetServer(Toolset(place)) as served:
        few = await served.call_tool("place", {"rows": {"a": ["x"]}})
        many = await served.call_tool(
            "place", {"rows": {f"r{number}": ["x"] * 10 for number in range(9_000)}}
        )
        fit = await served.call_tool("place", {"rows": {f"r{number}": [1] * 10 for number in range(9_000)}})
    assert "is not valid under any of the schemas" in few.text and fit.text == "placed"
    assert "what is wrong takes too long to be found out" in many.text


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"required": [f"p{number}" for number in range(300)]}, {"text": "x" * 500_000}),
        ({"propertyNames": {"pattern": "^c$"}}, {"b" * 2_000 + str(number): 1 for number in range(300)}),
        (
            {"properties": {"a": {"anyOf": [{"maxLength": size} for size in range(300)]}}},
            {"a": "x" * 500_000},
        ),
        (
            {"properties": {"a": {"allOf": [{"maxLength": size} for size in range(300)]}}},
            {"a": "x" * 500_000},
        ),
    ],
    ids=["missing members", "names", "choices", "parts"],
)
async def test_u113_a_long_value_is_not_copied_into_hundreds_of_problems(
    schema: dict[str, Any], value: Any
) -> None:
    async with answering({"type": "object", **schema}, value) as server:
        result = await server.call_tool("costly", {})
    assert result.is_error and "does not fit its output schema" in result.text
    assert result.text.count("required property") <= 1 and result.text.count("does not match") <= 1
    assert ("too long to be found out" in result.text) == ("anyOf" in json.dumps(schema))
    assert result.text.count("longer than") <= 1


@pytest.mark.parametrize("tool", ["resolve_tools", "call_tool"])
async def test_u113_the_blanks_of_a_code_fence_that_has_no_end_are_read_once(tool: str) -> None:
    @local
    def place() -> str:
        """Place rows."""
        return "placed"

    text = f"```json{' ' * 3_000}x"
    sent = {"ids": text} if tool == "resolve_tools" else {"grant": "x", "arguments": text}
    async with ToolsetServer(Toolset(place).deferred()) as served:
        started = time.thread_time()
        await served.call_tool(tool, sent)
    assert time.thread_time() - started < 3


async def test_u113_names_are_read_out_of_some_hits_and_not_out_of_any_number() -> None:
    assert names_in([{"id": "place"}] * 500) == ["place"] * 500
    assert names_in([{"id": "place"}] * 2_000) is None and names_in([["place"]] * 2_000) is None
    assert names_in(["place"] * 2_000) == ["place"] * 2_000


@pytest.mark.parametrize("kind", ["many values", "many subschemas", "a text with many values"])
async def test_u113_arguments_that_are_long_to_repair_are_not_repaired(kind: str, tmp_path: Path) -> None:
    choices = [{"type": "integer", "minimum": number} for number in range(9_000)]
    items = {"anyOf": choices} if kind == "many subschemas" else {"type": "integer"}
    schema = {"type": "object", "properties": {"x": {"type": "array", "items": items}}}
    listed = tmp_path / "tools"
    listed.write_text(json.dumps([tool("take", inputSchema=schema)]))
    few, many = ["1"], ["1"] * (20 if kind == "many subschemas" else 50_000)
    long = json.dumps(many) if kind == "a text with many values" else many
    async with ToolsetServer(Toolset(mount(tools_file=str(listed)))) as server:
        if kind != "many subschemas":
            assert json.loads((await server.call_tool("take", {"x": few})).text) == {"x": [1]}
        with anyio.fail_after(SOON):
            refused = await server.call_tool("take", {"x": long})
    assert refused.is_error
    assert "Invalid arguments" in refused.text


MESSAGES = {"messages": [{"role": "user", "content": {"type": "text", "text": f"m{n}"}} for n in range(1000)]}


def calls_of(work: Callable[[], Any]) -> tuple[Any, int]:
    """What it returns, and how many functions of Python ran for that."""
    calls = 0

    def count(frame: object, event: str, what: object) -> None:
        nonlocal calls
        calls += event == "call"

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        return work(), calls
    finally:
        sys.setprofile(before)


def test_u113_the_names_in_the_meta_of_a_message_are_not_taken_apart_one_by_one() -> None:
    reserved = {"a.mcp/k": 1, "io.modelcontextprotocol/k": 1, "progressToken": 1}
    kept = {"mcp/k": 1, "a.b.mcp/k": 1, "k.mcp": 1, **{f"example.com/k{number}": 1 for number in range(1000)}}
    found, calls = calls_of(lambda: forwarded_meta({**reserved, **kept}))
    assert found == kept
    assert calls < 20


def test_u113_a_prompt_of_many_messages_is_not_copied_message_by_message() -> None:
    whole, calls = calls_of(lambda: whole_answer("prompts/get", "2025-11-25", MESSAGES, {}))
    assert whole == MESSAGES
    # About eight to check each, and four to look for what is null.
    assert calls < 14 * 1000


def test_u113_what_is_null_is_left_out_of_a_prompt_wherever_it_stands() -> None:
    block = {"type": "resource", "resource": {"uri": "a:b", "text": "t", "mimeType": None, "own": None}}
    said = {"role": "user", "content": {**block, "annotations": {"priority": None}}, "own": {"a": None}}
    given = {"description": None, "messages": [said, said], "_meta": {"a": None}}
    whole = whole_answer("prompts/get", "2025-11-25", given, {})
    content = {"type": "resource", "resource": {"uri": "a:b", "text": "t"}, "annotations": {}}
    kept = {"role": "user", "content": content, "own": {"a": None}}
    assert whole == {"messages": [kept, kept], "_meta": {"a": None}}
    assert said["content"]["resource"] is block["resource"] and "mimeType" in block["resource"]
