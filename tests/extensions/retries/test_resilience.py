"""Retries and the circuit breaker of a mounted server, as its entry or its program says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from mcp_toolset import RemoteToolset, ToolDefinition, ToolResult, Toolset, ToolsetServer, tool
from mcp_toolset.errors import (
    DefinitionError,
    LoginRequiredError,
    UpstreamError,
    UpstreamProtocolError,
    UpstreamTimeoutError,
    UpstreamUnavailableError,
)
from mcp_toolset.extensions.retries.mount import ATTEMPTS_META_KEY, Resilience

pytestmark = pytest.mark.anyio

READS = ToolDefinition("read", annotations={"readOnlyHint": True})
REPEATS = ToolDefinition("put", annotations={"idempotentHint": True})
SAYS_NO = ToolDefinition("delete", annotations={"idempotentHint": False, "readOnlyHint": False})
SAYS_NOTHING = ToolDefinition("change")

LOST = UpstreamUnavailableError("git", "the connection was lost")
LATE = UpstreamTimeoutError("git", "no answer within 1 s")
BROKEN = UpstreamProtocolError("git", -32603, "internal error")
WRONG = UpstreamProtocolError("git", -32602, "invalid params")
BAD, GOOD = ToolResult.of_error("it broke"), ToolResult.of_text("fine")

Answer = ToolResult | Exception


class Server:
    """A mounted server that answers in turn, the last answer again and again."""

    def __init__(self, retries: int = 0, breaker: tuple[int, float] | None = None) -> None:
        self.time, self.waits, self.calls, self.ready = 100.0, list[float](), 0, True
        self.answers: list[Answer] = []
        self.resilience = Resilience(
            "git", retries, breaker, is_ready=lambda: self.ready, clock=lambda: self.time, sleep=self.wait
        )

    async def wait(self, seconds: float) -> None:
        self.waits.append(seconds)

    async def send(self) -> ToolResult:
        self.calls += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def call(self, *answers: Answer, tool: ToolDefinition = READS) -> ToolResult:
        self.answers = list(answers)
        return await self.resilience.run(tool, self.send)

    async def fails(self, *answers: Answer, tool: ToolDefinition = READS) -> str:
        with pytest.raises(UpstreamError) as caught:
            await self.call(*answers, tool=tool)
        return str(caught.value)


@pytest.mark.parametrize(
    ("tool", "answers", "calls"),
    [
        (READS, [LOST, GOOD], 2),
        (READS, [LATE, BAD, GOOD], 3),
        (READS, [BROKEN, GOOD], 2),
        (READS, [WRONG, GOOD], 1),
        (READS, [BAD, BAD, BAD, GOOD], 3),
        (REPEATS, [LATE, LOST, GOOD], 3),
        (REPEATS, [BAD, GOOD], 1),
        (REPEATS, [BROKEN, GOOD], 1),
        (SAYS_NO, [LOST, GOOD], 1),
        (SAYS_NOTHING, [LATE, GOOD], 1),
        (READS, [LoginRequiredError("git", "log in"), GOOD], 1),
        (READS, [LOST, LOST, LOST, GOOD], 3),
    ],
)
async def test_p9_a_call_is_repeated_only_if_its_tool_allows_it_and_after_what_kind_of_failure(
    tool: ToolDefinition, answers: Sequence[Answer], calls: int
):
    server = Server(retries=2)
    ended = answers[calls - 1]
    if isinstance(ended, Exception):
        told = await server.fails(*answers, tool=tool)
        assert str(ended) in told and ("(3 calls made)" in told) is (calls == 3)
    else:
        result = await server.call(*answers, tool=tool)
        assert result.text.startswith(ended.text)
        assert (result.wire.get("_meta") or {}).get(ATTEMPTS_META_KEY, 1) == calls
        assert ("[3 calls made]" in result.text) is (ended is BAD and calls == 3)
    assert server.calls == calls and server.waits == [0.5, 1.0][: calls - 1]


async def test_p9_a_result_that_asks_is_not_repeated_and_without_retries_nothing_is():
    asks = ToolResult({"resultType": "input_required", "inputRequests": {}})
    server = Server(retries=2)
    assert await server.call(asks) is asks and server.calls == 1
    assert await Server().fails(LOST) == str(LOST)


async def test_u115_a_call_that_brings_the_state_of_a_question_is_sent_once():
    server = Server(retries=3)
    server.answers = [LOST, GOOD]
    with pytest.raises(UpstreamUnavailableError):
        await server.resilience.run(READS, server.send, repeats=False)
    assert server.calls == 1


async def test_p9_a_server_that_fails_in_a_row_is_not_called_until_a_trial_succeeds():
    server = Server(breaker=(3, 30))
    for failure in (LOST, LATE, GOOD, LOST, LATE, LOST):
        assert not server.resilience.reason
        if isinstance(failure, Exception):
            await server.fails(failure)
        else:
            await server.call(failure)
    told = await server.fails(GOOD)
    assert told == "git: 3 calls in a row failed; it is not called for now, try again in 30.0 s"
    assert server.calls == 6 and "not called for 30.0 s" in server.resilience.reason
    server.time += 30
    assert await server.fails(LATE) == str(LATE)
    assert "try again in 30.0 s" in await server.fails(GOOD)
    server.time += 30
    assert await server.call(GOOD) is GOOD and not server.resilience.reason


async def test_p9_while_one_trial_runs_no_other_call_is_let_through():
    server = Server(breaker=(1, 30))
    await server.fails(LOST)
    server.time += 30
    held, told = anyio.Event(), list[str]()

    async def send() -> ToolResult:
        await held.wait()
        return GOOD

    async def trial() -> None:
        told.append((await server.resilience.run(READS, send)).text)

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(trial)
            await anyio.lowlevel.checkpoint()
            assert "try again in 30.0 s" in await server.fails(GOOD)
            held.set()
    assert told == ["fine"] and await server.call(GOOD) is GOOD


@pytest.mark.parametrize("answer", [BAD, WRONG, BROKEN, LoginRequiredError("git", "log in")])
async def test_p9_an_answer_of_the_server_is_no_failure_of_it(answer: Answer):
    server = Server(breaker=(1, 30))
    for _ in range(3):
        if isinstance(answer, Exception):
            await server.fails(answer, tool=SAYS_NOTHING)
        else:
            await server.call(answer, tool=SAYS_NOTHING)
    assert not server.resilience.reason


async def test_p9_an_answer_ends_the_row_of_failures():
    server = Server(breaker=(2, 30))
    for failure in (LOST, WRONG, LOST):
        await server.fails(failure, tool=SAYS_NOTHING)
    assert not server.resilience.reason


async def test_p9_calls_while_the_server_is_away_do_not_open_the_breaker_and_retries_stop_when_it_opens():
    server = Server(retries=2, breaker=(2, 30))
    server.ready = False
    await server.fails(LOST)
    assert server.calls == 3 and not server.resilience.reason
    server.ready = True
    assert await server.fails(LOST) == str(LOST)
    assert server.calls == 5 and server.resilience.reason


@pytest.mark.parametrize(
    ("retries", "breaker"), [(-1, None), (11, None), (0, (0, 1)), (0, (1, 0)), (0, (1, float("inf")))]
)
def test_p9_numbers_that_cannot_be_used_are_errors_of_the_mount(retries: int, breaker: Any):
    with pytest.raises(DefinitionError, match="mount 'git': "):
        RemoteToolset(["true"], name="git", retries=retries, breaker=breaker)


async def test_p9_a_mount_repeats_calls_of_a_read_only_tool_and_its_status_tells_of_the_breaker():
    seen = list[str]()

    @tool(read_only=True)
    async def flaky() -> str:
        """Fails at first."""
        seen.append("flaky")
        if len(seen) < 2:
            raise RuntimeError("not yet")
        return "there"

    mount = RemoteToolset(ToolsetServer(Toolset(flaky)), name="up", retries=1, breaker=(1, 600))
    waits = list[float]()

    async def wait(seconds: float) -> None:
        waits.append(seconds)

    flaky_mount = Resilience("up", 1, (1, 600), is_ready=lambda: True, sleep=wait)
    mount.connection.extensions = (flaky_mount,)
    with anyio.fail_after(60):
        async with ToolsetServer(Toolset(mount)) as server:
            result = await server.call_tool("flaky")
            assert (result.text, result.wire["_meta"][ATTEMPTS_META_KEY]) == ("there", 2)
            assert waits == [0.5] and mount.status.state == "ready"

            async def lost() -> ToolResult:
                raise LOST

            with pytest.raises(UpstreamUnavailableError):
                await flaky_mount.run(SAYS_NOTHING, lost)
            assert "1 call in a row failed; the server is not called for" in mount.status.reason
            assert "1 call in a row failed" in (await server.call_tool("flaky")).text
            mount.connection.extensions = ()
            assert (await server.call_tool("flaky")).text == "there" and not mount.status.reason
