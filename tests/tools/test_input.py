from __future__ import annotations

import datetime
import enum
import json
import pickle
import threading
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

import anyio
import anyio.lowlevel
import mcp
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, RootModel
from tests.support.calling import tool_table
from typing_extensions import TypedDict

from mcp_toolset import (
    Complete,
    HookSet,
    Injected,
    InputTool,
    Tool,
    ToolCall,
    ToolResult,
    Toolset,
    ToolsetServer,
    tool,
    tool_input,
)
from mcp_toolset.errors import (
    DefinitionError,
    InvalidArgumentsError,
    InvalidOutputError,
    StateError,
    ToolMismatchError,
)

pytestmark = pytest.mark.anyio


class Snippets(BaseModel):
    snippets: list[str]


@tool_input(name="web_search", output=Snippets, read_only=True)
class WebSearch(BaseModel):
    """Search the web.

    Everything in it.

    Attributes:
        query: The query to search for.
        limit: Not shown, as the field has a text of its own.
    """

    query: str
    limit: int = Field(default=5, ge=1, description="How many at most.")


@tool_input
class Ping(BaseModel):
    host: str


class Circle(BaseModel):
    kind: Literal["circle"] = "circle"
    radius: float


class Square(BaseModel):
    kind: Literal["square"] = "square"
    side: float


class Color(enum.Enum):
    RED = "r"
    GREEN = "g"


search: InputTool[WebSearch, Snippets] = InputTool.of(WebSearch)


def test_l2_a_model_declares_a_tool_without_a_handler_and_stays_the_class_that_it_is():
    assert isinstance(WebSearch, type) and WebSearch(query="a").limit == 5
    assert pickle.loads(pickle.dumps(WebSearch(query="a"))) == WebSearch(query="a")
    assert isinstance(search, Tool) and search.waits and search.bind().manual
    assert search is InputTool.of(WebSearch)
    assert list(Toolset(WebSearch, Ping).view()) == ["web_search", "Ping"]
    assert repr(search) == "Tool('web_search', query, limit)"
    assert search(query="b") == WebSearch(query="b")


def test_l2_docstrings_and_fields_describe_the_tool_and_its_parameters():
    assert search.definition.to_wire() == {
        "name": "web_search",
        "description": "Search the web.\n\nEverything in it.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "query": {"description": "The query to search for.", "type": "string"},
                "limit": {"default": 5, "description": "How many at most.", "minimum": 1, "type": "integer"},
            },
            "required": ["query"],
        },
        "outputSchema": {
            "type": "object",
            "properties": {"snippets": {"type": "array", "items": {"type": "string"}}},
            "required": ["snippets"],
            "title": "Snippets",
        },
        "annotations": {"readOnlyHint": True},
    }
    assert InputTool.of(Ping).description is None


DOCS = {
    "google": "Do it.\n\nAttributes:\n    city: Where to look.",
    "numpy": "Do it.\n\nAttributes\n----------\ncity : str\n    Where to look.",
    "sphinx": "Do it.\n\n:param city: Where to look.",
}


@pytest.mark.parametrize("style", DOCS)
def test_l2_a_docstring_in_three_styles_describes_the_fields(style: str):
    made = InputTool.of(
        type("Weather", (BaseModel,), {"__doc__": DOCS[style], "__annotations__": {"city": str}})
    )
    assert made.description == "Do it."
    assert made.input_schema["properties"]["city"]["description"] == "Where to look."


@dataclass
class Point:
    x: int
    y: int = 0


class Options(TypedDict):
    day: datetime.date


class Shape(RootModel[Annotated[Circle | Square, Field(discriminator="kind")]]):
    """A shape."""


class Node(BaseModel):
    value: int
    children: list[Node] = Field(default_factory=list)


class Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")
    day: datetime.date


INPUTS: list[tuple[Any, dict[str, Any], Any]] = [
    (Circle | Square, {"kind": "square", "side": 2}, Square(side=2)),
    (Shape, {"kind": "circle", "radius": 1}, Shape(Circle(radius=1))),
    (Color, {"value": "g"}, Color.GREEN),
    (Literal["on", "off"], {"value": "on"}, "on"),
    (Circle | int, {"value": 3}, 3),
    (list[int], {"value": [1]}, [1]),
    (Point, {"x": 1}, Point(1)),
    (Options, {"day": "2026-01-02"}, {"day": datetime.date(2026, 1, 2)}),
    (Node, {"value": 1, "children": [{"value": 2}]}, Node(value=1, children=[Node(value=2)])),
    (Strict, {"day": "2026-01-02"}, Strict(day=datetime.date(2026, 1, 2))),
]


@pytest.mark.parametrize(("kind", "sent", "decoded"), INPUTS, ids=str)
async def test_l2_a_union_an_enum_and_any_other_type_is_one_tools_schema(
    kind: Any, sent: dict[str, Any], decoded: Any
):
    received: list[Any] = []
    made = InputTool.of(kind, name="draw").with_handler(received.append)
    assert made.input_schema["type"] == "object"
    assert made.decode(ToolCall("draw", sent)).input == decoded
    assert not (await tool_table([made.bind()]).call(ToolCall("draw", sent))).is_error
    assert received == [decoded]
    for wrong in ({"kind": "none"}, {"value": {}}, {"x": "no"}, {"day": "no"}):
        assert (await tool_table([made.bind()]).call(ToolCall("draw", wrong))).is_error
        with pytest.raises(InvalidArgumentsError, match="Invalid arguments for draw"):
            made.decode(ToolCall("draw", wrong))
    assert received == [decoded]


@pytest.mark.parametrize(
    ("declare", "says"),
    [
        (lambda: InputTool.of(Circle | Square), "has no name; give InputTool.of(…, name=…)"),
        (lambda: tool_input(name="draw")(Circle | Square), "takes a class, not"),  # type: ignore[type-var]
        (lambda: InputTool.of(threading.Event), "has no JSON Schema"),
        (lambda: InputTool.of(Point, output=threading.Event), "output: the return type has no JSON Schema"),
        (lambda: InputTool.of(Point, output={"a": "x"}), "parameter 'a': unknown type 'x'"),
        (lambda: InputTool.of(Point, name="a b"), "a tool cannot be named 'a b'"),
        (lambda: InputTool.of(Point, manual=None), "manual is True or False, not None"),  # type: ignore[arg-type]
    ],
)
def test_l2_what_cannot_be_an_input_is_refused_where_it_is_declared(declare: Any, says: str):
    with pytest.raises(DefinitionError) as refused:
        declare()
    assert says in str(refused.value)


def test_l2_a_class_that_inherits_is_not_declared_with_its_base():
    class Other(WebSearch):
        more: int = 0

    assert InputTool.of(Other).name == "Other"
    with pytest.raises(DefinitionError, match="a toolset takes"):
        Toolset(Other)


def call(name: str = "web_search", **arguments: Any) -> ToolCall:
    return ToolCall(name, arguments, "call-1")


def test_l3_a_decoded_call_has_metadata_and_a_typed_input_that_can_be_replaced():
    decoded = search.decode(call(query="tea"))
    assert (decoded.metadata.id, decoded.metadata.name) == ("call-1", "web_search")
    assert decoded.metadata.arguments == {"query": "tea"}
    assert decoded.input == WebSearch(query="tea", limit=5)
    decoded.input.limit = 2
    decoded.input = WebSearch(query=decoded.input.query.upper(), limit=decoded.input.limit)
    assert decoded.input == WebSearch(query="TEA", limit=2)
    assert decoded.metadata.arguments == {"query": "tea"}


def test_l3_complete_gives_a_result_that_a_provider_takes_and_handled_one_with_its_parts():
    decoded = search.decode(call(query="tea").with_arguments({"query": "edited"}))
    done = decoded.complete(Snippets(snippets=["a"]))
    assert (done.id, done.name, done.arguments) == ("call-1", "web_search", {"query": "tea"})
    assert done.result.structured == {"snippets": ["a"]} and done.result.text == '{"snippets":["a"]}'
    handled = decoded.handled(Snippets(snippets=[]))
    assert (handled.metadata, handled.input) == (decoded.metadata, WebSearch(query="edited"))
    assert handled.output == Snippets(snippets=[]) and handled.result.structured == {"snippets": []}
    assert decoded.complete(ToolResult.of_error("none")).result.is_error  # type: ignore[arg-type]


@pytest.mark.parametrize("output", [5, {"told": 1}, Ping(host="a"), None], ids=str)
def test_l3_an_output_of_another_type_is_refused(output: Any):
    with pytest.raises(InvalidOutputError, match="web_search"):
        search.decode(call(query="tea")).complete(output)


def test_l3_a_tool_without_a_promised_output_takes_any():
    decoded = InputTool.of(Ping).decode(call("Ping", host="a"))
    assert decoded.complete({"ms": 3}).result.structured == {"ms": 3}
    assert decoded.complete("pong").result.text == "pong"


def test_l24_another_tools_call_is_a_mismatch():
    decoded = search.decode(call(query="tea"))
    other = InputTool.of(Ping).decode(call("Ping", host="a"))
    for wrong in (
        lambda: search.decode(call("Ping", query="tea")),
        lambda: InputTool.of(Ping).complete(decoded, {}),  # type: ignore[arg-type]
        lambda: replace(decoded, metadata=other.metadata).complete(Snippets(snippets=[])),
        lambda: replace(other, tool=search).handled(Snippets(snippets=[])),  # type: ignore[type-var]
    ):
        with pytest.raises(ToolMismatchError, match="is not a call of tool"):
            wrong()


def test_l24_a_call_under_a_public_name_is_decoded_with_its_view():
    view = Toolset(WebSearch).prefixed("x").view()
    both = Toolset(Toolset(WebSearch).prefixed("x"), InputTool.of(Circle, name="web_search")).view()
    assert search.decode(call("x_web_search", query="tea"), view).input.query == "tea"
    with pytest.raises(ToolMismatchError, match="with the view that it was offered in"):
        search.decode(call("x_web_search", query="tea"))
    with pytest.raises(ToolMismatchError):
        search.decode(call(query="tea"), both)
    with pytest.raises(ToolMismatchError):
        search.decode(call("absent", query="tea"), view)


async def test_l2_a_handler_can_be_attached_and_gets_the_typed_input():
    async def run(input: WebSearch) -> Snippets:
        return Snippets(snippets=[input.query] * input.limit)

    with pytest.raises(StateError, match="has no handler"):
        await search.execute({"query": "tea"})
    made = search.with_handler(run)
    assert not made.waits
    assert (await made.execute({"query": "tea", "limit": 2})).structured == {"snippets": ["tea", "tea"]}
    assert made.decode(call(query="tea")).input == WebSearch(query="tea")
    with pytest.raises(InvalidArgumentsError):
        await made.execute({"query": "tea", "limit": 0})


async def test_l2_the_class_annotates_a_hooks_input():
    hooks = HookSet()

    @hooks.execution("web_search")
    async def answer(call: ToolCall, input: WebSearch) -> Complete:
        return Complete(Snippets(snippets=[type(input).__name__, input.query]))

    dispatch = tool_table(Toolset(WebSearch).bindings(), hooks=hooks)
    assert (await dispatch.call(call(query="tea"))).structured == {"snippets": ["WebSearch", "tea"]}


def test_a1_a_declared_tool_survives_json_as_data():
    stored = json.loads(json.dumps(search.to_data()))
    assert stored["handler"] is None and stored["id"] == search.id
    loaded = Tool.from_data(stored)
    assert loaded.definition == search.definition and loaded.waits


@pytest.mark.needs("model_loop")
async def test_l3_a_completed_call_is_committed_in_a_round():
    from mcp_toolset.rounds import ToolRound

    view = Toolset(WebSearch, Ping).prefixed("x").view()
    calls = [ToolCall("x_web_search", {"query": "tea"}, "1"), ToolCall("x_Ping", {"host": "a"}, "2")]
    plan = await ToolRound.from_calls(calls, view).apply(HookSet())
    first = search.decode(plan.pending[0], view)
    second = InputTool.of(Ping).decode(plan.pending[1], view)
    done: Any = [second.complete("pong"), first.complete(Snippets(snippets=["a"]))]
    _, *answers = plan.commit(done).to_openai()
    assert [(answer["tool_call_id"], answer["content"]) for answer in answers] == [
        ("1", '{"snippets":["a"]}'),
        ("2", "pong"),
    ]


async def test_l2_l5_a_served_tool_waits_for_the_application_and_injected_values_reach_a_handler():
    @tool
    def whoami(greeting: str, user: Annotated[Ping, Injected]) -> str:
        return f"{greeting} {user.host}"

    server = ToolsetServer(Toolset(WebSearch, Toolset(whoami).injecting({Ping: Ping(host="here")})))
    answers: list[Any] = []

    async def ask(client: mcp.Client) -> None:
        answers.append((await client.call_tool("web_search", {"query": "tea"})).structured_content)

    with anyio.fail_after(40):
        async with server, mcp.Client(server.lowlevel) as client:
            listed = {one.name: one.input_schema for one in (await client.list_tools()).tools}
            assert list(listed["whoami"]["properties"]) == ["greeting"]
            assert (await server.call_tool("whoami", {"greeting": "hi"})).text == "hi here"
            async with anyio.create_task_group() as group:
                group.start_soon(ask, client)
                while not server.pending_calls:
                    await anyio.lowlevel.checkpoint()
                server.submit_result(server.pending_calls[0].id, Snippets(snippets=["a"]))
    assert answers == [{"snippets": ["a"]}]


FIELDS: dict[Any, st.SearchStrategy[Any]] = {
    int: st.integers(-(2**53), 2**53),
    str: st.text(max_size=5),
    bool: st.booleans(),
    Color: st.sampled_from(Color),
    datetime.date: st.dates(),
    Point: st.builds(Point, st.integers(0, 9)),
    Circle | Square: st.builds(Circle, radius=st.floats(0, 9)) | st.builds(Square, side=st.floats(0, 9)),
    list[Color]: st.lists(st.sampled_from(Color), max_size=3),
    int | None: st.none() | st.integers(0, 9),
}


@given(st.data())
def test_l2_a_model_its_schema_its_arguments_and_its_call_agree(data: st.DataObject):
    kinds = data.draw(st.lists(st.sampled_from(list(FIELDS)), min_size=1, max_size=4))
    annotations = {f"p{place}": kind for place, kind in enumerate(kinds)}
    model: Any = type("Probe", (BaseModel,), {"__annotations__": annotations})
    value = model(**{name: data.draw(FIELDS[kind]) for name, kind in annotations.items()})
    sent = json.loads(value.model_dump_json())
    received: list[Any] = []
    made = InputTool.of(model).with_handler(received.append)
    result = anyio.run(tool_table([made.bind()]).call, ToolCall("Probe", sent))
    assert not result.is_error, result.text
    assert received == [value] == [made.decode(ToolCall("Probe", sent)).input]
