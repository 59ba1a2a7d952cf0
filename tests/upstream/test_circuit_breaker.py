"""True if calls are let through to a server that missed one, decided without an event loop."""

from __future__ import annotations

from typing import Any, Final

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.bounds import bound, bounds

from mcp_toolset.errors import UpstreamProtocolError, UpstreamUnavailableError
from mcp_toolset.upstream.in_flight import CLOSED, Circuit, SessionHealth

SILENCE, TELL, TIMEOUT = bound("silence"), bound("silence_told"), bound("silence_timeout")
LONG: Final = 60.0
SHORT: Final = 1.0

TABLE: Final = [
    ("a miss begins a health check", [("missed", 0, LONG)], "checking"),
    ("an answer ends it", [("missed", 0, LONG), ("heard",)], "closed"),
    ("an unanswered check refuses calls", [("missed", 0, LONG), ("at", TELL)], "open"),
    ("a late answer lets them through", [("missed", 0, LONG), ("at", TELL), ("heard",)], "closed"),
    ("further misses change nothing", [("missed", 0, LONG), ("missed", TELL / 2, LONG)], "checking"),
    ("the time is up", [("missed", 0, LONG), ("at", TIMEOUT)], "lost"),
    ("just before", [("missed", 0, LONG), ("at", TIMEOUT - 0.01)], "open"),
    ("a short call is no long silence", [("missed", 0, SHORT), ("at", TIMEOUT)], "open"),
    ("until the silence was long", [("missed", 0, SHORT), ("at", SILENCE - SHORT)], "lost"),
    ("what is lost stays so", [("missed", 0, LONG), ("at", TIMEOUT), ("heard",)], "lost"),
    ("nor checks again", [("missed", 0, LONG), ("at", TIMEOUT), ("missed", 9, LONG)], "lost"),
    ("nothing happens without a miss", [("heard",), ("at", 1e9)], "closed"),
]


def after(events: list[tuple[Any, ...]]) -> Circuit:
    circuit = CLOSED
    for name, *arguments in events:
        circuit = getattr(circuit, name)(*arguments)
    return circuit


@pytest.mark.parametrize(("events", "state"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_u41_what_a_circuit_does(events: list[tuple[Any, ...]], state: str) -> None:
    circuit = after(events)
    assert circuit.state == state
    assert circuit.refuses == (state in ("open", "lost")) == bool(circuit.reason)


STEPS = st.lists(
    st.tuples(st.floats(0, 20), st.one_of(st.just(None), st.just("heard"), st.floats(0, 120))), max_size=30
)


@given(STEPS)
def test_u41_calls_are_refused_after_silence_alone_and_a_session_given_up_after_long_silence(
    steps: list[tuple[float, str | float | None]],
) -> None:
    now, circuit = 0.0, CLOSED
    check: tuple[float, float] | None = None
    for gap, event in steps:
        now += gap
        circuit = circuit.at(now)
        match event:
            case None:
                pass
            case "heard":
                circuit, check = circuit.heard(), None if circuit.state != "lost" else check
            case _:
                check = check or (now, float(event))
                circuit = circuit.missed(now, float(event))
        if check is None:
            assert circuit is CLOSED
            continue
        asked, waited = check
        assert circuit.refuses == (now >= asked + TELL)
        assert (circuit.state == "lost") == (now >= asked + max(TIMEOUT, SILENCE - waited))
        assert circuit.due > now
        assert circuit.at(now) == circuit


@pytest.mark.anyio
@pytest.mark.parametrize("answer", [None, UpstreamProtocolError("up", -32601, "no ping")])
async def test_u41_every_answer_to_a_health_check_will_do(answer: Exception | None) -> None:
    asked: list[float] = []

    async def check() -> None:
        asked.append(anyio.current_time())
        if answer is not None:
            raise answer

    health = SessionHealth(check)
    async with anyio.create_task_group() as group:
        group.start_soon(health.lost)
        for times in (1, 2):
            health.missed(LONG)
            with anyio.fail_after(40):
                while health.waited:
                    await anyio.lowlevel.checkpoint()
            assert len(asked) == times and not health.fault
        group.cancel_scope.cancel()


@pytest.mark.anyio
async def test_u41_a_check_whose_connection_ends_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    bounds(monkeypatch, silence=0.01, silence_told=0.01, silence_timeout=0.01)

    async def check() -> None:
        raise UpstreamUnavailableError("up", "the connection was lost")

    health, told = SessionHealth(check), list[str]()
    health.on_change = lambda: told.append(health.fault)
    health.missed(LONG)
    with anyio.fail_after(40):
        reason = await health.lost()
    assert reason.startswith("it does not answer: a call got no answer within 60 s") and told[-1] == reason


@pytest.mark.anyio
async def test_u41_a_server_that_is_not_read_is_not_taken_for_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    bounds(monkeypatch, silence=0.01, silence_told=0.01, silence_timeout=0.01)
    health, told = SessionHealth(anyio.sleep_forever, lambda: False), list[str]()
    health.on_change = lambda: told.append(health.fault)
    async with anyio.create_task_group() as group:
        group.start_soon(health.lost)
        health.missed(LONG)
        with anyio.fail_after(40):
            while health.waited:
                await anyio.lowlevel.checkpoint()
        group.cancel_scope.cancel()
    assert not told


def test_u41_a_call_that_its_client_cancels_soon_says_nothing() -> None:
    async def check() -> None:
        raise AssertionError

    health = SessionHealth(check)
    health.given_up(bound("given_up_after") / 2)
    assert health.waited == 0
