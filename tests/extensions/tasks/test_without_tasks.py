"""A server that is told to have no tasks serves none, and one that has none yet takes them up."""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.extensions.tasks.jobs import CAPABILITIES, TASKS, Jobs, call
from tests.interaction.raw_client import RawClient, raw_client

from mcp_toolset import RemoteToolset, Toolset, ToolsetServer
from mcp_toolset.errors import DefinitionError
from mcp_toolset.extensions.tasks.tasks import Task
from mcp_toolset.upstream.forwarding import SuspendedCall

pytestmark = pytest.mark.anyio

LEARNING = """
import json, os, sys

tool = {"name": "build", "inputSchema": {"type": "object"}, "execution": {"taskSupport": "optional"}}
knows = os.path.exists(sys.argv[1])
tasks = {"tasks": {"requests": {"tools": {"call": {}}}, "cancel": {}}} if knows else {}

def answer(asked):
    method, params = asked["method"], asked.get("params", {})
    if method == "initialize":
        version = params["protocolVersion"]
        info = {"name": "desk", "version": "1"}
        return {"protocolVersion": version, "capabilities": {"tools": {}, **tasks}, "serverInfo": info}
    if method == "tools/list":
        return {"tools": [tool]}
    if method == "tools/call" and not knows:
        open(sys.argv[1], "w").close()
        sys.exit()
    task = {"taskId": "1", "status": "working", "createdAt": "2026-11-28T00:00:00Z", "ttl": 60000}
    if method == "tools/call":
        return {"task": {**task, "lastUpdatedAt": task["createdAt"]}}
    if method == "tasks/get":
        return {**task, "lastUpdatedAt": task["createdAt"]}
    return {}

for line in sys.stdin:
    asked = json.loads(line)
    if "id" in asked:
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": answer(asked)}), flush=True)
"""


async def declared(client: RawClient) -> dict[str, Any]:
    if client.era == "modern":
        return (await client.ask("server/discover"))["capabilities"]
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
    return (await client.ask("initialize", **hello))["capabilities"]


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_j3_a_server_without_tasks_declares_none_and_answers_calls_with_their_results(era: str) -> None:
    jobs = Jobs()
    jobs.go.set()
    server = jobs.server(tasks=False)
    with anyio.fail_after(60):
        async with server, raw_client(server, era, CAPABILITIES) as client:
            capabilities = await declared(client)
            assert "tasks" not in capabilities and TASKS not in capabilities.get("extensions", {})
            if era == "modern":
                found = await call(client, "build", what="a house")
            else:
                asked = {"name": "build", "arguments": {"what": "a house"}, "task": {}}
                found = await client.ask("tools/call", **asked)
            assert found["content"][0]["text"] == "built a house"
            assert (await client.ask("tasks/get", taskId="1"))["error"]["code"] == -32601


def test_j3_handles_need_tasks() -> None:
    with pytest.raises(DefinitionError, match="task_after makes tasks of slow calls: leave out tasks=False"):
        ToolsetServer(Toolset(), task_after=20, tasks=False)
    with pytest.raises(DefinitionError, match="tasks takes True or False, not 5"):
        ToolsetServer(Toolset(), tasks=5)  # pyright: ignore[reportArgumentType]


def test_j3_a_server_imports_no_tasks_before_there_are_any() -> None:
    program = """
import sys, anyio
from mcp_toolset import Toolset, ToolsetServer, tool

@tool
def echo() -> str: "Say."; return "x"

async def main():
    async with ToolsetServer(Toolset(echo)): pass

anyio.run(main)
print(*(name for name in sys.modules if "tasks.tasks" in name or "task_handles" in name))
"""

    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == ""


async def test_j3_a_mounted_server_that_learns_of_tasks_has_them(tmp_path: Path) -> None:
    (tmp_path / "desk.py").write_text(LEARNING)
    command = [sys.executable, str(tmp_path / "desk.py"), str(tmp_path / "knows")]
    remote = RemoteToolset(command, name="desk", protocol="legacy")
    server = ToolsetServer(Toolset(remote), keep=False)
    with anyio.fail_after(60):
        async with server, raw_client(server, "legacy", {}) as client:
            await server.settled()
            assert "tasks" not in await declared(client)
            assert "task" not in await client.ask("tools/call", name="build", arguments={}, task={})
            while "tasks" not in await declared(client):
                await anyio.lowlevel.checkpoint()
            while "task" not in (
                found := await client.ask("tools/call", name="build", arguments={}, task={})
            ):
                await anyio.lowlevel.checkpoint()
            assert found["task"]["status"] == "working"


SENDING = """
import json, sys

def answer(asked):
    method, params = asked["method"], asked.get("params", {})
    if method == "initialize":
        info = {"name": "desk", "version": "1"}
        version = params["protocolVersion"]
        return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
    if method == "tools/list":
        return {"tools": [{"name": "send", "inputSchema": {"type": "object"}}]}
    return {"content": [{"type": "text", "text": "built"}]}

for line in sys.stdin:
    asked = json.loads(line)
    if "id" in asked and asked["method"] != "server/discover":
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": answer(asked)}), flush=True)
    elif "id" in asked:
        error = {"code": -32601, "message": "Method not found"}
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "error": error}), flush=True)
"""


async def test_u113_what_a_call_came_to_is_not_kept_when_it_has_become_no_task() -> None:
    """Cancelled timers keep the context of their call for its whole time, and what is in it."""
    jobs, before = Jobs(), kept()
    desk = RemoteToolset([sys.executable, "-c", SENDING], name="desk")
    with anyio.fail_after(60):
        async with ToolsetServer(Toolset(jobs.toolset(), desk)) as server:
            async with raw_client(server, "modern", CAPABILITIES) as client:
                for name in ("send", "plain") * 3:
                    assert "content" in await call(client, name)
                new = [each for each in kept() if each not in before]
                assert not [each for each in new if isinstance(each, SuspendedCall) or each.result]


def kept() -> list[SuspendedCall | Task]:
    gc.collect()
    return [each for each in gc.get_objects() if type(each) in (SuspendedCall, Task)]
