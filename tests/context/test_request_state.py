"""Questions to the user in both protocol eras: `AskUser`, `PermissionChecker`, the signed state, halts."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import anyio
import mcp_types as types
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp import Client, MCPError
from mcp.server.lowlevel import Server
from tests.support.asking import ERAS, Person, connected, text_of
from tests.support.served import served

from mcp_toolset import (
    AskUser,
    Halt,
    HookSet,
    RemoteToolset,
    ToolCall,
    ToolContext,
    ToolResult,
    Toolset,
    ToolsetServer,
    rejection_reason,
    tool,
)
from mcp_toolset.context.request_state import MAX_USED, RoundTrips
from mcp_toolset.errors import CallError
from mcp_toolset.middleware import CallNext, PermissionChecker

pytestmark = pytest.mark.anyio

SIZE = {
    "type": "object",
    "properties": {"size": {"type": "string", "enum": ["small", "large"]}},
    "required": ["size"],
}


def booking() -> tuple[Any, list[str]]:
    """A tool that asks, and a record of its runs."""
    runs: list[str] = []

    @tool
    def book(room: str) -> AskUser:
        """Book a room."""
        runs.append(room)
        return AskUser(f"Which size for {room}?", SIZE)

    return book, runs


def wire_of(result: Any) -> dict[str, Any]:
    return result.model_dump(by_alias=True, exclude_none=True)


@pytest.mark.parametrize("mode", ERAS)
async def test_a14_the_answer_to_a_question_is_the_result_and_the_handler_runs_once(mode: str) -> None:
    book, runs = booking()
    person = Person({"size": "large"})
    async with connected(ToolsetServer(Toolset(book)), mode, elicitation_callback=person) as client:
        result = await client.call_tool("book", {"room": "attic"})
    assert result.structured_content == {"size": "large"} and not result.is_error
    assert json.loads(text_of(result)) == {"size": "large"}
    assert person.questions == ["Which size for attic?"]
    assert person.asked[0].requested_schema == SIZE
    assert runs == ["attic"]


@pytest.mark.parametrize("mode", ERAS)
@pytest.mark.parametrize(("action", "said"), [("decline", "declined"), ("cancel", "left the question")])
async def test_a14_no_answer_is_an_error_result_that_says_so(mode: str, action: str, said: str) -> None:
    book, runs = booking()
    async with connected(ToolsetServer(Toolset(book)), mode, elicitation_callback=Person(action)) as client:
        result = await client.call_tool("book", {"room": "attic"})
    assert result.is_error and said in text_of(result) and "Which size for attic?" in text_of(result)
    assert runs == ["attic"]


@pytest.mark.parametrize("mode", ERAS)
async def test_a14_a_client_that_declared_no_elicitation_gets_the_question_in_words(mode: str) -> None:
    book, _ = booking()
    async with connected(ToolsetServer(Toolset(book)), mode) as client:
        result = await client.call_tool("book", {"room": "attic"})
    assert result.is_error
    assert "declares no elicitation of forms" in text_of(result)
    assert "ask in your own words: Which size for attic?" in text_of(result)


async def test_a14_a_connection_that_carries_no_requests_gets_the_question_in_words() -> None:
    book, _ = booking()
    async with served(ToolsetServer(Toolset(book)), json_response=True) as url:
        async with Client(f"{url}/mcp", mode="legacy", elicitation_callback=Person()) as client:
            result = await client.call_tool("book", {"room": "attic"})
    assert result.is_error and "its connection carries no requests" in text_of(result)
    assert "Which size for attic?" in text_of(result)


@pytest.mark.parametrize("mode", ERAS)
async def test_a14_an_answer_that_breaks_the_schema_is_an_error_that_names_the_fault(mode: str) -> None:
    book, _ = booking()
    person = Person({"size": "huge"})
    async with connected(ToolsetServer(Toolset(book)), mode, elicitation_callback=person) as client:
        result = await client.call_tool("book", {"room": "attic"})
    assert result.is_error and "does not fit" in text_of(result) and "huge" in text_of(result)


@pytest.mark.parametrize("mode", ERAS)
async def test_a14_a_question_without_a_schema_has_one_text_field(mode: str) -> None:
    @tool
    def name() -> str | AskUser:
        """Learn a name."""
        return AskUser("Your name?")

    person = Person({"answer": "Ada"})
    async with connected(ToolsetServer(Toolset(name)), mode, elicitation_callback=person) as client:
        result = await client.call_tool("name", {})
    assert person.asked[0].requested_schema["properties"] == {"answer": {"type": "string"}}
    assert text_of(result) == "Ada" and result.structured_content is None


@pytest.mark.parametrize("mode", ERAS)
async def test_a14_the_answer_takes_the_form_that_the_tool_promised_or_is_an_error(mode: str) -> None:
    @tool
    def number(wrong: bool) -> int | AskUser:
        """Learn a number."""
        kind = "string" if wrong else "integer"
        return AskUser("How many?", {"type": "object", "properties": {"n": {"type": kind}}})

    person = Person({"n": 4}, {"n": "four"})
    async with connected(ToolsetServer(Toolset(number)), mode, elicitation_callback=person) as client:
        right = await client.call_tool("number", {"wrong": False})
        wrong = await client.call_tool("number", {"wrong": True})
    assert right.structured_content == {"result": 4}
    assert wrong.is_error and "does not fit its output schema" in text_of(wrong)


@pytest.mark.parametrize("mode", ERAS)
async def test_a14_a_schema_that_no_client_can_show_is_said_to_be_the_tools_fault(mode: str) -> None:
    @tool
    def nested() -> AskUser:
        """Ask too much."""
        return AskUser("Where?", {"type": "object", "properties": {"place": {"type": "object"}}})

    person = Person()
    async with connected(ToolsetServer(Toolset(nested)), mode, elicitation_callback=person) as client:
        result = await client.call_tool("nested", {})
    assert result.is_error and "'place'" in text_of(result) and not person.asked


async def test_a14_without_a_wire_the_question_is_handed_to_the_program() -> None:
    book, _ = booking()
    async with ToolsetServer(Toolset(book)) as server:
        result = await server.call_tool("book", {"room": "attic"})
    assert not result.is_complete
    assert result.ask == AskUser("Which size for attic?", SIZE)


@pytest.mark.parametrize("mode", ERAS)
async def test_a14_middleware_and_result_hooks_see_the_answer_not_the_question(mode: str) -> None:
    book, runs = booking()
    hooks, seen = HookSet(), list[Any]()

    @hooks.result("book")
    async def look(call: ToolCall, result: ToolResult) -> None:
        seen.append(result.structured)

    person = Person({"size": "small"})
    server = ToolsetServer(Toolset(book), hooks=hooks)
    async with connected(server, mode, elicitation_callback=person) as client:
        await client.call_tool("book", {"room": "attic"})
    assert seen == [{"size": "small"}] and runs == ["attic"]


@pytest.mark.parametrize("mode", ERAS)
@pytest.mark.parametrize(("answer", "runs"), [({}, 1), ("decline", 0), ("cancel", 0)])
async def test_n4_ask_is_an_elicitation_in_both_eras(mode: str, answer: Any, runs: int) -> None:
    ran: list[int] = []

    @tool
    def delete(n: int) -> int:
        """Delete something."""
        ran.append(n)
        return n

    person = Person(answer)
    server = ToolsetServer(Toolset(delete), middleware=[PermissionChecker(lambda call: "ask")])
    async with connected(server, mode, elicitation_callback=person) as client:
        result = await client.call_tool("delete", {"n": 3})
    assert person.questions == ["Allow the call of delete with {'n': 3}?"]
    assert len(ran) == runs and result.is_error == (not runs)
    if not runs:
        reason = rejection_reason(ToolResult(wire_of(result)))
        assert reason is not None and reason.source == "policy"


@pytest.mark.parametrize("mode", ERAS)
async def test_n4_ask_is_a_refusal_where_the_client_cannot_answer(mode: str) -> None:
    ran: list[int] = []

    @tool
    def delete(n: int) -> None:
        """Delete something."""
        ran.append(n)

    server = ToolsetServer(Toolset(delete), middleware=[PermissionChecker(lambda call: "ask")])
    async with connected(server, mode) as client:
        result = await client.call_tool("delete", {"n": 3})
    assert result.is_error and not ran
    assert "has the user asked about this call, and this client shows no questions" in text_of(result)
    assert "use a client that shows questions (elicitation)" in text_of(result)


@pytest.mark.parametrize("mode", ERAS)
async def test_x8_a_permission_a_question_of_the_handler_and_an_outcome_question_in_one_call(
    mode: str,
) -> None:
    runs: list[str] = []

    @tool
    async def order(context: ToolContext) -> AskUser:
        """Order something."""
        runs.append("began")
        first = await context.ask("What?")
        second = await context.ask("What?")
        runs.append(f"{first.content['answer']}, {second.content['answer']}")
        return AskUser(f"How many of {first.content['answer']}?")

    person = Person({}, {"answer": "tea"}, {"answer": "milk"}, {"answer": "two"})
    server = ToolsetServer(
        Toolset(order), middleware=[PermissionChecker(lambda call: "ask")], capabilities=["ask"]
    )
    async with connected(server, mode, elicitation_callback=person) as client:
        result = await client.call_tool("order", {})
    assert text_of(result) == "two"
    assert person.questions == ["Allow the call of order with {}?", "What?", "What?", "How many of tea?"]
    assert [run for run in runs if run != "began"] == ["tea, milk"]
    assert runs.count("began") == (1 if mode == "legacy" else 3)


@pytest.mark.parametrize("mode", ERAS)
async def test_h5_questions_that_are_asked_at_the_same_time_get_their_own_answers(mode: str) -> None:
    @tool
    async def both(context: ToolContext) -> dict[str, Any]:
        """Ask two things at once."""
        answers: dict[str, Any] = {}

        async def one(question: str) -> None:
            answers[question] = (await context.ask(question)).content["answer"]

        async with anyio.create_task_group() as group:
            group.start_soon(one, "left?")
            group.start_soon(one, "right?")
        return answers

    class Echo(Person):
        async def __call__(self, context: Any, params: Any) -> types.ElicitResult:
            self.asked.append(params)
            return types.ElicitResult(action="accept", content={"answer": f"to {params.message}"})

    person = Echo()
    server = ToolsetServer(Toolset(both), capabilities=["ask"])
    async with connected(server, mode, elicitation_callback=person) as client:
        result = await client.call_tool("both", {})
    assert result.structured_content == {"left?": "to left?", "right?": "to right?"}
    assert sorted(person.questions) == ["left?", "right?"]


@pytest.mark.parametrize("mode", ERAS)
async def test_n4_a_middleware_that_asks_in_a_task_group_is_no_fault_of_the_server(mode: str) -> None:
    @tool
    def plain() -> str:
        """Do nothing."""
        return "ran"

    async def careful(call: ToolCall, context: ToolContext, next: CallNext) -> ToolResult:
        async with anyio.create_task_group() as group:
            group.start_soon(context.elicit, "Sure?")
        return await next()

    person = Person({"answer": "yes"})
    server = ToolsetServer(Toolset(plain), middleware=[careful])
    async with connected(server, mode, elicitation_callback=person) as client:
        assert text_of(await client.call_tool("plain", {})) == "ran"
    assert person.questions == ["Sure?"]


def asking_upstream(asked: list[Any]) -> Server[Any]:
    """A modern server with a round trip of its own, which it keeps in its state."""

    async def on_list(ctx: Any, params: Any) -> types.ListToolsResult:
        shown = types.Tool(name="pour", description="Pour.", input_schema={"type": "object"})
        return types.ListToolsResult(tools=[shown])

    async def on_call(ctx: Any, params: types.CallToolRequestParams) -> Any:
        asked.append((params.request_state, params.input_responses))
        if params.request_state is None:
            form = types.ElicitRequestFormParams(
                message="How full?", requested_schema={"type": "object", "properties": {}}
            )
            return types.InputRequiredResult(
                input_requests={"how": types.ElicitRequest(params=form)}, request_state="cup-1"
            )
        return types.CallToolResult(content=[types.TextContent(type="text", text="poured")])

    return Server("bar", on_list_tools=on_list, on_call_tool=on_call)


@pytest.mark.parametrize("permission", ["allow", "ask"])
async def test_x8_a_permission_does_not_come_between_a_mounted_server_and_its_own_round_trip(
    permission: Any,
) -> None:
    asked: list[Any] = []
    person = Person(*[{}] * (2 if permission == "ask" else 1))
    server = ToolsetServer(
        Toolset(RemoteToolset(asking_upstream(asked), name="bar")),
        middleware=[PermissionChecker(lambda call: permission)],
    )
    async with connected(server, "auto", elicitation_callback=person) as client:
        result = await client.call_tool("pour", {})
    assert text_of(result) == "poured"
    assert person.questions[-1] == "bar asks: How full?" and len(person.asked) == (
        2 if permission == "ask" else 1
    )
    (first, nothing), (state, responses) = asked
    assert (first, nothing, state) == (None, None, "cup-1")
    assert list(responses) == ["how"] and responses["how"].action == "accept"


class Raw:
    """A modern client that holds a state in its own hands."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def call(self, name: str, arguments: dict[str, Any], **more: Any) -> Any:
        return await self.client.session.call_tool(name, arguments, allow_input_required=True, **more)

    async def asked(self, name: str, arguments: dict[str, Any]) -> tuple[str, str]:
        """The key of the one question, and the state."""
        result = await self.call(name, arguments)
        assert isinstance(result, types.InputRequiredResult) and result.input_requests
        (key,) = result.input_requests
        assert result.request_state
        return key, result.request_state


ACCEPT = types.ElicitResult(action="accept", content={"size": "small"})
WRONG: dict[str, Callable[[str], str]] = {
    "altered": lambda state: state[:-2] + ("AA" if state[-2:] != "AA" else "BB"),
    "another payload": lambda state: state.replace(state.split(".")[1], state.split(".")[1][:-4] + "AAAA"),
    "another server's": lambda state: "mt00000000." + state.partition(".")[2],
    "nothing of ours": lambda state: "free beer",
    "empty": lambda state: "",
    "only the mark": lambda state: state.split(".")[0] + ".",
    "not ASCII": lambda state: state + "é",
}


FOREIGN = ("another server's", "nothing of ours", "empty")
"""Without this server's mark a state may be a mounted server's, and is the tool's to refuse."""


@pytest.mark.parametrize("wrong", WRONG)
async def test_a14_a_state_that_was_tampered_with_is_refused(wrong: str) -> None:
    book, runs = booking()
    async with connected(ToolsetServer(Toolset(book)), "auto", elicitation_callback=Person()) as client:
        raw = Raw(client)
        key, state = await raw.asked("book", {"room": "attic"})
        state = WRONG[wrong](state)
        answer: dict[str, Any] = {"input_responses": {key: ACCEPT}, "request_state": state}
        if wrong in FOREIGN:
            result = await raw.call("book", {"room": "attic"}, **answer)
            assert result.is_error and "call the tool again" in text_of(result)
        else:
            with pytest.raises(MCPError, match="call the tool again") as refused:
                await raw.call("book", {"room": "attic"}, **answer)
            assert refused.value.code == types.INVALID_PARAMS
    assert runs == ["attic"]


async def test_a14_a_state_is_bound_to_its_call_and_can_be_used_once() -> None:
    book, runs = booking()

    @tool
    def other(room: str) -> str:
        """Something else."""
        runs.append(f"other {room}")
        return room

    async with connected(
        ToolsetServer(Toolset(book, other)), "auto", elicitation_callback=Person()
    ) as client:
        raw = Raw(client)
        key, state = await raw.asked("book", {"room": "attic"})
        answer: dict[str, Any] = {"input_responses": {key: ACCEPT}, "request_state": state}
        for name, room in (("book", "cellar"), ("other", "attic")):
            with pytest.raises(MCPError, match="belongs to another call"):
                await raw.call(name, {"room": room}, **answer)
        right = await raw.call("book", {"room": "attic"}, **answer)
        assert right.structured_content == {"size": "small"}
        with pytest.raises(MCPError):
            await raw.call("book", {"room": "attic"}, **answer)
    assert runs == ["attic"]


async def test_a14_a_repeat_without_the_answer_asks_again_and_an_unasked_answer_counts_for_nothing() -> None:
    book, runs = booking()
    async with connected(ToolsetServer(Toolset(book)), "auto", elicitation_callback=Person()) as client:
        raw = Raw(client)
        key, state = await raw.asked("book", {"room": "attic"})
        again = await raw.call(
            "book", {"room": "attic"}, input_responses={"other": ACCEPT}, request_state=state
        )
        assert isinstance(again, types.InputRequiredResult) and again.input_requests
        assert list(again.input_requests) == [key]
    assert runs == ["attic"]


def seal(trips: RoundTrips, *, principal: str | None = "ann") -> str:
    replay = trips.resume({}, "t", {"a": 1}, principal, "1")
    wire = trips.suspend(replay, {"q": {}}, "t", {"a": 1}, principal).wire
    return wire["requestState"]


def open_state(trips: RoundTrips, state: str, *, principal: str | None = "ann", **other: Any) -> Any:
    params = {"requestState": state, "inputResponses": {"q": {"action": "accept"}}}
    name, arguments = other.get("name", "t"), other.get("arguments", {"a": 1})
    return trips.resume(params, name, arguments, principal, "2")


def test_a14_a_state_ends_after_its_lifetime() -> None:
    now = [0.0]
    trips = RoundTrips(ttl=60, clock=lambda: now[0])
    early, late = seal(trips), seal(trips)
    now[0] = 60.0
    assert open_state(trips, early).answers == {"q": {"action": "accept"}}
    now[0] = 60.1
    with pytest.raises(CallError, match="too late"):
        open_state(trips, late)


def test_a14_a_state_is_bound_to_the_principal() -> None:
    trips = RoundTrips()
    state = seal(trips)
    for stranger in ("bob", None):
        with pytest.raises(CallError, match="another call"):
            open_state(trips, state, principal=stranger)
    assert open_state(trips, state).call_id == "1"


def test_a14_what_was_forgotten_of_used_states_is_refused_and_memory_is_bounded() -> None:
    now = [0.0]
    trips = RoundTrips(ttl=1e9, clock=lambda: now[0])
    first = seal(trips)
    open_state(trips, first)
    for step in range(MAX_USED + 1):
        now[0] = float(step + 1)
        open_state(trips, seal(trips))
    with pytest.raises(CallError, match="too late"):
        open_state(trips, first)
    assert len(trips._used["ann"].issued) == MAX_USED


def test_u80_used_states_are_forgotten_once_they_have_ended() -> None:
    now = [0.0]
    trips = RoundTrips(ttl=60, clock=lambda: now[0])
    for step in range(100):
        now[0] = float(step)
        open_state(trips, seal(trips, principal=f"caller {step}"), principal=f"caller {step}")
    assert len(trips._used) < 65


def test_a14_answers_that_are_too_long_to_carry_end_the_call() -> None:
    trips = RoundTrips()
    replay = trips.resume({}, "t", {}, None, "1")
    replay.answers["q"] = {"content": "x" * 300_000}
    with pytest.raises(CallError, match="too long"):
        trips.suspend(replay, {"r": {}}, "t", {}, None)


@given(st.integers(min_value=0), st.sampled_from("ABCxyz019-_."))
def test_a14_no_single_change_of_a_state_is_accepted(place: int, letter: str) -> None:
    trips = RoundTrips(clock=lambda: 0.0)
    state = seal(trips)
    place %= len(state)
    changed = state[:place] + letter + state[place + 1 :]
    if changed == state:
        return
    try:
        replay = open_state(trips, changed)
    except CallError:
        return
    assert replay.foreign and not replay.answers


@given(st.lists(st.tuples(st.sampled_from(["ask", "sample"]), st.integers(0, 2)), max_size=12))
def test_h5_replay_keys_are_unique_in_a_run_and_the_same_at_the_next(requests: list[tuple[str, int]]) -> None:
    trips = RoundTrips()

    def keys() -> list[str]:
        replay = trips.resume({}, "t", {}, None, "1")
        return [replay.key(method, {"n": number}) for method, number in requests]

    assert keys() == keys() and len(set(keys())) == len(requests)


@pytest.mark.parametrize("mode", ERAS)
async def test_a5_a_halt_is_a_result_with_a_mark_for_programs_and_words_for_models(mode: str) -> None:
    @tool
    def stop(n: int) -> int | Halt:
        """Stop."""
        return Halt("enough", n)

    async with connected(ToolsetServer(Toolset(stop)), mode) as client:
        result = await client.call_tool("stop", {"n": 4})
    assert result.structured_content == {"result": 4} and not result.is_error
    assert text_of(result) == "4\n[The tool asks to stop here: enough]"
    assert result.meta is not None and result.meta["mcp-toolset/halt"] == "enough"


async def test_a5_a_halt_without_a_wire_is_there_for_the_loop() -> None:
    @tool
    def stop() -> Halt:
        """Stop."""
        return Halt("enough", "done")

    async with ToolsetServer(Toolset(stop)) as server:
        result = await server.call_tool("stop")
    assert result.halt == Halt("enough", "done") and result.text == "done"
