"""What clients meet while mounted servers start: handshakes, lists and calls, at the first run and later."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, MCPError
from tests.faults.harness import until
from tests.support.configured import BOUND, Folder, label_of, release, text_of, visitor

from mcp_toolset import CallReport, Rules, ToolsetServer, load_toolset
from mcp_toolset.config import load_config

pytestmark = pytest.mark.anyio
ERAS = pytest.mark.parametrize("era", ["legacy", "modern"])


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def serving(folder: Folder, **options: Any) -> ToolsetServer:
    options = {"keep": folder.path / "kept", **options}
    return ToolsetServer(load_toolset(load_config(folder.config)), **options)


def client_of(server: ToolsetServer, era: str) -> Client:
    mode: Any = "legacy" if era == "legacy" else "auto"
    return Client(server.lowlevel, mode=mode, cache=None)


async def listed(client: Client) -> list[str]:
    return [tool.name for tool in (await client.list_tools()).tools]


class Slow:
    """A server whose start is let through or held: one and the same command, as keeping needs."""

    def __init__(self, folder: Folder, *tools: str, **options: Any) -> None:
        self.folder = folder
        self.gate = folder.gate("start")
        self.script = folder.path / "slow.py"
        self.entry: dict[str, Any] = {"command": folder.entry()["command"], "args": [str(self.script)]}
        self.become(*tools, **options)

    def become(self, *tools: str, held: bool = False, broken: bool = False, **options: Any) -> None:
        plain = self.folder.entry(*tools, **options)["args"]
        head = f"open({self.gate!r}).close()\n" if held else ""
        end = (
            "sys.exit('it is broken')\n" if broken else f"runpy.run_path({plain[0]!r}, run_name='__main__')\n"
        )
        self.script.write_text(f"import runpy, sys\n{head}sys.argv = {plain!r}\n{end}")


@asynccontextmanager
async def later(slow: Slow) -> AsyncGenerator[None]:
    """Let the server start as soon as everybody waits for it."""
    async with anyio.create_task_group() as group:
        group.start_soon(release, slow.gate)
        yield


async def first_run(folder: Folder) -> None:
    """One run in which every server is reached, and what they list is kept."""
    async with serving(folder) as server:
        await server.settled()


@ERAS
async def test_u8_a_handshake_waits_for_no_server_and_a_list_not_for_long(folder: Folder, era: str) -> None:
    slow = Slow(folder, "a", held=True)
    folder.write({"up": slow.entry})
    with anyio.fail_after(BOUND):
        async with client_of(serving(folder, list_timeout=0.2), era) as client:
            assert await listed(client) == []
            await release(slow.gate)


@ERAS
async def test_u8_a_deferred_hub_has_its_own_tools_at_once(folder: Folder, era: str) -> None:
    slow = Slow(folder, "a", held=True)
    folder.write({"up": {**slow.entry, "deferred": True}})
    with anyio.fail_after(BOUND):
        async with client_of(serving(folder, list_timeout=10 * BOUND), era) as client:
            assert (await listed(client))[0] == "search_tools"
            async with later(slow):
                found = await client.call_tool("search_tools", {"query": "the tool a"})
            assert [hit["id"] for hit in found.structured_content["hits"]] == ["up_a"]  # type: ignore[index]


async def test_u8_a_first_resolve_waits_for_a_server_that_was_never_listed(folder: Folder) -> None:
    slow = Slow(folder, "a", held=True)
    folder.write({"up": {**slow.entry, "deferred": True}})
    with anyio.fail_after(BOUND):
        async with client_of(serving(folder, list_timeout=10 * BOUND), "modern") as client:
            async with later(slow):
                answer: Any = await client.call_tool("resolve_tools", {"ids": ["up_a"]})
            assert [one["status"] for one in answer.structured_content["tools"]] == ["granted"]


@ERAS
async def test_u8_the_first_list_waits_for_a_server_that_was_never_listed(folder: Folder, era: str) -> None:
    slow = Slow(folder, "a", held=True, prompt="p")
    folder.write({"up": slow.entry})
    with anyio.fail_after(BOUND):
        async with client_of(serving(folder, list_timeout=10 * BOUND), era) as client:
            async with later(slow):
                assert await listed(client) == ["up_a"]
            assert [prompt.name for prompt in (await client.list_prompts()).prompts] == ["p"]


async def test_u8_a_call_and_a_prompt_wait_for_a_server_of_which_nothing_is_known(folder: Folder) -> None:
    slow = Slow(folder, "a", held=True, prompt="p")
    folder.write({"up": slow.entry})
    with anyio.fail_after(BOUND):
        async with client_of(serving(folder, list_timeout=10 * BOUND), "modern") as client, later(slow):
            assert label_of(text_of(await client.call_tool("up_a", {})))[0] == "1"
            assert client.server_capabilities.prompts is not None


async def test_u8_a_call_waits_for_the_server_of_its_tool_alone(folder: Folder) -> None:
    slow = Slow(folder, "a", held=True)
    silent = {"command": slow.entry["command"], "args": ["-c", "import sys; sys.stdin.read()"]}
    folder.write({"never": {**silent, "start_timeout": 10 * BOUND}, "up": slow.entry})
    with anyio.fail_after(BOUND):
        async with client_of(serving(folder, list_timeout=0.1), "modern") as client, later(slow):
            assert label_of(text_of(await client.call_tool("up_a", {})))[0] == "1"


async def test_u8_a_configuration_says_how_long_its_lists_wait(folder: Folder) -> None:
    slow = Slow(folder, "a", held=True)
    folder.write({"up": slow.entry}, list_timeout=0.2)
    with anyio.fail_after(BOUND):
        async with client_of(serving(folder), "modern") as client:
            assert await listed(client) == []
            async with later(slow):
                assert label_of(text_of(await client.call_tool("up_a", {})))[0] == "1"


@ERAS
async def test_u8_lists_are_those_of_the_last_run_and_a_call_waits(folder: Folder, era: str) -> None:
    slow = Slow(folder, "a", "b", prompt="p", uri="plain://r")
    folder.write({"up": slow.entry})
    with anyio.fail_after(BOUND):
        await first_run(folder)
        slow.become("a", "b", held=True, prompt="p", uri="plain://r", label="2")
        server = serving(folder, list_timeout=10 * BOUND)
        async with client_of(server, era) as client:
            assert await listed(client) == ["up_a", "up_b"]
            assert [prompt.name for prompt in (await client.list_prompts()).prompts] == ["p"]
            assert [str(one.uri) for one in (await client.list_resources()).resources] == ["plain://r"]
            assert server.statuses()["up"].state == "starting"
            async with later(slow):
                assert label_of(text_of(await client.call_tool("up_a", {})))[0] == "2"


@ERAS
async def test_u8_clients_are_told_when_the_real_list_is_another_one(folder: Folder, era: str) -> None:
    slow = Slow(folder, "a", "b")
    folder.write({"up": slow.entry})
    with anyio.fail_after(BOUND):
        await first_run(folder)
        slow.become("a", "c", held=True)
        server = serving(folder)
        async with server.opened(), visitor(server.lowlevel, era) as (client, told):
            assert await listed(client) == ["up_a", "up_b"]
            assert told == []
            await release(slow.gate)
            await until(lambda: "tools" in told)
            assert await listed(client) == ["up_a", "up_c"]


async def test_u8_a_call_runs_only_as_the_definition_that_the_server_lists_now(folder: Folder) -> None:
    slow = Slow(folder, "a", "b")
    folder.write({"up": slow.entry})
    with anyio.fail_after(BOUND):
        await first_run(folder)
        slow.become("a", held=True, wide=True)
        async with client_of(serving(folder), "modern") as client:
            assert await listed(client) == ["up_a", "up_b"]
            answers: dict[str, Any] = {}

            async def call(name: str) -> None:
                answers[name] = await client.call_tool(name, {})

            async with anyio.create_task_group() as group:
                for name in ("up_a", "up_b"):
                    group.start_soon(call, name)
                group.start_soon(release, slow.gate)
            assert "a has changed since the last run" in text_of(answers["up_a"])
            assert "b is gone: the server listed it in the last run" in text_of(answers["up_b"])
            assert answers["up_a"].is_error and answers["up_b"].is_error
            assert label_of(text_of(await client.call_tool("up_a", {})))[0] == "1"


async def test_u8_a_deferred_tool_of_the_last_run_is_found_granted_and_called(folder: Folder) -> None:
    slow = Slow(folder, "a")
    folder.write({"up": {**slow.entry, "deferred": True}})
    with anyio.fail_after(BOUND):
        await first_run(folder)
        slow.become("a", held=True)
        async with client_of(serving(folder), "modern") as client:
            found: Any = (
                await client.call_tool("search_tools", {"query": "the tool a", "resolve": 1})
            ).structured_content
            assert "state" not in found["hits"][0]
            async with later(slow):
                called = await client.call_tool("call_tool", {"grant": found["resolved"][0]["grant"]})
            assert label_of(text_of(called))[0] == "1"


@pytest.mark.parametrize("kept", [True, False])
async def test_u12_a_call_of_a_tool_whose_server_is_down_says_so(folder: Folder, *, kept: bool) -> None:
    slow = Slow(folder, "a")
    folder.write({"up": slow.entry, "behind": {**folder.entry("z"), "deferred": True}})
    options: dict[str, Any] = {} if kept else {"keep": False, "state": folder.path / "state.json"}
    with anyio.fail_after(BOUND):
        async with serving(folder, **options) as server:
            await server.settled()
        slow.become("a", broken=True)
        behind = {"command": "no-such-program", "deferred": True}
        folder.write({"up": slow.entry, "behind": behind})
        heard: list[CallReport] = []
        rules = Rules(observers=[heard.append])
        async with client_of(serving(folder, rules=rules, **options), "modern") as client:
            answer = await client.call_tool("up_a", {})
            assert answer.is_error
            assert "offline" in text_of(answer) and "it is broken" in text_of(answer)
            assert [(one.tool, one.server) for one in heard] == [("up_a", "up")]
            if not kept:
                assert (heard[0].outcome, heard[0].reason) == ("refused", "the server is not ready")
            # What is behind search is as unknown as before.
            with pytest.raises(Exception, match="Unknown tool"):
                await client.call_tool("behind_z", {})


async def test_u8_nothing_secret_is_kept(folder: Folder) -> None:
    secret = "a-token-of-26-characters"
    folder.write({"up": folder.entry("a", env={"TOKEN": secret}, says=f"Log in with {secret}.")})
    with anyio.fail_after(BOUND):
        await first_run(folder)
    (file,) = (folder.path / "kept").glob("*.json")
    assert secret not in file.read_text()
    assert json.loads(file.read_text())["instructions"] == "Log in with ***."
    assert file.stat().st_mode & 0o777 == 0o600


@ERAS
async def test_u41_a_tool_of_a_server_that_never_came_up_is_refused_with_the_state_of_the_server(
    folder: Folder, era: str
) -> None:
    folder.write({"broken": {"command": "no-such-command"}, "here": folder.entry("a")})
    with anyio.fail_after(2 * BOUND):
        async with serving(folder) as server, client_of(server, era) as client:
            await server.settled()
            with pytest.raises(MCPError, match="broken_x is not available: server `broken` is offline: "):
                await client.call_tool("broken_x", {})
            assert "here_a" in await listed(client)
