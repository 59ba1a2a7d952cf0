"""What an upstream may put on the wire: garbage, floods, monsters; and who else feels it."""

from __future__ import annotations

import json
import logging
import tracemalloc
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.faults.harness import SOON, calls_of, mount, names, pid_of, ready, received, specials, tool, until
from tests.support.bounds import bounds

from mcp_toolset import ToolCall, ToolContext, ToolResult, Toolset, ToolsetServer
from mcp_toolset.context import request as delivery
from mcp_toolset.errors import UpstreamProtocolError
from mcp_toolset.tools.call import LOCAL_CONTEXT

pytestmark = pytest.mark.anyio


class Listener(ToolContext):
    """A caller that takes reports, as slowly as it is told to."""

    __slots__ = ("gate", "heard")

    def __init__(self, gate: anyio.Event | None = None) -> None:
        self.heard: list[Any] = []
        self.gate = gate

    @property
    def wants_progress(self) -> bool:
        return True

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        if self.gate is not None:
            await self.gate.wait()
        self.heard.append(("progress", progress))

    async def notify(self, method: str, params: Any) -> None:
        if self.gate is not None:
            await self.gate.wait()
        self.heard.append((method, params["data"]))


def served(*members: Toolset) -> ToolsetServer:
    return ToolsetServer(Toolset(*members))


async def test_f8_garbage_among_the_messages_is_skipped_and_counted(
    log: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with served(mount(log=str(log), tools=specials("garbage"))) as server:
        before = pid_of(log)
        for _ in range(2):
            with anyio.fail_after(SOON):
                assert (await server.call_tool("garbage", {"lines": 800})).text == "done"
        assert not (await server.call_tool("echo", {})).is_error
        assert pid_of(log) == before
    # Seven of the eight kinds of lines are neither messages nor blank.
    assert "1400 lines of its stdout were no messages and were skipped" in caplog.text


async def test_f8_too_much_garbage_ends_the_connection_with_the_reason(
    log: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="mcp_toolset.upstream.up")
    async with served(mount(log=str(log), tools=specials("garbage"))) as server:
        before = pid_of(log)
        with anyio.fail_after(SOON):
            assert (await server.call_tool("garbage", {"lines": 5000})).is_error
        await until(lambda: pid_of(log) != before and ready(server)())
        assert "offline: more than 1000 lines in a row on its stdout were no messages" in caplog.text
        assert not (await server.call_tool("echo", {})).is_error


async def test_u113_a_mount_that_floods_is_cut_with_the_reason_and_others_go_on(
    log: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    bounds(monkeypatch, flood_burst=1024 * 1024, flood_per_second=1)
    caplog.set_level(logging.INFO, logger="mcp_toolset.upstream.up")
    async with served(mount(log=str(log), tools=[tool("flood")]), mount("other")) as server:
        before = pid_of(log)
        async with anyio.create_task_group() as group:
            group.start_soon(server.call_tool, "flood", {"count": 100_000})
            with anyio.fail_after(SOON):
                for _ in range(20):
                    assert not (await server.call_tool("echo", {})).is_error
            await until(lambda: "floods the connection" in caplog.text)
        await until(lambda: pid_of(log) != before and ready(server)())
        assert (await server.call_tool("flood", {"count": 1})).text == "done"


async def test_f8_wrong_and_repeated_ids_are_passed_over() -> None:
    async with served(mount(tools=specials("ids"))) as server:
        for number in range(20):
            with anyio.fail_after(SOON):
                assert (await server.call_tool("ids", {})).text == "done"
                assert json.loads((await server.call_tool("echo", {"n": number})).text) == {"n": number}


@pytest.mark.parametrize(("name", "depth"), [("deep", 300), ("deep", 100_000), ("deep_last", 5000)])
async def test_f9_an_answer_that_cannot_be_read_fails_its_call_at_once(name: str, depth: int) -> None:
    async with served(mount(tools=specials(name))) as server:
        with (
            anyio.fail_after(SOON),
            pytest.raises(UpstreamProtocolError, match="up: its answer cannot be read"),
        ):
            await server.call_tool(name, {"depth": depth})
        assert not (await server.call_tool("echo", {})).is_error


async def test_f11_an_answer_over_the_limit_fails_early_and_in_constant_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bounds(monkeypatch, stdio_message=1_000_000)
    async with served(mount(tools=specials("big"))) as server:
        await server.call_tool("big", {"size": 100_000})
        tracemalloc.start()
        try:
            with anyio.fail_after(40), pytest.raises(UpstreamProtocolError, match="more than 1000000 bytes"):
                await server.call_tool("big", {"size": 100_000_000})
            assert tracemalloc.get_traced_memory()[1] < 10_000_000
        finally:
            tracemalloc.stop()
        assert not (await server.call_tool("echo", {})).is_error


async def test_f11_a_big_answer_under_the_limit_takes_time_in_proportion() -> None:
    async with served(mount(tools=specials("big"), timeout=60)) as server:
        with anyio.fail_after(40):
            assert len((await server.call_tool("big", {"size": 30_000_000})).text) == 30_000_000


async def test_f10_a_flood_of_reports_reaches_its_call_and_others_are_served_meanwhile() -> None:
    flooding = mount("flooding", tools=specials("flood"), timeout=60)
    async with served(mount("calm").prefixed("calm"), flooding.prefixed("f")) as server:
        listener = Listener()
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: server.call_tool("f_flood", {"count": 5000}, context=listener))
            for _ in range(5):
                with anyio.fail_after(SOON):
                    assert not (await server.call_tool("calm_echo", {})).is_error
    assert len(listener.heard) == 10_000


async def test_f10_reports_for_a_caller_that_takes_none_are_bounded_and_the_oldest_go(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bounds(monkeypatch, reports_waiting=256)
    gate, added = anyio.Event(), list[Any]()
    listener, add = Listener(gate), delivery.Delivery.add

    def counted(self: delivery.Delivery, send: Any, message: Any) -> int:
        added.append(message)
        return add(self, send, message)

    monkeypatch.setattr(delivery.Delivery, "add", counted)
    async with served(mount(tools=specials("flood"), timeout=60)) as server:
        with anyio.fail_after(40):
            async with anyio.create_task_group() as group:
                group.start_soon(lambda: server.call_tool("flood", {"count": 5000}, context=listener))
                await until(lambda: len(added) == 10_000)
                assert len(anyio.get_running_tasks()) < 50
                gate.set()
    assert 0 < len(listener.heard) <= 257
    assert ("notifications/message", 4999) in listener.heard
    assert ("notifications/message", 1) not in listener.heard


async def test_f10_a_caller_that_takes_no_reports_gets_its_result_and_none_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bounds(monkeypatch, report_timeout=0.05)
    listener = Listener(anyio.Event())
    async with served(mount(tools=specials("flood"), timeout=60)) as server:
        with anyio.fail_after(40):
            assert not (await server.call_tool("flood", {"count": 50}, context=listener)).is_error
        assert listener.gate is not None
        listener.gate.set()
        await anyio.wait_all_tasks_blocked()
    assert listener.heard == []


async def test_f10_reports_that_belong_to_nobody_are_dropped() -> None:
    one, two = Listener(), Listener()
    async with served(mount(tools=specials("flood"))) as server:
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: server.call_tool("hang", {}, context=one))
            await anyio.wait_all_tasks_blocked()
            await server.call_tool("flood", {"count": 10}, context=two)
            group.cancel_scope.cancel()
    assert one.heard == []
    assert {kind for kind, _ in two.heard} == {"progress"}


async def test_f12_twenty_megabytes_on_stderr_are_drained_and_the_last_lines_kept() -> None:
    up = mount(tools=specials("stderr"), timeout=60)
    async with served(up) as server:
        with anyio.fail_after(40):
            assert (await server.call_tool("stderr", {"bytes": 20_000_000})).text == "done"
        assert not (await server.call_tool("echo", {})).is_error


async def test_f13_a_storm_of_changes_becomes_few_listings(log: Path) -> None:
    async with served(mount(log=str(log), tools=specials("storm"))) as server:
        for _ in range(3):
            assert (await server.call_tool("storm", {"count": 1000})).text == "done"
        await until(lambda: len(listings(log)) >= 2)
        await server.call_tool("echo", {})
    assert 2 <= len(listings(log)) <= 4


def listings(log: Path) -> list[dict[str, Any]]:
    return [entry for entry in received(log) if entry.get("method") == "tools/list"]


async def test_f14_a_call_ends_on_the_tools_it_began_with(log: Path) -> None:
    results: list[ToolResult] = []
    up = mount(log=str(log), tools=specials("change", "answer_held"))
    async with served(up) as server:

        async def change() -> None:
            results.append(await server.call_tool("change", {"then": "hang"}))

        async with anyio.create_task_group() as group:
            group.start_soon(change)
            await until(lambda: "other" in names(server))
            assert "change" not in names(server)
            # What is not listed any more can still be told to the server by the one connection.
            held = calls_of(log, "change")[0]["id"]
            dispatcher = up.connection._listing.main.dispatcher
            assert dispatcher is not None
            await dispatcher.send_raw_request(
                "tools/call", {"name": "answer_held", "arguments": {"id": held}}
            )
    assert [result.text for result in results] == ["done"]


async def test_f28_a_thousand_concurrent_calls_and_none_is_crossed() -> None:
    answers: dict[int, Any] = {}
    async with served(mount(timeout=60)) as server:

        async def call(number: int) -> None:
            answers[number] = json.loads((await server.call_tool("echo", {"n": number})).text)

        with anyio.fail_after(30):
            async with anyio.create_task_group() as group:
                for number in range(1000):
                    group.start_soon(call, number)
    assert answers == {number: {"n": number} for number in range(1000)}


async def test_f28_more_calls_than_an_upstream_is_given_at_once_wait_within_their_own_deadline(
    log: Path,
) -> None:
    results: list[ToolResult] = []
    async with served(mount(log=str(log), timeout=5)) as server:

        async def call() -> None:
            results.append(await server.call_tool("hang", {}))

        with anyio.fail_after(SOON):
            async with anyio.create_task_group() as group:
                for _ in range(300):
                    group.start_soon(call)
                await until(lambda: len(calls_of(log, "hang")) == 256)
                await anyio.wait_all_tasks_blocked()
                assert len(calls_of(log, "hang")) == 256
        assert len(results) == 300
        assert all("no answer within 5 s" in result.text for result in results)
        assert not (await server.call_tool("echo", {})).is_error


async def test_codes_that_a_server_chose_itself_are_its_own_and_do_not_end_the_connection(log: Path) -> None:
    async with served(mount(log=str(log))) as server:
        before = pid_of(log)
        for code in (-32000, -32001, -32603, 7):
            with pytest.raises(UpstreamProtocolError) as refused:
                await server.call_tool("refuse", {"code": code})
            assert refused.value.code == code
        assert pid_of(log) == before


async def test_what_no_json_can_carry_fails_its_own_call_alone(log: Path) -> None:
    up = mount(log=str(log))
    async with served(up) as server:
        before = pid_of(log)
        async with anyio.create_task_group() as group:
            group.start_soon(server.call_tool, "hang", {})
            await until(lambda: calls_of(log, "hang"))
            echo = up.connection.snapshot.tools["echo"].definition
            for value in ("\ud800", object()):
                with (
                    anyio.fail_after(SOON),
                    pytest.raises(UpstreamProtocolError, match="no JSON can carry this"),
                ):
                    await up.connection.call(echo, ToolCall("echo", {"x": value}), LOCAL_CONTEXT)
            assert not (await server.call_tool("echo", {})).is_error
            group.cancel_scope.cancel()
        assert pid_of(log) == before
