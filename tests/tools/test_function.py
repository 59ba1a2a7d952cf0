from __future__ import annotations

import contextvars
import datetime
import enum
import functools
import inspect
import json
import math
import threading
import uuid
from collections.abc import Callable
from copy import deepcopy
from dataclasses import FrozenInstanceError, dataclass
from decimal import Decimal
from typing import Annotated, Any, Literal

import anyio
import anyio.from_thread
import mcp_types
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter
from tests.naming import steady, steady_repr
from tests.support.calling import tool_table
from typing_extensions import TypedDict

from mcp_toolset import Tool, ToolCall, ToolContext, ToolResult, tool
from mcp_toolset.errors import DefinitionError, InvalidArgumentsError, InvalidOutputError

pytestmark = pytest.mark.anyio


class Color(enum.Enum):
    RED = "r"
    GREEN = "g"


@dataclass
class Point:
    x: int
    y: int = 0


class Options(TypedDict, total=False):
    day: datetime.date
    loud: bool


class Node(BaseModel):
    value: int
    children: list[Node] = Field(default_factory=list)


class Strict(BaseModel):
    model_config = ConfigDict(strict=True)
    day: datetime.date
    id: uuid.UUID
    pair: tuple[int, int]


async def served(made: Tool[..., Any], arguments: dict[str, Any] | None = None) -> ToolResult:
    """Call a tool as a client does: every check on the way in and out, and nothing but JSON."""
    sent = json.loads(json.dumps(arguments or {}))
    return await tool_table([made.bind()]).call(ToolCall(made.name, sent))


def properties(made: Tool[..., Any]) -> dict[str, Any]:
    return deepcopy(made.definition.input_schema["properties"])


def receiving(annotation: Any, default: Any = inspect.Parameter.empty) -> tuple[Tool[..., Any], list[Any]]:
    """A tool of one parameter `value`, and what it has received."""
    received: list[Any] = []

    def take(value: Any) -> None:
        received.append(value)

    take.__annotations__["value"] = annotation
    if default is not inspect.Parameter.empty:
        take.__defaults__ = (default,)
    return tool(take), received


def returning(annotation: Any, value: Any) -> Tool[..., Any]:
    def give() -> Any:
        return value

    give.__annotations__["return"] = annotation
    return tool(give)


TYPES: dict[Any, st.SearchStrategy[Any]] = {
    int: st.integers(),
    float: st.floats(allow_nan=False, allow_infinity=False),
    bool: st.booleans(),
    str: st.text(),
    int | None: st.none() | st.integers(),
    int | str: st.integers() | st.text(),
    Literal["a", 1, None]: st.sampled_from(["a", 1, None]),
    Color: st.sampled_from(Color),
    list[Color]: st.lists(st.sampled_from(Color), max_size=3),
    dict[str, list[int]]: st.dictionaries(st.text(), st.lists(st.integers(), max_size=3), max_size=3),
    dict[int, str]: st.dictionaries(st.integers(), st.text(), max_size=3),
    tuple[int, str]: st.tuples(st.integers(), st.text()),
    set[int]: st.sets(st.integers(), max_size=3),
    bytes: st.text().map(str.encode),
    datetime.date: st.dates(),
    datetime.datetime: st.datetimes(timezones=st.just(datetime.UTC)),
    datetime.timedelta: st.timedeltas(datetime.timedelta(0), datetime.timedelta(days=99)),
    uuid.UUID: st.uuids(),
    Decimal: st.decimals(allow_nan=False, allow_infinity=False, places=2, min_value=-99, max_value=99),
    Point: st.builds(Point, st.integers(), st.integers()),
    Options: st.fixed_dictionaries({}, optional={"day": st.dates(), "loud": st.booleans()}),
    Node: st.recursive(
        st.builds(Node, value=st.integers()),
        lambda inner: st.builds(Node, value=st.integers(), children=st.lists(inner, max_size=2)),
        max_leaves=4,
    ),
    Strict: st.builds(Strict, day=st.dates(), id=st.uuids(), pair=st.tuples(st.integers(), st.integers())),
    Annotated[int, Field(ge=1, le=9)]: st.integers(1, 9),
    Annotated[list[str], Field(min_length=1)]: st.lists(st.text(), min_size=1, max_size=3),
}


# Drawn outside of the event loop: hypothesis ends an example with an exception of its own.
@given(st.data())
def test_l4_a_function_gets_the_values_that_its_schema_describes(data: st.DataObject):
    chosen = data.draw(st.lists(st.sampled_from(list(TYPES)), min_size=1, max_size=4))
    expected = {f"p{place}": data.draw(TYPES[kind]) for place, kind in enumerate(chosen)}
    received: dict[str, Any] = {}

    def take(**given: Any) -> None:
        received.update(given)

    kinds = {f"p{place}": kind for place, kind in enumerate(chosen)}
    take.__annotations__ = kinds
    take.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in kinds]
    )
    sent = {
        name: TypeAdapter(kinds[name]).dump_python(value, mode="json") for name, value in expected.items()
    }
    result = anyio.run(served, tool(take), sent)
    assert not result.is_error, result.text
    assert received == expected


@pytest.mark.parametrize("kind", list(TYPES), ids=steady)
@given(data=st.data())
@settings(max_examples=6)
def test_h25_what_a_function_returns_fits_the_schema_it_promises(kind: Any, data: st.DataObject):
    value = data.draw(TYPES[kind])
    result = anyio.run(served, returning(kind, value))
    assert not result.is_error, result.text
    json.dumps(result.wire, allow_nan=False)
    if kind is not str:
        plain = TypeAdapter(kind).dump_python(value, mode="json")
        structured = result.structured
        assert plain in (structured, structured.get("result", ()))


@pytest.mark.parametrize(
    "kind", [int, bool, list[int], Color, datetime.date, Point, Node, Strict], ids=steady
)
async def test_h2_what_does_not_fit_is_refused_before_the_function_runs(kind: Any):
    made, received = receiving(kind)
    for wrong in (None, "no such thing", {"a": 1}, [[]], {}):
        assert (await served(made, {"value": wrong})).is_error
    assert (await served(made, {})).is_error
    assert (await served(made, {"value": None, "other": 1})).is_error
    assert received == []


SENTINEL = object()


@pytest.mark.parametrize(
    ("annotation", "default", "expected", "shown"),
    [
        (int, 3, 3, {"default": 3, "type": "integer"}),
        (int, Field(default=5, ge=1), 5, {"default": 5, "minimum": 1, "type": "integer"}),
        (Annotated[int, Field(default=7)], inspect.Parameter.empty, 7, {"default": 7, "type": "integer"}),
        (Annotated[int, Field(ge=1)], 4, 4, {"default": 4, "minimum": 1, "type": "integer"}),
        (list[int], Field(default_factory=list), [], {"items": {"type": "integer"}, "type": "array"}),
        (int, None, None, {"default": None, "type": "integer"}),
        (Any, SENTINEL, SENTINEL, {}),
        (Color, Color.RED, Color.RED, {"default": "r", "enum": ["r", "g"], "type": "string"}),
    ],
    ids=steady,
)
async def test_l4_defaults_are_shown_and_given(annotation: Any, default: Any, expected: Any, shown: Any):
    made, received = receiving(annotation, default)
    schema = deepcopy(made.definition.input_schema)
    assert "required" not in schema
    assert not (await served(made)).is_error
    assert received == [expected]
    seen = schema["properties"]["value"]
    seen = {**schema["$defs"][seen.pop("$ref").rsplit("/", 1)[-1]], **seen} if "$ref" in seen else seen
    assert {key: value for key, value in seen.items() if key != "title"} == shown


async def test_l4_constraints_are_checked():
    made, received = receiving(Annotated[int, Field(ge=1)], 4)
    refused = await served(made, {"value": 0})
    assert refused.is_error and "value: 0 is less than the minimum of 1" in refused.text
    assert received == []


async def test_l4_a_mutable_default_is_not_shared_between_calls():
    def collect(into: list[int] = []) -> list[int]:  # noqa: B006
        into.append(1)
        return into

    made = tool(collect)
    assert [(await served(made)).structured for _ in range(2)] == [{"result": [1]}] * 2


async def test_l4_any_parameter_name_will_do():
    def odd(
        self: str, schema: int, copy: int, json: int, _x: int, class_: int, model_config: int, *, p0: int = 9
    ) -> list[Any]:
        return [self, schema, copy, json, _x, class_, model_config, p0]

    given = {"self": "s", "schema": 1, "copy": 2, "json": 3, "_x": 4, "class_": 5, "model_config": 6}
    made = tool(odd)
    assert list(properties(made)) == [*given, "p0"]
    assert (await served(made, given)).structured == {"result": ["s", 1, 2, 3, 4, 5, 6, 9]}


GOOGLE = """Tell the weather.

More about it.

Args:
    city: Where
        to look.
    days: How far.

Returns:
    A text.
"""
NUMPY = """Tell the weather.

More about it.

Parameters
----------
city : str
    Where
    to look.
days : int
    How far.
"""
SPHINX = """Tell the weather.

More about it.

:param city: Where
    to look.
:param days: How far.
:returns: A text.
"""


@pytest.mark.parametrize("doc", [GOOGLE, NUMPY, SPHINX], ids=["google", "numpy", "sphinx"])
def test_l4_docstrings_in_three_styles_describe_the_tool_and_its_parameters(doc: str):
    def weather(city: str, days: int = 1) -> str:
        return city * days

    weather.__doc__ = doc
    made = tool(weather)
    assert made.definition.description == "Tell the weather.\n\nMore about it."
    assert properties(made)["city"]["description"].split() == ["Where", "to", "look."]
    assert properties(made)["days"]["description"] == "How far."


def test_l4_what_stands_at_the_parameter_goes_before_the_docstring():
    def weather(
        city: Annotated[str, Field(description="The city.")], day: str = Field(description="D.")
    ) -> str:
        """Tell.

        Args:
            city: Something else.
            day: Something else.
        """
        return city + day

    made = tool(weather)
    assert properties(made)["city"]["description"] == "The city."
    assert properties(made)["day"]["description"] == "D."
    assert made.definition.input_schema["required"] == ["city", "day"]


def test_l4_arguments_of_the_decorator_go_before_the_function():
    @tool(name="other", title="Other", description="New.", read_only=True, destructive=False, meta={"a": 1})
    def weather() -> str:
        """Old."""
        return ""

    assert weather.definition.to_wire() == {
        "name": "other",
        "title": "Other",
        "description": "New.",
        "inputSchema": {"type": "object", "additionalProperties": False, "properties": {}},
        "annotations": {"readOnlyHint": True, "destructiveHint": False},
        "_meta": {"a": 1},
    }
    with pytest.raises(TypeError, match="'readonly'"):
        tool(readonly=True)(print)  # type: ignore[call-overload]


class Desk:
    def __init__(self, name: str) -> None:
        self.name = name

    def ask(self, what: str) -> str:
        """Ask."""
        return f"{self.name}: {what}"

    async def wait(self, what: str) -> str:
        return f"{self.name}: {what}"

    @classmethod
    def of(cls, what: str) -> str:
        return f"{cls.__name__}: {what}"

    @staticmethod
    def plain(what: str) -> str:
        return what

    def __call__(self, what: str) -> str:
        return self.ask(what)


class AsyncDesk(Desk):
    async def __call__(self, what: str) -> str:  # type: ignore[override]
        return self.ask(what)


def logged(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def inner(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return inner


@pytest.mark.parametrize(
    ("function", "name", "text"),
    [
        (Desk("d").ask, "ask", "d: hi"),
        (Desk("d").wait, "wait", "d: hi"),
        (Desk.of, "of", "Desk: hi"),
        (Desk.plain, "plain", "hi"),
        (logged(Desk("d").ask), "ask", "d: hi"),
        (logged(logged(Desk("d").wait)), "wait", "d: hi"),
        (functools.partial(Desk.ask, Desk("p")), "ask", "p: hi"),
        (functools.partial(Desk.wait, Desk("p")), "wait", "p: hi"),
        (functools.partial(functools.partial(Desk.wait), Desk("q")), "wait", "q: hi"),
    ],
)
async def test_l4_methods_partials_and_wrapped_functions_are_tools(function: Any, name: str, text: str):
    made = tool(function)
    assert made.name == name
    assert list(properties(made)) == ["what"]
    assert (await served(made, {"what": "hi"})).text == text


@pytest.mark.parametrize("desk", [Desk("d"), AsyncDesk("d")])
async def test_l4_an_object_that_can_be_called_is_a_tool_under_a_given_name(desk: Any):
    with pytest.raises(DefinitionError, match=r"has no name.*give tool\(name=…\)"):
        tool(desk)
    assert (await served(tool(name="desk")(desk), {"what": "hi"})).text == "d: hi"


async def test_l4_what_a_partial_has_bound_is_not_the_models_to_give():
    def query(text: str, connection: threading.Event, limit: int = 3) -> str:
        return f"{text} {connection.is_set()} {limit}"

    made = tool(functools.partial(query, connection=threading.Event(), limit=5))
    assert list(properties(made)) == ["text"]
    assert (await served(made, {"text": "a"})).text == "a False 5"
    assert (await served(made, {"text": "a", "limit": 1})).is_error


async def test_l4_annotations_as_strings_may_name_local_types():
    class Local(BaseModel):
        n: int

    def take(one: Local, many: list[Local]) -> Local:
        return Local(n=one.n + sum(item.n for item in many))

    result = await served(tool(take), {"one": {"n": 1}, "many": [{"n": 2}]})
    assert result.structured == {"n": 3}


def unknown_type(a: Nope) -> str:  # type: ignore[name-defined]  # noqa: F821
    return a


def no_annotation(a):  # type: ignore[no-untyped-def]
    return a


def of_events(a: threading.Event) -> str:
    return str(a)


def bad_pattern(a: Annotated[str, Field(pattern="(")]) -> str:
    return a


def gives_event() -> threading.Event:
    return threading.Event()


def star(*items: int) -> str:
    return str(items)


def stars(**items: int) -> str:
    return str(items)


def first(a: int, /) -> str:
    return str(a)


def steps() -> Any:
    yield 1


async def async_steps() -> Any:
    yield 1


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (unknown_type, "an annotation cannot be resolved: name 'Nope' is not defined"),
        (no_annotation, "parameter 'a' has no type annotation; write a: str, say"),
        (of_events, "the type of parameter 'a' has no JSON Schema"),
        (bad_pattern, "the type of parameter 'a' has no JSON Schema"),
        (gives_event, "the return type has no JSON Schema"),
        (star, "cannot be passed by name"),
        (stars, "cannot be passed by name"),
        (first, "cannot be passed by name"),
        (steps, "is a generator, and a call has one result"),
        (async_steps, "is a generator, and a call has one result"),
        (lambda: 1, "has no name;"),
        (min, "no signature that can be read"),
        (Desk, "a class cannot be a tool"),
        (5, "@tool takes a function, not 5"),
    ],
    ids=steady,
)
def test_l4_a_function_that_cannot_be_a_tool_is_refused_where_it_is_defined(function: Any, says: str):
    with pytest.raises(DefinitionError) as refused:
        tool(function)
    assert says in str(refused.value)
    if hasattr(function, "__code__"):
        assert "test_function.py:" in str(refused.value)


@pytest.mark.parametrize("annotation", [ToolContext, ToolContext | None, Annotated[ToolContext, "caller"]])
async def test_l5_the_context_is_supplied_and_hidden_from_the_model(annotation: Any):
    seen: list[Any] = []

    def take(context: Any, a: int) -> None:
        seen.append(context)

    take.__annotations__["context"] = annotation
    made = tool(take)
    assert list(properties(made)) == ["a"]
    assert not (await served(made, {"a": 1})).is_error
    assert isinstance(seen[0], ToolContext)
    assert (await served(made, {"a": 1, "context": {}})).is_error


async def test_l4_the_function_stays_callable_as_before():
    @tool
    def add(a: int, b: int = 2) -> int:
        """Add."""
        return a + b

    @tool
    async def wait(a: int) -> int:
        return a

    assert (add(1), add(1, b=5), await wait(3)) == (3, 6, 3)
    assert (add.__name__, add.__doc__) == ("add", "Add.")


def test_o1_a_tool_is_immutable_hashable_and_shown_without_its_function():
    @tool
    def add(a: int, b: int) -> int:
        return a + b

    with pytest.raises(FrozenInstanceError):
        add.place = "elsewhere"  # type: ignore[misc]
    assert {add: 1}[add] == 1
    assert repr(add) == "Tool('add', a, b)"


async def test_o6_execute_runs_from_json_and_errors_propagate():
    @tool
    def half(n: int) -> float:
        if n % 2:
            raise ValueError("odd")
        return n / 2

    assert (await half.execute({"n": 4})).structured == {"result": 2.0}
    with pytest.raises(ValueError, match="odd"):
        await half.execute({"n": 3})
    with pytest.raises(InvalidArgumentsError, match='Invalid arguments for half: n: "x" is not of type'):
        await half.execute({"n": "x"})
    with pytest.raises(InvalidArgumentsError, match='"n" is a required property'):
        await half.execute()


async def test_l4_a_sync_tool_does_not_block_the_loop():
    asked, answered = anyio.Event(), threading.Event()

    @tool
    def wait() -> bool:
        anyio.from_thread.run_sync(asked.set)
        return answered.wait(5)

    async def answer() -> None:
        await asked.wait()
        answered.set()

    with anyio.fail_after(30):
        async with anyio.create_task_group() as group:
            group.start_soon(answer)
            assert (await wait.execute()).structured == {"result": True}


async def test_l4_a_cancelled_sync_tool_lets_its_caller_go_at_once():
    asked, released, ended = anyio.Event(), threading.Event(), threading.Event()

    @tool
    def wait() -> None:
        anyio.from_thread.run_sync(asked.set)
        released.wait(5)
        ended.set()

    with anyio.fail_after(30):
        async with anyio.create_task_group() as group:
            group.start_soon(wait.execute)
            await asked.wait()
            group.cancel_scope.cancel()
        assert not ended.is_set()
        released.set()
        assert await anyio.to_thread.run_sync(ended.wait, 5)


async def test_l4_a_sync_tool_sees_the_context_variables_of_its_call():
    variable = contextvars.ContextVar("variable", default="unset")

    @tool
    def read() -> str:
        return variable.get()

    variable.set("set")
    assert (await read.execute()).text == "set"


TEXT = mcp_types.TextContent(type="text", text="hi")
IMAGE = mcp_types.ImageContent(type="image", data="AA==", mime_type="image/png")


@pytest.mark.parametrize(
    ("annotation", "value", "content"),
    [
        (None, None, []),
        (str, "hi", [{"type": "text", "text": "hi"}]),
        (str | None, None, []),
        (Any, {"a": 1}, [{"type": "text", "text": '{"a":1}'}]),
        (Any, [1, "b"], [{"type": "text", "text": '[1,"b"]'}]),
        (Any, b"abc", [{"type": "text", "text": '"abc"'}]),
        (Any, [math.nan], [{"type": "text", "text": "[null]"}]),
        (mcp_types.TextContent, TEXT, [{"type": "text", "text": "hi"}]),
        (
            list[mcp_types.TextContent | mcp_types.ImageContent],
            [TEXT, IMAGE],
            [{"type": "text", "text": "hi"}, {"type": "image", "data": "AA==", "mimeType": "image/png"}],
        ),
        (
            Any,
            ("x", IMAGE),
            [{"type": "text", "text": "x"}, {"type": "image", "data": "AA==", "mimeType": "image/png"}],
        ),
        (ToolResult, ToolResult.of_error("no"), [{"type": "text", "text": "no"}]),
    ],
    ids=steady,
)
async def test_h25_untyped_results_are_content_without_a_promise(annotation: Any, value: Any, content: Any):
    made = returning(annotation, value)
    assert made.definition.output_schema is None
    result = await served(made)
    assert list(result.content) == content
    assert "structuredContent" not in result.wire


async def test_h25_objects_are_structured_as_they_are_and_other_values_are_wrapped():
    assert (await served(returning(Point, Point(1)))).structured == {"x": 1, "y": 0}
    listed = await served(returning(list[Point], [Point(1)]))
    assert listed.structured == {"result": [{"x": 1, "y": 0}]}
    assert listed.text == '[{"x":1,"y":0}]'


@pytest.mark.parametrize(
    ("annotation", "value"),
    [(int, "no"), (float, math.nan), (Point, None), (list[int], [None]), (Literal["a"], "b")],
    ids=steady,
)
async def test_f22_a_value_that_breaks_the_promise_is_an_error(annotation: Any, value: Any):
    result = await served(returning(annotation, value))
    assert result.is_error and "give" in result.text


async def test_h25_a_number_that_json_cannot_say_is_null_where_the_schema_allows_it():
    assert (await served(returning(float | None, math.inf))).structured == {"result": None}


@pytest.mark.parametrize("value", [object(), b"\xff", {"a": "\ud800"}, {"a": object()}], ids=steady_repr)
@pytest.mark.parametrize("annotation", [Any, dict[str, Any]])
async def test_h25_a_value_without_a_json_form_is_an_error_that_names_the_tool(annotation: Any, value: Any):
    made = returning(annotation, value)
    with pytest.raises(InvalidOutputError, match="give returned a value that has no JSON form"):
        await made.execute()
    assert (await served(made)).is_error


async def test_f23_a_lone_surrogate_in_a_text_does_not_reach_the_wire():
    assert (await served(returning(str, "a\ud800"))).text == "a?"
    assert (await served(returning(int | str, "a\ud800"))).structured == {"result": "a?"}


@pytest.mark.parametrize("default", [float("nan"), float("inf"), [float("-inf")], {"a": float("nan")}])
def test_l4_a_default_that_json_cannot_say_stays_out_of_the_schema(default: Any):
    def wait(seconds: Any = default) -> str:
        return str(seconds == default or seconds != seconds)

    made = tool(wait)
    assert made.definition.input_schema["properties"] == {"seconds": {}}
    json.dumps(made.definition.to_wire(), allow_nan=False)


async def test_h25_the_text_of_a_number_that_json_lacks_is_what_its_structure_says():
    @tool
    def ratio() -> float | None:
        """Divide by zero."""
        return float("nan")

    result = await ratio.execute({})
    assert (result.structured, result.text) == ({"result": None}, "null")
