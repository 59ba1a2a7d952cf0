"""Manual tools over MCP: calls that wait for the application (A6, A7, A9)."""

from __future__ import annotations

from typing import Any

import anyio
import anyio.to_thread
import pytest
from mcp import Client
from tests.support.asking import ERAS, Person, connected, text_of

from mcp_toolset import (
    AskUser,
    Halt,
    HookSet,
    Reject,
    ToolCall,
    ToolContext,
    ToolResult,
    Toolset,
    ToolsetServer,
    tool,
)
from mcp_toolset.errors import DefinitionError, InvalidOutputError, StateError
from mcp_toolset.server.handler_context import ManualCalls

pytestmark = pytest.mark.anyio


@tool(manual=True)
def approve(amount: int) -> dict[str, bool]:
    """Approve a payment."""
    raise AssertionError("a manual tool is never run")


@tool(manual=True, timeout=0.05)
def hurry() -> str:
    """Be answered at once."""
    raise AssertionError("a manual tool is never run")


@tool
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


class Calling:
    """A call under way, and its result."""

    def __init__(self) -> None:
        self.result: Any = None
        self.scope = anyio.CancelScope()
        self.done = anyio.Event()

    async def run(self, client: Client, name: str, arguments: dict[str, Any], **more: Any) -> None:
        with self.scope:
            self.result = await client.call_tool(name, arguments, **more)
        self.done.set()


@pytest.mark.parametrize("mode", ERAS)
async def test_a6_a_manual_call_waits_until_the_application_submits_its_result(mode: str) -> None:
    server, calling = ToolsetServer(Toolset(approve, add)), Calling()
    async with connected(server, mode) as client, anyio.create_task_group() as group:
        group.start_soon(calling.run, client, "approve", {"amount": 5})
        call = await server.next_pending()
        assert (call.name, call.arguments) == ("approve", {"amount": 5})
        assert server.pending_calls == [call]
        assert (call.session is not None) == (mode == "legacy") and call.principal is None
        automatic = await client.call_tool("add", {"a": 1, "b": 2})
        assert automatic.structured_content == {"result": 3} and not calling.done.is_set()
        server.submit_result(call.id, {"yes": True})
        await calling.done.wait()
        assert server.pending_calls == []
    assert calling.result.structured_content == {"yes": True} and not calling.result.is_error


@pytest.mark.parametrize("mode", ERAS)
async def test_a7_each_call_is_handed_out_once_and_gets_its_own_result(mode: str) -> None:
    server = ToolsetServer(Toolset(approve))
    callings = {amount: Calling() for amount in range(8)}
    async with connected(server, mode) as client, anyio.create_task_group() as group:
        for amount, calling in callings.items():
            group.start_soon(calling.run, client, "approve", {"amount": amount})
        calls = [await server.next_pending() for _ in callings]
        assert len({call.id for call in calls}) == 8
        assert server.pending_calls == sorted(calls, key=lambda call: call.since)
        for call in reversed(calls):
            server.submit_result(call.id, {str(call.arguments["amount"]): True})
        for calling in callings.values():
            await calling.done.wait()
    for amount, calling in callings.items():
        assert calling.result.structured_content == {str(amount): True}


@pytest.mark.parametrize("mode", ERAS)
async def test_a7_a_failure_is_an_error_result_with_the_applications_words(mode: str) -> None:
    server, calling = ToolsetServer(Toolset(approve)), Calling()
    async with connected(server, mode) as client, anyio.create_task_group() as group:
        group.start_soon(calling.run, client, "approve", {"amount": 5})
        server.fail((await server.next_pending()).id, "over the limit")
    assert calling.result.is_error and text_of(calling.result) == "approve failed: over the limit"


@pytest.mark.parametrize("mode", ERAS)
async def test_a7_a_call_that_nobody_answers_ends_at_its_deadline_and_says_so(mode: str) -> None:
    async with connected(ToolsetServer(Toolset(hurry)), mode) as client:
        own = await client.call_tool("hurry", {})
    assert own.is_error and "no answer came within 0.05 s" in text_of(own)
    server = ToolsetServer(Toolset(approve), manual_timeout=0.06)
    async with connected(server, mode) as client:
        general = await client.call_tool("approve", {"amount": 1})
        assert server.pending_calls == []
    assert general.is_error and "no answer came within 0.06 s" in text_of(general)


@pytest.mark.parametrize("mode", ERAS)
async def test_a7_a_client_that_cancels_takes_its_call_away(mode: str) -> None:
    server, calling = ToolsetServer(Toolset(approve, add)), Calling()
    async with connected(server, mode) as client, anyio.create_task_group() as group:
        group.start_soon(calling.run, client, "approve", {"amount": 5})
        call = await server.next_pending()
        calling.scope.cancel()
        await calling.done.wait()
        with anyio.fail_after(30):
            while server.pending_calls:
                await client.call_tool("add", {"a": 1, "b": 2})
        with pytest.raises(StateError, match=call.id):
            server.submit_result(call.id, {})


async def test_a7_a_call_that_was_cancelled_before_it_was_handed_out_is_not_handed_out() -> None:
    server, first, second = ToolsetServer(Toolset(approve)), Calling(), Calling()
    async with connected(server, "auto") as client, anyio.create_task_group() as group:
        group.start_soon(first.run, client, "approve", {"amount": 1})
        await anyio.wait_all_tasks_blocked()
        first.scope.cancel()
        await first.done.wait()
        group.start_soon(second.run, client, "approve", {"amount": 2})
        call = await server.next_pending()
        assert call.arguments == {"amount": 2}
        server.submit_result(call.id, {})


@pytest.mark.parametrize("mode", ERAS)
async def test_a7_progress_goes_to_the_caller_that_asked_for_it(mode: str) -> None:
    server, calling, noted = ToolsetServer(Toolset(approve)), Calling(), anyio.Event()
    server._manual._note_every = 0.001
    heard: list[tuple[float, str | None]] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        heard.append((progress, message))
        if len(heard) >= 3:
            noted.set()

    async with connected(server, mode) as client, anyio.create_task_group() as group:
        group.start_soon(lambda: calling.run(client, "approve", {"amount": 5}, progress_callback=note))
        call = await server.next_pending()
        await noted.wait()
        server.submit_result(call.id, {})
    assert [progress for progress, _ in heard] == sorted({progress for progress, _ in heard})
    assert all(message and "waits for the application" in message for _, message in heard)


async def test_a9_a_result_for_an_unknown_or_answered_call_is_refused() -> None:
    server, calling = ToolsetServer(Toolset(approve)), Calling()
    async with connected(server, "auto") as client, anyio.create_task_group() as group:
        with pytest.raises(StateError, match="no call waits under the id 'nothing'"):
            server.submit_result("nothing", {})
        with pytest.raises(StateError, match="pending_calls lists"):
            server.fail("nothing", "so")
        group.start_soon(calling.run, client, "approve", {"amount": 5})
        call = await server.next_pending()
        server.submit_result(call.id, {"first": True})
        with pytest.raises(StateError, match="was answered"):
            server.submit_result(call.id, {"second": True})
    assert calling.result.structured_content == {"first": True}


@pytest.mark.parametrize("wrong", [7, {"yes": "maybe"}, ToolResult.of_text("fine"), object()])
async def test_a9_an_output_that_breaks_the_tools_promise_is_refused_and_the_call_waits_on(
    wrong: Any,
) -> None:
    server, calling = ToolsetServer(Toolset(approve)), Calling()
    async with connected(server, "auto") as client, anyio.create_task_group() as group:
        group.start_soon(calling.run, client, "approve", {"amount": 5})
        call = await server.next_pending()
        with pytest.raises(InvalidOutputError, match="the output for approve"):
            server.submit_result(call.id, wrong)
        assert server.pending_calls == [call]
        server.submit_result(call.id, ToolResult.of_error("no"))
    assert calling.result.is_error and text_of(calling.result) == "no"


async def test_a6_wrong_arguments_and_rejected_calls_never_wait() -> None:
    hooks = HookSet()

    @hooks.execution("approve")
    async def limit(call: ToolCall, input: dict[str, Any]) -> Any:
        return Reject("too much")

    server = ToolsetServer(Toolset(approve), hooks=hooks)
    async with connected(server, "auto") as client:
        assert "amount" in text_of(await client.call_tool("approve", {}))
        assert "too much" in text_of(await client.call_tool("approve", {"amount": 9}))
        assert server.pending_calls == []


@pytest.mark.parametrize("mode", ERAS)
async def test_a6_the_application_may_pass_the_question_on_to_the_user_or_halt(mode: str) -> None:
    server, calling = ToolsetServer(Toolset(approve)), Calling()
    person = Person({"yes": True})
    form = {"type": "object", "properties": {"yes": {"type": "boolean"}}}
    async with (
        connected(server, mode, elicitation_callback=person) as client,
        anyio.create_task_group() as group,
    ):
        group.start_soon(calling.run, client, "approve", {"amount": 5})
        server.submit_result((await server.next_pending()).id, AskUser("Pay 5?", form))
        await calling.done.wait()
        assert calling.result.structured_content == {"yes": True} and person.questions == ["Pay 5?"]
        assert server.pending_calls == []
        calling = Calling()
        group.start_soon(calling.run, client, "approve", {"amount": 5})
        server.submit_result((await server.next_pending()).id, Halt("paid", {"yes": True}))
    assert "asks to stop here: paid" in text_of(calling.result)


async def test_a7_results_can_be_submitted_from_a_worker_thread() -> None:
    server, calling = ToolsetServer(Toolset(approve)), Calling()
    async with connected(server, "auto") as client, anyio.create_task_group() as group:
        group.start_soon(calling.run, client, "approve", {"amount": 5})
        call = await server.next_pending()
        await anyio.to_thread.run_sync(server.submit_result, call.id, {"yes": True})
    assert calling.result.structured_content == {"yes": True}


async def test_a7_waiting_for_calls_ends_with_the_server_and_begins_anew_with_it() -> None:
    server = ToolsetServer(Toolset(approve))

    async def wait() -> None:
        with pytest.raises(StateError, match="no calls will come"):
            await server.next_pending()

    with anyio.fail_after(30):
        async with anyio.create_task_group() as group:
            async with server:
                group.start_soon(wait)
                await anyio.wait_all_tasks_blocked()
        calling = Calling()
        async with connected(server, "auto") as client, anyio.create_task_group() as group:
            group.start_soon(calling.run, client, "approve", {"amount": 5})
            server.submit_result((await server.next_pending()).id, {})
    assert calling.result.structured_content == {}


async def test_a6_a_manual_call_of_the_program_itself_waits_as_well() -> None:
    manual = ManualCalls()
    results: list[ToolResult] = []

    async def call() -> None:
        results.append(await manual.wait(approve.bind(), ToolCall("approve", {"amount": 1}), ToolContext()))

    with anyio.fail_after(30):
        async with anyio.create_task_group() as group:
            group.start_soon(call)
            manual.submit((await manual.next()).id, {"yes": False})
    assert results[0].structured == {"yes": False}


@pytest.mark.parametrize("seconds", [0, -1.0, float("nan")])
def test_a7_a_deadline_is_a_positive_number(seconds: float) -> None:
    with pytest.raises(DefinitionError, match="manual_timeout"):
        ToolsetServer(Toolset(approve), manual_timeout=seconds)
