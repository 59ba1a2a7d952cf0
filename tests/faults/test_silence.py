"""Mounted servers that stop to answer while their connection stays open: found out, told, started again."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import anyio
import pytest
from mcp import Client
from tests.faults.harness import (
    ROOT,
    SOON,
    alive,
    calls_of,
    hostile_http,
    mount,
    pid_of,
    ready,
    received,
    until,
)
from tests.interaction.desk import Desk
from tests.support.asking import text_of
from tests.support.bounds import bounds

from mcp_toolset import RemoteToolset, SourceStatus, ToolResult, Toolset, ToolsetServer

pytestmark = pytest.mark.anyio
OVERDUE = 0.3


def stop(pid: int) -> None:
    """Stop a child; on a busy machine some of its threads run on for a while, which is waited for."""
    os.kill(pid, signal.SIGSTOP)
    os.waitid(os.P_PID, pid, os.WSTOPPED)


def go_on(pid: int) -> None:
    os.kill(pid, signal.SIGCONT)


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is silent is given up soon."""
    bounds(monkeypatch, silence=1.5, silence_timeout=1.5)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is silent is told of soon, and not given up while the test runs."""
    bounds(monkeypatch, silence_timeout=120)


def status(server: ToolsetServer) -> SourceStatus:
    return server.statuses()["up"]


async def overdue(server: ToolsetServer) -> None:
    """A call that gets no answer, and then the word of its mount's status."""
    with anyio.fail_after(SOON):
        missed = await server.call_as_host("echo", {})
    assert missed.is_error and "no answer within" in missed.text
    await until(lambda: status(server).state == "offline", within=SOON)
    assert status(server).reason.startswith("it does not answer: a call got no answer within 0.3 s")


async def works(server: ToolsetServer) -> None:
    await until(ready(server))
    # The answer may take its time on a busy machine, which is told like any other silence.
    with anyio.fail_after(SOON):
        while (await server.call_tool("echo", {"n": 1})).text != '{"n": 1}':
            await until(ready(server))


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_u41_a_stopped_server_is_told_refuses_calls_and_is_started_again(
    era: str, log: Path, hasty: None
) -> None:
    async with ToolsetServer(Toolset(mount(log=str(log), timeout=OVERDUE, modern=era == "modern"))) as server:
        stop(stopped := pid_of(log))
        await overdue(server)
        refused = await server.call_tool("echo", {"second": True})
        assert refused.is_error and refused.text.startswith("up: the server is offline: it does not answer")
        await until(lambda: pid_of(log) != stopped and not alive(stopped), within=SOON)
        await works(server)
        assert not status(server).reason
    asked = [entry.get("method") for entry in received(log)]
    assert not any(call["params"].get("arguments", {}).get("second") for call in calls_of(log, "echo"))
    assert ("ping" not in asked) if era == "modern" else ("server/discover" in asked)


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_u41_a_stopped_server_that_goes_on_in_time_is_not_started_again(
    era: str, log: Path, patient: None
) -> None:
    async with ToolsetServer(Toolset(mount(log=str(log), timeout=OVERDUE, modern=era == "modern"))) as server:
        stop(stopped := pid_of(log))
        await overdue(server)
        go_on(stopped)
        await works(server)
        assert pid_of(log) == stopped


async def test_u41_the_hits_of_a_deferred_hub_say_so(log: Path, patient: None) -> None:
    async with ToolsetServer(mount(log=str(log), timeout=OVERDUE).deferred()) as server:

        async def state() -> tuple[str, str]:
            found = await server.call_tool("search_tools", {"query": "echo"})
            assert found.structured is not None
            hit = found.structured["hits"][0]
            return hit.get("state", "available"), hit.get("reason") or ""

        stop(pid_of(log))
        assert await state() == ("available", "")
        await overdue(server)
        told, reason = await state()
        assert told == "offline" and "it does not answer" in reason


async def test_u41_a_slow_server_that_answers_health_checks_is_never_given_up(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Its one slowness here is that of its calls, however busy the machine is.
    bounds(monkeypatch, silence_told=120)
    up = mount(log=str(log), timeout=0.1)
    async with ToolsetServer(Toolset(up)) as server:
        states: list[str] = []
        end = up.on_change(lambda: states.append(up.status.state))
        with anyio.fail_after(SOON):
            # A further health check begins only once the one before was answered.
            while sum(entry.get("method") == "ping" for entry in received(log)) < 3:
                assert "no answer within" in (await server.call_tool("hang", {})).text
        end()
        assert "offline" not in states
        assert len([entry for entry in received(log) if "started" in entry]) == 1


async def test_u41_a_call_in_flight_fails_with_the_reason_and_one_given_up_by_its_client_counts(
    log: Path, hasty: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    bounds(monkeypatch, given_up_after=0)
    async with ToolsetServer(Toolset(mount(log=str(log), timeout=600))) as server:
        results: list[ToolResult] = []

        async def call() -> None:
            results.append(await server.call_tool("hang", {}))

        async with anyio.create_task_group() as group:
            group.start_soon(call)
            await until(lambda: calls_of(log, "hang"))
            stop(pid_of(log))
            with anyio.move_on_after(OVERDUE):
                await server.call_tool("echo", {})
            await until(lambda: results, within=SOON)
        assert results[0].is_error and results[0].text.startswith("up: it does not answer")
        assert results[0].text.endswith("the call may have run and was not repeated")
        await until(ready(server))


async def test_u41_a_stopped_http_server_is_offline_until_it_goes_on(hasty: None) -> None:
    with hostile_http() as (port, process):
        up = RemoteToolset(f"http://127.0.0.1:{port}/mcp", name="up", timeout=OVERDUE, start_timeout=20)
        async with ToolsetServer(Toolset(up)) as server:
            stop(process.pid)
            await overdue(server)
            await until(lambda: status(server).retry_in is not None, within=SOON)
            assert (await server.call_tool("echo", {})).text.startswith("up: the server is offline")
            go_on(process.pid)
            await works(server)


async def test_u41_the_session_of_one_client_is_given_up_and_replaced_by_itself(hasty: None) -> None:
    command = [sys.executable, "-S", str(ROOT / "tests/interaction/session_server.py")]
    up = RemoteToolset(command, name="up", start_timeout=20, timeout=OVERDUE)
    async with ToolsetServer(Toolset(up)) as server:
        async with Client(
            server.lowlevel, mode="legacy", cache=None, elicitation_callback=Desk().elicit
        ) as client:

            async def who() -> str:
                return text_of(await client.call_tool("who", {}))

            mine = await who()
            while not mine.isdigit():
                mine = await who()
            stop(int(mine))
            assert "no answer within" in await who()
            await until(lambda: "of some clients" in status(server).reason, within=SOON)
            assert status(server).state == "ready"
            assert "it does not answer" in await who()
            await until(lambda: not status(server).reason, within=SOON)
            with anyio.fail_after(SOON):
                while not (other := await who()).isdigit():
                    pass
            assert other != mine
            await until(lambda: not alive(int(mine)))
