"""`start_timeout` is the one deadline of a start, in whatever era and for whatever session."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, MCPError
from tests.faults.harness import until
from tests.support.asking import Person, text_of
from tests.support.bounds import bounds
from tests.support.warm import Warm

from mcp_toolset import RemoteToolset, Toolset, ToolsetServer

pytestmark = pytest.mark.anyio

SLOW = str(Path(__file__).with_name("slow_both.py"))
SILENT = [sys.executable, "-S", "-c", "import sys; sys.stdin.read()"]
LONG = 10.5
"""Seconds to start that are more than what a step of a start was given once."""


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is known of servers from other tests."""
    monkeypatch.setenv("MCP_TOOLSET_CACHE", str(tmp_path / "cache"))


Slow = Callable[..., RemoteToolset]


@pytest.fixture
def slow(tmp_path: Path, warm: Warm) -> Slow:
    """Mounts a server by its name, with the seconds that each of its starts takes."""

    def mounted(name: str, *seconds: float, **options: Any) -> RemoteToolset:
        (tmp_path / name).mkdir()
        command = warm.command(SLOW, str(tmp_path / name), *map(str, seconds))
        return RemoteToolset(command, name=name, **options)

    return mounted


async def test_u85_a_server_that_takes_over_ten_seconds_to_start_asks_a_legacy_client(slow: Slow) -> None:
    asks = slow("asks", 0, LONG, start_timeout=60)
    comes_up = slow("modern", LONG, protocol="modern", start_timeout=60)
    with anyio.fail_after(120):
        async with ToolsetServer(Toolset(asks.prefixed("asks"), comes_up.prefixed("modern"))) as server:
            await until(lambda: asks.status.state == "ready", within=30)
            person = Person({"word": "one"})
            async with Client(
                server.lowlevel, mode="legacy", cache=None, elicitation_callback=person
            ) as client:
                assert text_of(await client.call_tool("asks_ask", {})) == "one"
            await until(lambda: comes_up.status.state == "ready", within=30)
            assert comes_up.connection.protocol_version == "2026-07-28"


async def test_u85_the_legacy_era_is_tried_anew_before_a_call_that_asks_fails(slow: Slow) -> None:
    mount = slow("asks", 0, 1000, 1000, 0, start_timeout=60)
    with anyio.fail_after(120):
        async with ToolsetServer(Toolset(mount)) as server:
            await server.settled()
            sessions = mount.connection.pool
            person = Person({"word": "one"}, {"word": "two"}, {"word": "three"})
            async with Client(
                server.lowlevel, mode="legacy", cache=None, elicitation_callback=person
            ) as client:
                sessions.start_timeout = 0.3
                for _ in range(2):
                    with pytest.raises(MCPError, match="no back-channel"):
                        await client.call_tool("ask", {})
                sessions.start_timeout = 60
                # The tool is not safe to repeat, and has run up to its question.
                again = await client.call_tool("ask", {})
                assert again.is_error and text_of(again).endswith("it has answered by now, so call again")
                assert text_of(await client.call_tool("ask", {})) == "one"


async def test_u85_a_call_that_is_safe_to_repeat_is_repeated_in_the_era_that_can_ask(slow: Slow) -> None:
    mount = slow("asks", 0, 1000, 0, start_timeout=60)
    with anyio.fail_after(120):
        async with ToolsetServer(Toolset(mount)) as server:
            await server.settled()
            person = Person({"word": "one"})
            async with Client(
                server.lowlevel, mode="legacy", cache=None, elicitation_callback=person
            ) as client:
                mount.connection.pool.start_timeout = 0.3
                with pytest.raises(MCPError, match="no back-channel"):
                    await client.call_tool("look", {})
                mount.connection.pool.start_timeout = 60
                assert text_of(await client.call_tool("look", {})) == "one"


async def test_u85_the_session_that_was_tried_anew_is_free_for_other_clients(
    slow: Slow, monkeypatch: pytest.MonkeyPatch
) -> None:
    bounds(monkeypatch, sessions=1)
    mount = slow("asks", 0, 1000, 0, start_timeout=60, timeout=20)
    with anyio.fail_after(120):
        async with ToolsetServer(Toolset(mount)) as server:
            await server.settled()

            def client(person: Person) -> Client:
                return Client(server.lowlevel, mode="legacy", cache=None, elicitation_callback=person)

            async with client(Person()) as one, client(Person({"word": "two"})) as other:
                mount.connection.pool.start_timeout = 0.3
                with pytest.raises(MCPError, match="no back-channel"):
                    await one.call_tool("ask", {})
                mount.connection.pool.start_timeout = 60
                assert "call again" in text_of(await one.call_tool("ask", {}))
                assert text_of(await other.call_tool("ask", {})) == "two"


@pytest.mark.parametrize("protocol", ["auto", "modern", "legacy"])
async def test_u85_a_server_that_does_not_start_is_offline_with_the_deadline_as_the_reason(
    protocol: Any,
) -> None:
    mount = RemoteToolset(SILENT, name="up", protocol=protocol, start_timeout=0.5)
    with anyio.fail_after(30):
        async with ToolsetServer(Toolset(mount)):
            await until(lambda: mount.status.state == "offline", within=20)
            assert mount.status.reason == "no answer within 0.5 s"


async def test_u85_a_server_that_ignores_the_probe_comes_up_with_a_short_deadline() -> None:
    script = """if True:
        import json, sys
        for line in sys.stdin:
            asked = json.loads(line)
            results = {
                "initialize": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                               "serverInfo": {"name": "old", "version": "1"}},
                "tools/list": {"tools": []},
            }
            if asked["method"] in results:
                answer = {"jsonrpc": "2.0", "id": asked["id"], "result": results[asked["method"]]}
                print(json.dumps(answer), flush=True)
    """
    mount = RemoteToolset([sys.executable, "-S", "-c", script], name="up", start_timeout=5)
    with anyio.fail_after(60):
        async with ToolsetServer(Toolset(mount)):
            await until(lambda: mount.status.state == "ready", within=30)
            assert mount.connection.protocol_version == "2025-11-25"
