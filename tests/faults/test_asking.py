"""Upstreams that ask as no upstream may, and clients that answer as no client may."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import anyio
import mcp_types as types
import pytest
from mcp import Client, MCPError
from tests.faults.harness import HERE, children, until
from tests.interaction.desk import Desk
from tests.support.asking import text_of
from tests.support.bounds import bound, bounds

from mcp_toolset import RemoteToolset, Toolset, ToolsetServer

pytestmark = pytest.mark.anyio
MAX_ASKED, MAX_ROUNDS = bound("questions_per_call"), bound("rounds_of_questions")


def asking(era: str, **options: Any) -> RemoteToolset:
    command = [sys.executable, "-S", str(HERE / "asking_stdio.py"), era]
    return RemoteToolset(command, name="up", start_timeout=20, **options)


@asynccontextmanager
async def bridged(
    client_era: str, upstream_era: str, desk: Desk | None = None, **options: Any
) -> AsyncGenerator[tuple[Client, ToolsetServer, RemoteToolset]]:
    mode = "legacy" if client_era == "legacy" else "auto"
    up = asking(upstream_era, **options)
    callbacks: dict[str, Any] = {"elicitation_callback": desk.elicit} if desk else {}
    callbacks["input_required_max_rounds"] = 2 * MAX_ASKED
    with anyio.fail_after(90):
        async with ToolsetServer(Toolset(up)) as server:
            async with Client(server.lowlevel, mode=mode, cache=None, **callbacks) as client:
                yield client, server, up


async def value(client: Client, name: str, **arguments: Any) -> Any:
    return json.loads(text_of(await client.call_tool(name, arguments)))


@pytest.mark.parametrize("client_era", ["legacy", "modern"])
async def test_p5_a_question_out_of_nowhere_reaches_nobody(client_era: str, tmp_path: Path) -> None:
    desk = Desk()
    told, said = tmp_path / "told", tmp_path / "said"
    os.mkfifo(told)
    async with bridged(client_era, "legacy", desk) as (client, _, _):
        assert await value(client, "stray", told=str(told), said=str(said)) == "done"
        told.write_bytes(b"ask now")
        await until(lambda: said.exists() and said.read_text().endswith("\n"))
        assert await value(client, "after") == "done"
        assert await value(client, "echo", x=1) == {"x": 1}
    assert "no call is in flight" in json.loads(said.read_text())["error"]["message"]
    assert "Too late?" not in desk.forms


@pytest.mark.parametrize("client_era", ["legacy", "modern"])
async def test_p5_an_upstream_that_asks_a_thousand_times_is_cut_short(client_era: str) -> None:
    desk = Desk()
    async with bridged(client_era, "legacy", desk) as (client, _, _):
        assert await value(client, "thousand") == MAX_ASKED
        refused = await value(client, "refusals")
    assert len(desk.forms) == MAX_ASKED
    assert len(refused) == 1000 - MAX_ASKED and f"may ask {MAX_ASKED} times" in refused[0]


async def test_p5_an_upstream_that_never_stops_asking_a_legacy_client_is_ended() -> None:
    desk = Desk()
    async with bridged("legacy", "modern", desk) as (client, _, _):
        result = await client.call_tool("endless", {})
        assert result.is_error and f"still asks after {MAX_ROUNDS} rounds" in text_of(result)
        assert await value(client, "echo", x=1) == {"x": 1}
    assert len(desk.forms) == MAX_ROUNDS


async def test_p5_a_legacy_upstream_that_never_stops_asking_is_refused_at_last() -> None:
    desk = Desk()
    async with bridged("legacy", "legacy", desk) as (client, _, _):
        assert await value(client, "endless") == MAX_ASKED


@pytest.mark.parametrize("client_era", ["legacy", "modern"])
async def test_p5_requests_that_are_none_of_the_protocol_are_refused(client_era: str) -> None:
    desk = Desk()
    async with bridged(client_era, "legacy", desk) as (client, _, _):
        unknown, malformed = await value(client, "odd")
    assert unknown == types.METHOD_NOT_FOUND and malformed < 0 and not desk.forms


@pytest.mark.parametrize("client_era", ["legacy", "modern"])
@pytest.mark.parametrize("upstream_era", ["legacy", "modern"])
async def test_p5_what_the_client_did_not_declare_is_not_put_to_it(
    client_era: str, upstream_era: str
) -> None:
    async with bridged(client_era, upstream_era, Desk()) as (client, _, _):
        if upstream_era == "legacy":
            refused = await value(client, "undeclared")
            assert "has not declared sampling" in refused["message"]
            return
        with pytest.raises(MCPError) as fault:
            await client.call_tool("undeclared", {})
    assert fault.value.code == types.MISSING_REQUIRED_CLIENT_CAPABILITY
    assert fault.value.data == {"requiredCapabilities": {"sampling": {}}}


async def first_leg(client: Client, name: str = "ask", **arguments: Any) -> types.InputRequiredResult:
    """The first request of a call that asks, by a client that does not answer by itself."""
    result = await client.session.call_tool(name, arguments, allow_input_required=True)
    return cast("types.InputRequiredResult", result)


async def next_leg(
    client: Client, asked: types.InputRequiredResult, name: str = "ask", state: str | None = None, **more: Any
) -> Any:
    answers: dict[str, Any] = {
        key: types.ElicitResult(action="accept", content={"word": "sea"})
        for key in asked.input_requests or {}
    }
    return await client.session.call_tool(
        name,
        more,
        allow_input_required=True,
        input_responses=answers,
        request_state=asked.request_state if state is None else state,
    )


async def refused(client: Client, asked: Any, **changes: Any) -> str:
    """How a repeat is refused: by the protocol where its state bears our mark, else by the tool's result."""
    try:
        answer = await next_leg(client, asked, **changes)
    except MCPError as fault:
        assert fault.code == types.INVALID_PARAMS
        return "error"
    assert answer.is_error
    return "result"


async def test_p5_a_state_that_was_altered_or_used_or_is_another_calls_is_refused() -> None:
    async with bridged("modern", "legacy", Desk()) as (client, _, up):
        asked = await first_leg(client)
        state = asked.request_state or ""
        altered = state[:-2] + ("AA" if state[-2:] != "AA" else "BB")
        assert await refused(client, asked, state=altered) == "error"
        for foreign in ("mine", "", state.split(".")[0]):
            assert await refused(client, asked, state=foreign) == "result"
        assert await refused(client, asked, name="after") == "error"
        assert await refused(client, asked, x=1) == "error"
        done = await next_leg(client, asked)
        assert json.loads(text_of(done))["content"] == {"word": "sea"}
        assert await refused(client, asked) == "error"
        assert not len(up.connection._exchange.suspended)
        assert await value(client, "echo", x=1) == {"x": 1}


async def test_p5_a_client_that_never_returns_frees_its_call(monkeypatch: pytest.MonkeyPatch) -> None:
    bounds(monkeypatch, suspended_timeout=0.3)
    async with bridged("modern", "legacy", Desk()) as (client, _, up):
        asked = await first_leg(client)
        assert len(up.connection._exchange.suspended) == 1
        await until(lambda: not len(up.connection._exchange.suspended))
        late = await next_leg(client, asked)
        assert late.is_error and "has ended" in text_of(late)
        assert await value(client, "echo", x=1) == {"x": 1}


async def test_p5_calls_that_wait_for_answers_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    bounds(monkeypatch, suspended=2)
    async with bridged("modern", "legacy", Desk()) as (client, _, up):
        waiting = [await first_leg(client), await first_leg(client)]
        assert len(up.connection._exchange.suspended) == 2
        refused = await client.session.call_tool("ask", {}, allow_input_required=True)
        assert isinstance(refused, types.CallToolResult) and text_of(refused) == "null"
        for asked in reversed(waiting):
            await next_leg(client, asked)


async def test_p5_a_legacy_client_that_gives_no_answer_does_not_hold_the_call_forever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bounds(monkeypatch, ask_timeout=0.3)
    desk = Desk()
    desk.hesitates = True
    async with bridged("legacy", "legacy", desk) as (client, _, _):
        assert await value(client, "ask") is None
        assert "no answer within" in (await value(client, "refusals"))[0]


async def test_p5_the_time_of_a_call_does_not_run_while_its_user_thinks() -> None:
    desk = Desk()
    desk.hesitates = True
    async with bridged("legacy", "legacy", desk, timeout=1.5) as (client, _, _):
        results: list[Any] = []

        async def ask() -> None:
            results.append(await client.call_tool("ask", {}))

        async with anyio.create_task_group() as group:
            group.start_soon(ask)
            await desk.silent.wait()
            with anyio.move_on_after(2) as longer_than_the_call_may_take:
                await until(lambda: results)
            assert longer_than_the_call_may_take.cancelled_caught
            group.cancel_scope.cancel()


async def test_f46_sessions_of_clients_end_with_them_and_with_time(monkeypatch: pytest.MonkeyPatch) -> None:
    bounds(monkeypatch, idle_session=0.2)
    desk = Desk()
    async with ToolsetServer(Toolset(up := asking("legacy"))) as server:
        listing = children()
        async with Client(
            server.lowlevel, mode="legacy", cache=None, elicitation_callback=desk.elicit
        ) as client:
            with anyio.fail_after(30):
                assert await value(client, "echo", x=1) == {"x": 1}
                await until(lambda: not len(up.connection.pool))
                assert await value(client, "echo", x=2) == {"x": 2}
        await until(lambda: children() == listing and not len(up.connection.pool))
