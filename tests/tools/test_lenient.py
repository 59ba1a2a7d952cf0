"""Arguments that do not fit a schema and can be meant in one way only."""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.faults.harness import hostile_http, tool

from mcp_toolset import HookSet, RemoteToolset, RunNormally, ToolCall, Toolset, ToolsetServer
from mcp_toolset.config import load_config
from mcp_toolset.tools.argument_repair import repaired
from mcp_toolset.tools.validation import SchemaCheck

INTEGER, TEXT = {"type": "integer"}, {"type": "string"}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "n": INTEGER,
        "x": {"type": "number"},
        "flag": {"type": "boolean"},
        "text": TEXT,
        "maybe": {"anyOf": [INTEGER, {"type": "null"}], "default": None},
        "size": {**INTEGER, "default": 7},
        "where": {"$ref": "#/$defs/place"},
        "ids": {"type": "array", "items": INTEGER},
        "either": {"type": ["integer", "string"]},
        "color": {"enum": ["red", "blue"]},
    },
    "required": ["size"],
    "additionalProperties": False,
    "$defs": {
        "place": {
            "type": "object",
            "properties": {"lat": {"type": "number"}, "tag": TEXT},
            "required": ["lat"],
        }
    },
}
CHECK = SchemaCheck(SCHEMA, tool="t", part="inputSchema")


def mended(arguments: dict[str, Any]) -> dict[str, Any] | None:
    """The arguments without their default; `None` if nothing was repaired."""
    call = ToolCall("t", arguments)
    done = repaired(SCHEMA, CHECK, call)
    if done is call:
        return None
    assert done.original == arguments
    return {name: value for name, value in done.arguments.items() if name != "size" or value != 7}


@pytest.mark.parametrize(
    ("sent", "got"),
    [
        ({}, {}),
        ({"size": None}, {}),
        ({"n": None, "text": None}, {}),
        ({"n": "3"}, {"n": 3}),
        ({"n": "-12", "x": "0.5"}, {"n": -12, "x": 0.5}),
        ({"x": "3"}, {"x": 3}),
        ({"flag": "true"}, {"flag": True}),
        ({"flag": "False"}, {"flag": False}),
        ({"text": 5}, {"text": "5"}),
        ({"maybe": "4"}, {"maybe": 4}),
        ({"maybe": None}, {"maybe": None}),
        ({"where": '{"lat": "1.5"}'}, {"where": {"lat": 1.5}}),
        ({"where": {"lat": 1, "tag": None}}, {"where": {"lat": 1}}),
        ({"ids": "[1, 2]"}, {"ids": [1, 2]}),
        ({"ids": ["1", 2]}, {"ids": [1, 2]}),
        ({"either": "5"}, {"either": "5"}),
    ],
)
def test_u38_what_has_one_meaning_is_repaired(sent: dict[str, Any], got: dict[str, Any]) -> None:
    assert mended(sent) == got


@pytest.mark.parametrize(
    "sent",
    [
        {"n": "three"},
        {"n": "3.5"},
        {"n": True},
        {"n": "03"},
        {"text": 1.5},
        {"text": ["a"]},
        {"ids": 1},
        {"ids": "1, 2"},
        {"where": None, "n": []},
        {"where": {}},
        {"color": "Red"},
        {"unknown": 1},
        {"flag": "yes"},
        {"flag": 1},
    ],
)
def test_u38_what_has_no_meaning_or_several_stays_as_it_was(sent: dict[str, Any]) -> None:
    assert mended({"size": 7, **sent}) is None


def test_u38_arguments_that_fit_are_not_looked_at() -> None:
    fitting = {"size": 1, "either": "5", "maybe": None}
    call = ToolCall("t", fitting)
    assert repaired(SCHEMA, CHECK, call) is call


TOOLS = [tool("echo", inputSchema=SCHEMA)]


@pytest.mark.anyio
async def test_u38_a_mount_repairs_by_default_and_tells_hooks_and_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    seen: list[ToolCall] = []
    hooks = HookSet()

    @hooks.execution("echo")
    async def look(call: ToolCall, input: dict[str, object]) -> RunNormally:
        seen.append(call)
        return RunNormally(input)

    sent = {"n": "3", "text": None, "where": '{"lat": 1}'}
    with hostile_http(tools=TOOLS) as (port, _), caplog.at_level(logging.INFO, "mcp_toolset.calls"):
        url = f"http://127.0.0.1:{port}/mcp"
        with anyio.fail_after(30):
            async with ToolsetServer(Toolset(RemoteToolset(url, name="up")), hooks=hooks) as server:
                result = await server.call_tool("echo", sent)
            strict = RemoteToolset(url, name="up", arguments="strict")
            async with ToolsetServer(Toolset(strict)) as server:
                refused = await server.call_tool("echo", sent)
    assert json.loads(result.text) == {"n": 3, "where": {"lat": 1}, "size": 7}
    assert seen[0].arguments == json.loads(result.text) and seen[0].original == sent
    (said,) = [record.getMessage() for record in caplog.records if "repaired" in record.getMessage()]
    assert "n is read as an integer" in said and "text was null and is left out" in said
    assert refused.is_error and "Invalid arguments for echo" in refused.text


@pytest.mark.parametrize(
    ("section", "entry", "rule"),
    [
        ({}, {}, "lenient"),
        ({"arguments": "strict"}, {}, "strict"),
        ({"arguments": "strict"}, {"arguments": "lenient"}, "lenient"),
        ({}, {"arguments": "strict"}, "strict"),
    ],
)
def test_u38_a_file_says_it_for_all_servers_or_for_one(
    section: dict[str, str], entry: dict[str, str], rule: str, tmp_path: Path
) -> None:
    file = tmp_path / "mcp.json"
    servers = {"up": {"command": sys.executable, **entry}}
    file.write_text(json.dumps({"mcpServers": servers, "toolset": section}))
    (server,) = load_config(file).servers
    assert server.arguments == rule
