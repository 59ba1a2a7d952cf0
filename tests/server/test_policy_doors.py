"""A policy, limits and an audit log at the doors of HTTP+SSE and of standard input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError
from tests.cli.commandline import CommandLine
from tests.support.asking import Person, text_of
from tests.support.callers import Callers, client_of, tools
from tests.support.served import served
from tests.support.warm import Warm

from mcp_toolset import Toolset, ToolsetServer, tool
from mcp_toolset.policy import Limits, Policy

ONCE = "allow once"

pytestmark = [pytest.mark.anyio, pytest.mark.needs("limits")]

POLICY = Policy(
    deny=["wipe"], ask=["delete"], roles={"boss": Policy(allow=["*"]), "robot": Policy(deny=["delete"])}
)
LIMITS = {"read": Limits(callers=[Limits(calls=1, roles=["robot"])])}
APP = """
from mcp_toolset import Toolset, serve, tool
from mcp_toolset.policy import Limits, Policy

@tool
def read() -> str:
    return "read"

@tool
def wipe() -> str:
    return "wiped"

policy = Policy(deny=["wipe"], roles={"boss": Policy(allow=["*"])})
limits = {"read": Limits(rate="1/min", callers=[Limits(rate="9/min", principals=["*"])])}
serve(Toolset(read, wipe), policy=policy, limits=limits, audit="audit.jsonl")
"""


@tool
def read() -> str:
    """Read a file."""
    return "read"


@tool
def delete() -> str:
    """Delete a file."""
    return "deleted"


@tool
def wipe() -> str:
    """Delete all files."""
    return "wiped"


def calls_in(path: Path) -> list[tuple[Any, ...]]:
    lines = (json.loads(line) for line in path.read_bytes().splitlines())
    calls = [line for line in lines if line["event"] == "call"]
    named = [(one.get("who"), one.get("tool") or one["called"], one) for one in calls]
    return sorted((who or "", name, one["outcome"], one["ran"]) for who, name, one in named)


async def test_i3_i9_each_caller_over_sse_has_its_own_tools_questions_and_lines(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    roles = {"ann": {"roles": ["boss"]}, "rob": {"roles": ["robot"]}}
    server = ToolsetServer(
        Toolset(read, delete, wipe),
        policy=POLICY,
        limits=LIMITS,
        audit=path,
        auth=Callers(roles),
        approvals=False,
    )
    person = Person({"decision": ONCE}, "decline")
    async with served(server) as url:
        async with (
            client_of(url, "ann", "sse") as ann,
            client_of(url, "rob", "sse") as rob,
            client_of(url, "kim", "sse", elicitation_callback=person) as kim,
        ):
            assert set(await tools(ann)) == {"read", "delete", "wipe"}
            assert set(await tools(rob)) == {"read"}
            assert set(await tools(kim)) == {"read", "delete"}
            assert text_of(await ann.call_tool("wipe", {})) == "wiped"
            for denied in (rob.call_tool("delete", {}), kim.call_tool("wipe", {})):
                with pytest.raises(MCPError, match="Unknown tool"):
                    await denied
            assert text_of(await kim.call_tool("delete", {})) == "deleted"
            assert "the user did not allow it" in text_of(await kim.call_tool("delete", {}))
            assert [(await rob.call_tool("read", {})).is_error for _ in range(2)] == [False, True]
            assert not any([(await ann.call_tool("read", {})).is_error for _ in range(2)])
    assert len(person.asked) == 2
    assert calls_in(path) == [
        ("ann", "read", "result", True),
        ("ann", "read", "result", True),
        ("ann", "wipe", "result", True),
        ("kim", "delete", "refused", False),
        ("kim", "delete", "result", True),
        ("kim", "wipe", "refused", False),
        ("rob", "delete", "refused", False),
        ("rob", "read", "refused", False),
        ("rob", "read", "result", True),
    ]


def test_i3_i9_the_client_on_standard_input_is_one_caller_without_a_name(tmp_path: Path, warm: Warm) -> None:
    line = CommandLine(tmp_path, warm)
    line.write("app.py", APP)
    info = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    asked: list[tuple[str, dict[str, Any]]] = [("initialize", info), ("tools/list", {})]
    asked += [("tools/call", {"name": name, "arguments": {}}) for name in ("read", "read", "wipe")]
    told = "".join(
        json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}) + "\n"
        for number, (method, params) in enumerate(asked)
    )
    said = line.run("serve", "app.py", stdin=told)
    answers = {one["id"]: one for one in map(json.loads, said.stdout.splitlines())}
    assert [one["name"] for one in answers[1]["result"]["tools"]] == ["read"]
    assert sorted("isError" in answers[number]["result"] for number in (2, 3)) == [False, True]
    assert "Unknown tool" in answers[4]["error"]["message"]
    assert calls_in(tmp_path / "audit.jsonl") == [
        ("", "read", "refused", False),
        ("", "read", "result", True),
        ("", "wipe", "refused", False),
    ]
