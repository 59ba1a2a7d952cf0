"""The shortest programs, run as they stand."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, MCPError, StdioServerParameters
from mcp_types import TextContent
from tests.support.warm import Warm

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
ANN, BOB = "ann-0123456789abcdef", "bob-0123456789abcdef"
PATH = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"


def program(name: str, warm: Warm, cwd: Path | None = None) -> StdioServerParameters:
    command, *arguments = warm.command(str(EXAMPLES / name / "app.py"))
    return StdioServerParameters(
        command=command,
        args=arguments,
        env={"PATH": PATH, "PYTHONWARNINGS": "error", "MCP_TOOLSET_CACHE": "off"},
        cwd=cwd or ROOT,
    )


def text_of(result: Any) -> str:
    return "\n".join(block.text for block in result.content if isinstance(block, TextContent))


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_l4_a_function_is_a_server(mode: str, warm: Warm) -> None:
    with anyio.fail_after(30):
        async with Client(program("local_tool", warm), mode=mode) as client:
            (tool,) = (await client.list_tools()).tools
            assert (tool.name, tool.description) == ("add", "Add two numbers.")
            assert (await client.call_tool("add", {"a": 2, "b": 3})).structured_content == {"result": 5}


async def test_f6_a_mount_that_is_down_is_no_obstacle_and_a_deferred_one_is_found(warm: Warm) -> None:
    with anyio.fail_after(60):
        async with Client(program("mounted", warm)) as client:
            names = [tool.name for tool in (await client.list_tools()).tools]
            assert names == ["add", "search_tools", "resolve_tools", "call_tool", "call_read_only_tool"]
            assert (await client.call_tool("add", {"a": 2, "b": 3})).structured_content == {"result": 5}
            hits: list[Any] = []
            while not hits:
                # A search waits for a server that starts, 5 s at most; this one may take longer.
                found = await client.call_tool("search_tools", {"query": "commit history", "resolve": 1})
                assert found.structured_content is not None
                hits = found.structured_content["resolved"]
            (resolved,) = hits
            assert resolved["id"] == "git_log"
            log = {"grant": resolved["grant"], "arguments": {"repo_path": str(ROOT), "max_count": 1}}
            assert "Commit" in text_of(await client.call_tool("call_tool", log))
            with pytest.raises(MCPError, match="Unknown tool: git_status"):
                await client.call_tool("git_status", {"repo_path": str(ROOT)})


async def test_u111_the_first_program_of_the_readme_does_what_it_says(warm: Warm) -> None:
    with anyio.fail_after(60):
        async with Client(program("bridge", warm)) as client:
            names = [tool.name for tool in (await client.list_tools()).tools]
            assert names == ["add", "search_tools", "resolve_tools", "call_tool", "call_read_only_tool"]
            assert (await client.call_tool("add", {"a": 2, "b": 3})).structured_content == {"result": 5}
            refused = await client.call_tool("add", {"a": 2000, "b": 3})
            assert "a must be below 1000" in text_of(refused)
            hits: list[Any] = []
            while not hits:
                found = await client.call_tool("search_tools", {"query": "commit history", "resolve": 1})
                assert found.structured_content is not None
                hits = found.structured_content["resolved"]
            assert hits[0]["id"] == "git_log"


async def test_l17_l26_hooks_reject_and_describe(warm: Warm) -> None:
    with anyio.fail_after(30):
        async with Client(program("hooks", warm)) as client:
            (tool,) = (await client.list_tools()).tools
            assert tool.description == "Tell the weather. Use metric units."
            assert text_of(await client.call_tool("weather", {"city": "Bern"})) == "It is sunny in Bern."
            blank = await client.call_tool("weather", {"city": "  "})
            assert blank.is_error and text_of(blank) == "Rejected: city must not be blank"


async def test_p3_an_mcp_servers_file_runs_as_it_is(warm: Warm) -> None:
    with anyio.fail_after(60):
        async with Client(program("config", warm, cwd=EXAMPLES / "config")) as client:
            names: set[str] = set()
            while "time_get_current_time" not in names:
                # The first list waits for a server that starts, 5 s at most; this one may take longer.
                names = {tool.name for tool in (await client.list_tools()).tools}
                assert "search_tools" in names
                await anyio.sleep(0.05)
            now = await client.call_tool("time_get_current_time", {"timezone": "Europe/Zurich"})
            assert not now.is_error


@pytest.mark.needs("model_loop")
def test_l1_a_loop_that_the_application_owns(warm: Warm) -> None:
    from tests.extensions.model_loop.endpoint import scripted

    when = {"timezone": "Europe/Zurich"}
    calls = [("c1", "add", {"a": 20, "b": 22}), ("c2", "get_current_time", when)]
    app = warm.command(str(EXAMPLES / "owned_loop" / "app.py"))
    with scripted([calls, "42, and it is late."]) as endpoint:
        provider = {"OPENAI_BASE_URL": f"{endpoint.url}/v1", "OPENAI_API_KEY": "none"}
        environment = {"PATH": PATH, "PYTHONWARNINGS": "error", **provider}
        done = subprocess.run(app, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "42, and it is late.\n"), done.stderr
    first, second = endpoint.asked
    assert {tool["function"]["name"] for tool in first["tools"]} == {
        "add",
        "get_current_time",
        "convert_time",
    }
    assistant, added, time = second["messages"][1:]
    assert assistant["tool_calls"][0]["id"] == "c1"
    assert (added["role"], added["tool_call_id"], added["content"]) == ("tool", "c1", "42")
    assert time["tool_call_id"] == "c2" and "Europe/Zurich" in time["content"]


@pytest.mark.needs("inbound_auth")
async def test_x5_grants_outlive_the_program_and_the_host_has_its_say(tmp_path: Path, warm: Warm) -> None:
    parameters = program("grants", warm)
    assert parameters.env is not None
    parameters.env |= {"GRANTS": str(tmp_path / "grants.db"), "ANN_TOKEN": ANN, "BOB_TOKEN": BOB}
    with anyio.fail_after(60):
        async with Client(parameters) as client:
            found = await client.call_tool("search_tools", {"query": "delete an invoice", "resolve": 2})
            assert found.structured_content is not None
            hits = {
                hit["id"]: (hit.get("state"), hit.get("reason")) for hit in found.structured_content["hits"]
            }
            assert hits["delete_invoice"] == ("unauthorised", "ask the accountant to do it")
            grants = {one["id"]: one.get("grant") for one in found.structured_content["resolved"]}
            assert grants["delete_invoice"] is None
        async with Client(parameters) as client:
            read = {"grant": grants["read_invoice"], "arguments": {"number": 7}}
            assert "paid" in text_of(await client.call_tool("call_read_only_tool", read))


@pytest.mark.needs("model_loop")
def test_s3_a_round_of_a_class_of_tools_is_matched_as_the_page_says(warm: Warm) -> None:
    app = warm.command(str(EXAMPLES / "typed_calls" / "app.py"))
    done = subprocess.run(app, capture_output=True, text=True, timeout=60, check=False)
    page = (ROOT / "docs" / "typed-calls.md").read_text()
    assert done.returncode == 0 and f"```text\n{done.stdout}```" in page, done.stderr
