"""A mounted server that dies, hangs, never starts or comes back as another one."""

from __future__ import annotations

import gc
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest
from tests.faults.harness import (
    SOON,
    alive,
    calls_of,
    descriptors,
    hostile,
    kill,
    mount,
    names,
    pid_of,
    ready,
    received,
    specials,
    tool,
    until,
)
from tests.support.bounds import bounds

from mcp_toolset import RemoteToolset, ToolContext, ToolResult, Toolset, ToolsetServer
from mcp_toolset import tool as local_tool
from mcp_toolset.errors import StateError

pytestmark = pytest.mark.anyio


@local_tool
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


def served(*members: Toolset) -> ToolsetServer:
    return ToolsetServer(Toolset(add, *members))


async def adds(server: ToolsetServer) -> bool:
    with anyio.fail_after(SOON):
        return (await server.call_tool("add", {"a": 1, "b": 2})).structured == {"result": 3}


def offline(server: ToolsetServer, name: str = "up") -> Callable[[], bool]:
    return lambda: server.statuses()[name].state == "offline"


async def test_f1_killed_in_a_call_is_an_error_within_a_second_and_the_call_is_not_repeated(
    log: Path,
) -> None:
    async with served(mount(log=str(log))) as server:
        results: list[ToolResult] = []

        async def call() -> None:
            results.append(await server.call_tool("hang", {}))

        async with anyio.create_task_group() as group:
            group.start_soon(call)
            await until(lambda: calls_of(log, "hang"))
            kill(log)
            began = anyio.current_time()
        assert anyio.current_time() - began < SOON
        assert results[0].is_error
        assert results[0].text.startswith("up: the connection was lost during the call; it may have run")
        await until(ready(server))
        assert not (await server.call_tool("echo", {"n": 1})).is_error
    assert len(calls_of(log, "hang")) == 1


async def test_f1_a_server_that_exits_by_itself_in_a_call_is_the_same(log: Path) -> None:
    async with served(mount(log=str(log))) as server:
        with anyio.fail_after(SOON):
            lost = await server.call_tool("die", {})
        assert lost.is_error and lost.text.startswith("up: the connection was lost")
        await until(ready(server))
    assert len(calls_of(log, "die")) == 1


@pytest.mark.parametrize("way", ["close", "deaf"])
async def test_f1_a_server_that_closes_one_pipe_and_lives_on_is_lost_and_ended(way: str, log: Path) -> None:
    async with served(mount(log=str(log), tools=specials(way))) as server:
        first = pid_of(log)
        with anyio.fail_after(SOON):
            lost = await server.call_tool(way, {}) if way == "close" else None
            if way == "deaf":
                async with anyio.create_task_group() as group:
                    group.start_soon(server.call_tool, "deaf", {})
                    await until(lambda: calls_of(log, "deaf"))
                    while (await server.call_tool("echo", {"x": "y" * 200_000})).text.startswith("{"):
                        pass
        assert lost is None or lost.is_error
        await until(lambda: pid_of(log) != first and not alive(first))
        await until(ready(server))


async def test_f2_killed_while_idle_it_is_offline_with_a_reason_and_comes_back(log: Path) -> None:
    async with served(mount(log=str(log))) as server:
        before = pid_of(log)
        kill(log)
        await until(lambda: pid_of(log) != before and ready(server)())
        assert (await server.call_tool("echo", {"n": 2})).text == '{"n": 2}'
        assert await adds(server)


async def test_f2_f25_the_backoff_grows_to_its_cap_while_every_attempt_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bounds(monkeypatch, first_retry=0.01, longest_retry=0.08)
    waits: list[float | None] = []
    enough = anyio.Event()
    up = mount(last_words="out of order")

    def note() -> None:
        if up.status.state == "offline":
            waits.append(up.status.retry_in)
            if len(waits) == 6:
                enough.set()

    up.on_change(note)
    async with served(up) as server:
        with anyio.fail_after(40):
            await enough.wait()
        assert waits == [0.01, 0.02, 0.04, 0.08, 0.08, 0.08]
        assert "out of order" in server.statuses()["up"].reason


async def test_f25_time_spent_on_failing_does_not_count_as_having_been_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bounds(monkeypatch, stable_after=0.05, first_retry=0.01)
    waits: list[float | None] = []
    third = anyio.Event()
    up = mount(silent=["server/discover", "initialize"], start_timeout=0.3)

    def note() -> None:
        if up.status.state == "offline":
            waits.append(up.status.retry_in)
            if len(waits) == 3:
                third.set()

    up.on_change(note)
    async with served(up):
        with anyio.fail_after(40):
            await third.wait()
    assert waits == [0.01, 0.02, 0.04]


async def test_f3_a_restart_with_other_tools_is_noticed_and_voids_the_grants(
    log: Path, tmp_path: Path
) -> None:
    tools = tmp_path / "tools.json"
    tools.write_text(json.dumps([tool("moved"), tool("gone"), tool("same")]))
    async with served(mount(log=str(log), tools_file=str(tools)).deferred()) as server:
        context = SessionContext()
        resolved = await server.call_tool(
            "resolve_tools", {"ids": ["moved", "gone", "same"]}, context=context
        )
        grants = {each["id"]: each["grant"] for each in resolved.structured["tools"]}
        before = pid_of(log)
        tools.write_text(
            json.dumps([tool("moved", description="Now it deletes."), tool("same"), tool("new")])
        )
        kill(log)
        await until(lambda: pid_of(log) != before and ready(server)() and bool(server.search("new")))

        async def call(name: str) -> ToolResult:
            return await server.call_tool("call_tool", {"grant": grants[name]}, context=context)

        assert "has changed since it was granted" in (await call("moved")).text
        assert "no longer in the catalog" in (await call("gone")).text
        assert not (await call("same")).is_error
    assert [each["params"]["name"] for each in received(log) if each.get("method") == "tools/call"] == [
        "same"
    ]


async def test_f3_a_server_that_comes_back_in_the_other_era_is_spoken_to_in_it(
    log: Path, tmp_path: Path
) -> None:
    script = tmp_path / "script.json"
    script.write_text(json.dumps({"log": str(log)}))
    command = ["/bin/sh", "-c", f'exec "$0" -S "$1" "$(cat {script})"', *hostile()[0:1], hostile()[2]]
    up = RemoteToolset(command, name="up", start_timeout=10)
    async with served(up) as server:
        assert up.connection.protocol_version == "2025-11-25"
        before = pid_of(log)
        script.write_text(json.dumps({"log": str(log), "modern": True, "silent": ["initialize"]}))
        up.connection.pool.start_timeout = 1
        kill(log)
        await until(lambda: pid_of(log) != before and ready(server)())
        assert up.connection.protocol_version == "2026-07-28"


@pytest.fixture
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A health check may take its time."""
    bounds(monkeypatch, silence_told=120)


async def test_f4_a_hang_is_a_deadline_error_that_cancels_upstream(log: Path, unhurried: None) -> None:
    async with served(mount(log=str(log), timeout=0.2)) as server:
        with anyio.fail_after(SOON):
            late = await server.call_tool("hang", {})
        assert late.is_error and late.text == "up: no answer within 0.2 s; it was told to cancel"
        asked = calls_of(log, "hang")[0]["id"]
        await until(lambda: any(each.get("method") == "notifications/cancelled" for each in received(log)))
        cancelled = [each for each in received(log) if each.get("method") == "notifications/cancelled"]
        assert [each["params"]["requestId"] for each in cancelled] == [asked]
        assert server.statuses()["up"].state == "ready"
        # On a busy machine an echo may be late too: what counts is that it is answered.
        with anyio.fail_after(SOON):
            while (echoed := await server.call_tool("echo", {})).is_error:
                assert "no answer within 0.2 s" in echoed.text


async def test_f4_the_deadline_holds_for_a_server_that_reads_nothing(log: Path, unhurried: None) -> None:
    async with served(mount(log=str(log), timeout=0.3, tools=specials("sleep"))) as server:
        async with anyio.create_task_group() as group:
            group.start_soon(server.call_tool, "sleep", {})
            await until(lambda: calls_of(log, "sleep"))
            began = anyio.current_time()
            late = await server.call_tool("echo", {"x": "y" * 1_000_000})
        assert anyio.current_time() - began < SOON
        assert late.is_error and "no answer within 0.3 s" in late.text


async def test_f26_a_caller_that_goes_away_cancels_upstream(log: Path) -> None:
    async with served(mount(log=str(log))) as server:
        async with anyio.create_task_group() as group:
            group.start_soon(server.call_tool, "hang", {})
            await until(lambda: calls_of(log, "hang"))
            group.cancel_scope.cancel()
        await until(lambda: received(log)[-1].get("method") == "notifications/cancelled")


@pytest.mark.parametrize("steps", [["server/discover", "initialize"], ["tools/list"]])
async def test_f5_a_server_that_never_answers_is_alone_unavailable(steps: list[str]) -> None:
    hung = mount("hung", silent=steps, start_timeout=0.5)
    async with served(mount(), hung) as server:
        for _ in range(3):
            with anyio.fail_after(SOON):
                assert not (await server.call_tool("echo", {"n": 1})).is_error
                assert await adds(server)
                assert {"echo", "add"} <= set(names(server))
            status = server.statuses()["hung"]
            assert (
                status.state == "offline"
                and "no" in status.reason
                and "in time" in status.reason.replace("within 0.5 s", "in time")
            )


async def test_f6_a_command_that_is_not_there_leaves_the_others_serving() -> None:
    missing = RemoteToolset(["/nowhere/at-all"], name="missing")
    broken = mount("broken", last_words="Traceback\nKeyError: 'CONFIG'")
    async with served(mount(), missing, broken) as server:
        assert await adds(server)
        assert not (await server.call_tool("echo", {})).is_error
        statuses = server.statuses()
        assert statuses["missing"].state == "offline"
        assert "command not found: /nowhere/at-all" in statuses["missing"].reason
        assert "KeyError: 'CONFIG'" in statuses["broken"].reason


async def test_f6_a_command_beside_the_working_directory_is_found(tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    command = " ".join(f"'{part}'" for part in hostile())
    script.write_text(f"#!/bin/sh\nexec {command}\n")
    script.chmod(0o755)
    async with served(RemoteToolset(["./run.sh"], name="up", cwd=tmp_path)) as server:
        assert server.statuses()["up"].state == "ready", server.statuses()


async def test_f7_tools_of_a_lost_server_stay_listed_and_their_calls_say_that_it_is_offline(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bounds(monkeypatch, first_retry=5)
    async with served(mount(log=str(log))) as server:
        before = names(server)
        kill(log)
        await until(lambda: server.statuses()["up"].retry_in == 5)
        assert names(server) == before
        assert server.statuses()["up"].tools == len(before) - 1
        with anyio.fail_after(SOON):
            refused = await server.call_tool("echo", {})
        assert refused.is_error
        assert refused.text == "up: the server is offline: the connection was lost; next attempt within 5 s"
        assert await adds(server)
    assert calls_of(log, "echo") == []


async def test_f44_a_child_that_ignores_everything_is_killed_with_all_its_own_children(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bounds(monkeypatch, child_grace=0.5)
    async with served(mount(log=str(log), stubborn=True, tools=specials("child"))) as server:
        grandchild = int((await server.call_tool("child", {})).text)
        assert alive(grandchild)
        began = anyio.current_time()
    assert anyio.current_time() - began < SOON
    assert not alive(pid_of(log))
    await until(lambda: not alive(grandchild))


async def test_f44_a_child_of_a_killed_server_does_not_outlive_it(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bounds(monkeypatch, child_grace=0.5)
    async with served(mount(log=str(log), tools=specials("child"))) as server:
        grandchild, first = int((await server.call_tool("child", {})).text), pid_of(log)
        kill(log)
        await until(lambda: pid_of(log) != first and not alive(grandchild))


async def test_f46_cycles_of_crash_and_reconnect_leave_nothing_over(log: Path) -> None:
    async with served(mount(log=str(log))) as server:
        await server.call_tool("echo", {})
        await anyio.wait_all_tasks_blocked()
        gc.collect()
        fds, tasks = descriptors(), len(anyio.get_running_tasks())
        for cycle in range(8):
            before = pid_of(log)
            if cycle % 2:
                kill(log)
            else:
                await server.call_tool("die", {})
            await until(lambda before=before: pid_of(log) != before and ready(server)() and not alive(before))
        assert not (await server.call_tool("echo", {})).is_error
        await until(lambda: (descriptors(), len(anyio.get_running_tasks())) == (fds, tasks))


async def test_f46_cycles_of_failed_starts_leave_no_descriptor_over(log: Path) -> None:
    up = mount(last_words="no")
    attempts = 0
    enough = anyio.Event()

    def note() -> None:
        nonlocal attempts
        attempts += up.status.retry_in is not None
        if attempts == 8:
            enough.set()

    up.on_change(note)
    gc.collect()
    fds = descriptors()
    async with up:
        with anyio.fail_after(40):
            await enough.wait()
    gc.collect()
    assert descriptors() <= fds


async def test_f46_cycles_of_open_and_close_leave_nothing_over(log: Path) -> None:
    up = mount(log=str(log))
    async with up:
        pass
    gc.collect()
    fds, tasks = descriptors(), len(anyio.get_running_tasks())
    for _ in range(5):
        async with served(up) as server:
            assert not (await server.call_tool("echo", {})).is_error
        assert up.status.state == "closed"
    assert (descriptors(), len(anyio.get_running_tasks())) == (fds, tasks)


async def test_f46_a_mount_that_is_open_is_not_opened_again_under_another_owner(log: Path) -> None:
    up = mount(log=str(log))
    async with served(up) as server:
        with pytest.raises(StateError, match="mount 'up' is open already"):
            async with served(up):
                pytest.fail("it cannot have opened")
        assert not (await server.call_tool("echo", {})).is_error
    assert len([entry for entry in received(log) if "started" in entry]) == 1


async def test_f46_cancelling_the_start_at_any_moment_leaves_no_child(log: Path) -> None:
    up = mount(log=str(log), silent=["server/discover"])
    for _ in range(5):
        with anyio.move_on_after(0) as opening:
            opening.deadline = anyio.current_time() + 0.02
            async with up:
                pytest.fail("it cannot have opened")
    started = [entry["started"] for entry in received(log) if "started" in entry]
    await until(lambda: not any(map(alive, started)))
    with pytest.raises(ProcessLookupError):
        for pid in started or [2**22]:
            os.kill(pid, signal.SIGCONT)


class SessionContext(ToolContext):
    """A caller with a session, as a legacy client is."""

    __slots__ = ("session",)

    def __init__(self) -> None:
        self.session = "one"
