import json
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint
from hypothesis import given
from hypothesis import strategies as st
from tests.support.contexts import OnWire
from tests.support.refusals import refusal

from mcp_toolset import Rules, Tool, ToolContext, ToolResult, Toolset
from mcp_toolset.errors import CallError, DefinitionError, UpstreamProtocolError
from mcp_toolset.middleware import ResultCache

pytestmark = pytest.mark.anyio

HOST = ToolContext()


ANY = {"type": "object", "additionalProperties": True}


class Cached:
    """Tools behind a cache that count their runs, answer what they are told to, and wait if told so."""

    def __init__(self, ttl: float = 60, **options: Any) -> None:
        self.time = 0.0
        self.ran = 0
        self.answer: Any = None
        self.gate: anyio.Event | None = None
        self.cache = ResultCache(ttl, clock=lambda: self.time, **options)
        self.rules = Rules(middleware=[self.cache])
        self.offer()

    def offer(self, description: str = "Read.") -> None:
        hints: dict[str, dict[str, Any]] = {
            "read": {"read_only": True, "description": description},
            "write": {},
            "draw": {"read_only": True, "idempotent": False},
        }
        tools = (Tool.from_schema(name, ANY, self._run, **said) for name, said in hints.items())
        self.view = Toolset(*tools).view()

    async def _run(self, arguments: dict[str, Any]) -> ToolResult:
        self.ran += 1
        run = self.ran
        if self.gate is not None:
            await self.gate.wait()
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer or ToolResult.of_text(f"run {run}")

    async def call(
        self, arguments: dict[str, Any] | None = None, name: str = "read", context: ToolContext = HOST
    ) -> ToolResult:
        with anyio.fail_after(30):
            return await self.view.execute(name, arguments or {}, context, rules=self.rules)

    async def texts(self, *calls: dict[str, Any]) -> list[str]:
        return [(await self.call(**one)).text for one in calls]


async def test_p9_the_same_question_gets_the_same_answer_for_a_while():
    cached = Cached(10)
    assert await cached.texts({}, {}) == ["run 1", "run 1"]
    cached.time = 9.9
    assert await cached.texts({}) == ["run 1"]
    cached.time = 10
    assert await cached.texts({}, {}) == ["run 2", "run 2"]


async def test_p9_the_order_of_keys_makes_no_other_question_but_a_value_does():
    cached = Cached()
    same = [{"arguments": {"a": 1, "b": {"c": 2, "d": 3}}}, {"arguments": {"b": {"d": 3, "c": 2}, "a": 1}}]
    assert await cached.texts(*same) == ["run 1", "run 1"]
    others = [{"a": 1}, {"a": True}, {"a": "1"}, {"a": [1]}, {"a": None}, {"a": "\ud800"}]
    assert await cached.texts(*({"arguments": one} for one in others)) == [f"run {n}" for n in range(2, 8)]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=6,
)


@given(st.lists(st.dictionaries(st.text(max_size=2), JSON, max_size=3), min_size=1, max_size=5))
async def test_p9_runs_are_as_many_as_there_are_different_arguments(several: list[dict[str, Any]]):
    cached = Cached()
    for arguments in [*several, *several]:
        await cached.call(json.loads(json.dumps(arguments)))
    assert cached.ran == len({json.dumps(one, sort_keys=True) for one in several})


async def test_p9_only_tools_that_are_annotated_read_only_are_covered_unless_named():
    cached = Cached()
    assert await cached.texts({"name": "write"}, {"name": "write"}) == ["run 1", "run 2"]
    assert await cached.texts({"name": "draw"}, {"name": "draw"}) == ["run 3", "run 4"]
    named = Cached(only=["write"])
    assert await named.texts({"name": "write"}, {"name": "write"}) == ["run 1", "run 1"]
    assert await named.texts({"name": "read"}, {"name": "read"}) == ["run 2", "run 3"]


async def test_p9_each_caller_has_results_of_its_own():
    cached = Cached()
    callers = [OnWire("a"), OnWire("b"), OnWire("a", "ann"), HOST]
    for _ in range(2):
        texts = await cached.texts(*({"context": caller} for caller in callers))
        assert texts == ["run 1", "run 2", "run 3", "run 4"]


async def test_p9_callers_that_cannot_be_told_apart_are_not_cached_unless_results_are_shared():
    cached, shared = Cached(), Cached(shared=True)
    calls = [{"context": OnWire()}, {"context": OnWire()}, {"context": OnWire("a")}]
    assert await cached.texts(*calls) == ["run 1", "run 2", "run 3"]
    assert await shared.texts(*calls) == ["run 1", "run 1", "run 1"]


async def test_p9_what_is_no_success_is_not_kept():
    asks = ToolResult({"resultType": "input_required", "inputRequests": {}})
    for answer in (
        ToolResult.of_error("broken"),
        CallError("no"),
        RuntimeError("bug"),
        asks,
        await refusal(),
    ):
        cached = Cached()
        cached.answer = answer
        await cached.call()
        cached.answer = None
        assert await cached.texts({}) == ["run 2"], answer


@pytest.mark.parametrize("params", [{"inputResponses": {}}, {"requestState": "x"}])
async def test_p9_the_second_half_of_a_round_trip_always_runs(params: dict[str, Any]):
    cached = Cached()
    again = {"context": OnWire("a", params=params)}
    assert await cached.texts({"context": OnWire("a")}, again, again) == ["run 1", "run 2", "run 3"]


async def test_p9_another_definition_is_another_question():
    cached = Cached()
    assert await cached.texts({}) == ["run 1"]
    cached.offer("Changed.")
    assert await cached.texts({}, {}) == ["run 2", "run 2"]


async def test_p9_the_memory_is_bounded_and_can_be_cleared():
    cached = Cached(max_entries=2)
    one, two, three = ({"arguments": {"a": number}} for number in range(3))
    assert await cached.texts(one, two, one, three) == ["run 1", "run 2", "run 1", "run 3"]
    assert await cached.texts(one, two) == ["run 1", "run 4"]
    cached.cache.clear()
    assert await cached.texts(one) == ["run 5"]


async def settled() -> None:
    """Let every task go as far as it can; the calls here take far fewer turns of the loop."""
    for _ in range(30):
        await checkpoint()


class Crowd:
    """Several identical calls under way, with the first of them at its tool."""

    def __init__(self, cached: Cached, *contexts: ToolContext) -> None:
        self.cached = cached
        self.contexts = contexts
        self.gate = cached.gate = anyio.Event()
        self.outcomes: dict[int, Any] = {}
        self.scopes = [anyio.CancelScope() for _ in contexts]

    async def _call(self, place: int) -> None:
        with self.scopes[place]:
            try:
                result = await self.cached.view.execute(
                    "read", {}, self.contexts[place], rules=self.cached.rules
                )
                self.outcomes[place] = result.text
            except UpstreamProtocolError as fault:
                self.outcomes[place] = fault

    async def until_done(self, *cancelled: int) -> dict[int, Any]:
        with anyio.fail_after(30):
            async with anyio.create_task_group() as tasks:
                for place in range(len(self.contexts)):
                    tasks.start_soon(self._call, place)
                await settled()
                for place in cancelled:
                    self.scopes[place].cancel()
                    await settled()
                self.gate.set()
        return self.outcomes


async def test_p9_identical_calls_at_one_time_run_once():
    cached = Cached()
    assert await Crowd(cached, *[HOST] * 4).until_done() == dict.fromkeys(range(4), "run 1")
    assert cached.ran == 1


async def test_p9_one_who_waits_and_is_cancelled_disturbs_nobody():
    cached = Cached()
    assert await Crowd(cached, *[HOST] * 3).until_done(1) == {0: "run 1", 2: "run 1"}
    assert cached.ran == 1


async def test_p9_when_the_one_that_runs_is_cancelled_another_takes_over():
    cached = Cached()
    assert await Crowd(cached, *[HOST] * 4).until_done(0) == dict.fromkeys((1, 2, 3), "run 2")
    assert cached.ran == 2
    assert await Crowd(Cached(), *[HOST] * 3).until_done(0, 1) == {2: "run 3"}
    assert await Crowd(Cached(), HOST).until_done(0) == {}


async def test_p9_an_error_of_the_one_that_runs_is_that_of_all_who_waited():
    cached = Cached()
    cached.answer = CallError("no connection")
    assert await Crowd(cached, *[HOST] * 3).until_done() == dict.fromkeys(range(3), "no connection")
    assert cached.ran == 1
    cached.answer = UpstreamProtocolError("up", -32000, "gone")
    outcomes = await Crowd(cached, *[HOST] * 3).until_done()
    assert list(outcomes.values()) == [cached.answer] * 3 and cached.ran == 2


async def test_p9_a_refusal_or_a_question_is_personal():
    for answer in (await refusal(), ToolResult({"resultType": "input_required"})):
        cached = Cached()
        cached.answer = answer
        await Crowd(cached, *[HOST] * 3).until_done()
        assert cached.ran == 3


@pytest.mark.parametrize("answer", [ToolResult.of_error("not for ann"), CallError("not for ann")])
async def test_p9_an_error_is_not_shared_between_callers(answer: Any):
    cached = Cached(shared=True)
    cached.answer = answer
    await Crowd(cached, OnWire("ann"), OnWire("bob")).until_done()
    assert cached.ran == 2


async def test_p9_different_callers_do_not_wait_for_each_other():
    cached = Cached()
    outcomes = await Crowd(cached, OnWire("ann"), OnWire("bob")).until_done()
    assert sorted(outcomes.values()) == ["run 1", "run 2"]


@given(st.integers(1, 5), st.sets(st.integers(0, 4)))
async def test_p9_whoever_is_not_cancelled_gets_the_answer_of_one_run(size: int, cancelled: set[int]):
    cached = Cached()
    places = set(range(size))
    outcomes = await Crowd(cached, *[HOST] * size).until_done(*sorted(cancelled & places))
    assert outcomes.keys() == places - cancelled
    assert len(set(outcomes.values())) <= 1


@pytest.mark.parametrize(
    "options", [{"ttl": 0}, {"ttl": -1}, {"ttl": 1, "only": "read"}, {"ttl": 1, "max_entries": 0}]
)
def test_p9_a_cache_that_cannot_be_is_refused(options: dict[str, Any]):
    with pytest.raises(DefinitionError):
        ResultCache(**options)
