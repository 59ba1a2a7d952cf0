import logging
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from pydantic import BaseModel, Field
from tests.support.calling import listed

from mcp_toolset import (
    SourceStatus,
    ToolBinding,
    ToolCall,
    ToolContext,
    ToolDefinition,
    ToolResult,
    Toolset,
    ToolView,
    tool,
)
from mcp_toolset.arguments import default, describe, hide, rename
from mcp_toolset.errors import DefinitionError, InvalidArgumentsError, UnknownToolError

pytestmark = pytest.mark.anyio


class Place(BaseModel):
    city: str
    zone: Literal["eu", "us"] = "eu"


@tool
def search(
    query: Annotated[str, Field(description="The query.", min_length=2)],
    key: str,
    limit: int = 10,
    near: Place | None = None,
) -> dict[str, Any]:
    """Search."""
    return {"query": query, "key": key, "limit": limit, "near": near and near.city}


TOOLS = Toolset(search)


def schema_of(tools: Toolset, name: str = "search") -> Any:
    return tools.find(name).definition.input_schema


async def test_p2_a_hidden_parameter_is_gone_from_the_schema_and_constant_in_the_call():
    tools = TOOLS.with_arguments({"search": {"key": hide(value="secret"), "limit": hide()}})
    assert list(schema_of(tools)["properties"]) == ["query", "near"]
    assert schema_of(tools)["required"] == ["query"]
    done = await tools.execute("search", {"query": "abc"})
    assert done.structured == {"query": "abc", "key": "secret", "limit": 10, "near": None}
    with pytest.raises(InvalidArgumentsError):
        await tools.execute("search", {"query": "abc", "key": "mine"})


async def test_p2_a_renamed_parameter_maps_back_and_its_old_name_is_unknown():
    tools = TOOLS.with_arguments({search: {"query": rename("q") | describe("What to look for.")}})
    assert list(schema_of(tools)["properties"]) == ["q", "key", "limit", "near"]
    assert schema_of(tools)["properties"]["q"] == {
        "type": "string",
        "minLength": 2,
        "description": "What to look for.",
    }
    assert schema_of(tools)["required"] == ["q", "key"]
    assert (await tools.execute("search", {"q": "abc", "key": "k"})).structured["query"] == "abc"
    with pytest.raises(InvalidArgumentsError, match="query"):
        await tools.execute("search", {"query": "abc", "key": "k", "q": "abc"})


async def test_p2_two_parameters_can_swap_their_names():
    tools = TOOLS.with_arguments({"search": {"query": rename("key"), "key": rename("query")}})
    done = await tools.execute("search", {"query": "the key", "key": "the query"})
    assert done.structured["query"] == "the query" and done.structured["key"] == "the key"


async def test_p2_a_default_makes_a_parameter_optional_and_is_not_shared_between_calls():
    where = {"city": "Bonn"}
    tools = TOOLS.with_arguments({"search": {"key": default("k"), "near": default(where)}})
    where["city"] = "changed"
    assert schema_of(tools)["required"] == ["query"]
    assert schema_of(tools)["properties"]["key"] == {"type": "string", "default": "k"}
    for _ in range(2):
        assert (await tools.execute("search", {"query": "abc"})).structured["near"] == "Bonn"
    assert (await tools.execute("search", {"query": "abc", "key": "x"})).structured["key"] == "x"


def test_p2_describing_changes_nothing_but_the_text():
    tools = TOOLS.with_arguments({"search": {"limit": describe("How many.")}})
    before, after = TOOLS.find("search"), tools.find("search")
    assert after.execute is before.execute and after.arguments is before.arguments
    assert schema_of(tools)["properties"]["limit"]["description"] == "How many."
    assert schema_of(tools)["$defs"] is schema_of(TOOLS)["$defs"]
    assert "description" not in schema_of(TOOLS)["properties"]["limit"]


def test_p2_nested_definitions_stay_as_they_are():
    tools = TOOLS.with_arguments({"search": {"near": rename("place"), "key": hide(value="k")}})
    assert schema_of(tools)["$defs"] == schema_of(TOOLS)["$defs"]
    assert schema_of(tools)["properties"]["place"] == schema_of(TOOLS)["properties"]["near"]


@pytest.mark.parametrize(
    ("transforms", "reason"),
    [
        (
            {"qery": rename("q")},
            r"tool 'search' \(function search.*has no parameter 'qery'.*query, key, limit",
        ),
        ({"key": hide()}, r"'key' is required; hide it with hide\(value=…\)"),
        ({"limit": hide(value="ten")}, r"'limit' cannot be 'ten'.*is not of type"),
        ({"query": default("x")}, r"'query' cannot be 'x'"),
        ({"near": hide(value={"city": "a", "zone": "asia"})}, r"'near' cannot be"),
        ({"key": hide(value=object())}, r"'key' cannot be .*no JSON"),
        ({"query": rename("limit")}, r"two parameters would be named 'limit'"),
        ({"query": rename("q"), "key": rename("q")}, r"two parameters would be named 'q'"),
    ],
)
def test_p2_a_wrong_transform_of_a_local_tool_is_an_error_where_it_is_defined(
    transforms: Mapping[str, Any], reason: str
):
    with pytest.raises(DefinitionError, match=reason):
        TOOLS.with_arguments({"search": transforms})


def test_p2_a_transform_of_a_tool_that_is_not_there_is_an_error_where_it_is_defined():
    with pytest.raises(UnknownToolError, match="did you mean search"):
        TOOLS.with_arguments({"serch": {"query": rename("q")}})


def test_p2_transforms_that_contradict_each_other_are_refused():
    with pytest.raises(DefinitionError, match="hide"):
        _ = hide(value=1) | rename("x")
    with pytest.raises(DefinitionError, match="non-empty name"):
        rename("")
    both = rename("a") | rename("b") | default(1) | describe("x") | default(2)
    assert (both.name, both.fallback, both.description) == ("b", 2, "x")


async def test_p2_what_the_verb_was_given_can_change_without_changing_the_toolset():
    transforms = {"search": {"key": hide(value="k")}}
    tools = TOOLS.with_arguments(transforms)
    transforms["search"]["query"] = rename("q")
    assert "query" in schema_of(tools)["properties"]


async def test_p2_transforms_add_up_and_follow_the_names_that_stand_at_that_point():
    tools = TOOLS.with_arguments({"search": {"query": rename("q")}}).prefixed("x")
    tools = tools.with_arguments({"x_search": {"q": rename("text"), "key": hide(value="k")}})
    done = await tools.execute("x_search", {"text": "abc"})
    assert done.structured["query"] == "abc" and done.structured["key"] == "k"


async def test_p2_a_call_keeps_what_the_model_sent():
    seen: list[ToolCall] = []

    async def execute(call: ToolCall, context: ToolContext) -> ToolResult:
        seen.append(call)
        return ToolResult.of_text("")

    tools = remote({"a": {"type": "string"}}, execute=execute).with_arguments({"far": {"a": rename("b")}})
    await tools.execute("far", {"b": "x"})
    assert seen[0].arguments == {"a": "x"} and seen[0].original == {"b": "x"}


def test_p2_a_manual_tool_can_only_be_described():
    @tool(manual=True)
    def pay(amount: int) -> str:
        """Pay."""
        return ""

    assert Toolset(pay).with_arguments({pay: {"amount": describe("In cents.")}}).names() == ["pay"]
    with pytest.raises(DefinitionError, match="manual: the application gets its arguments as the model"):
        Toolset(pay).with_arguments({pay: {"amount": rename("cents")}})


# A mounted tool.


class Mount(Toolset):
    def __init__(self, definition: ToolDefinition, execute: Any) -> None:
        self.definition = definition
        self._execute = execute
        self.source_name, self.status = "up", SourceStatus("ready")
        super().__init__(name="up")

    def sources(self) -> list[Any]:
        return [self]

    def bindings(self) -> list[ToolBinding]:
        return [listed(self.definition, self._execute, source="up")]


async def echo(call: ToolCall, context: ToolContext) -> ToolResult:
    return ToolResult.of_structured({"got": call.arguments})


def remote(properties: Any, *, execute: Any = echo, **schema: Any) -> Mount:
    whole = {"type": "object", "properties": properties, **schema}
    return Mount(ToolDefinition("far", input_schema=whole), execute)


async def got(tools: Toolset, arguments: dict[str, Any]) -> Any:
    return (await tools.execute("far", arguments)).structured["got"]


async def test_p2_a_mounted_tool_is_transformed_like_a_local_one():
    tools = remote({"a": {"type": "string"}, "b": {"type": "integer"}}, required=["a", "b"])
    changed = tools.with_arguments({"far": {"a": rename("text"), "b": hide(value=3)}})
    assert schema_of(changed, "far") == {
        "type": "object",
        "properties": {"text": {"type": "string"}},
        "required": ["text"],
    }
    assert await got(changed, {"text": "x"}) == {"a": "x", "b": 3}


@pytest.mark.parametrize("extra", ["a", "b"])
async def test_p2_a_name_that_only_the_tool_knows_cannot_be_given_as_a_free_one(extra: str):
    tools = remote({"a": {}, "b": {}}).with_arguments({"far": {"a": rename("text"), "b": hide(value=3)}})
    assert await got(tools, {"text": 1, "free": 2}) == {"a": 1, "b": 3, "free": 2}
    with pytest.raises(InvalidArgumentsError):
        await got(tools, {extra: 9})
    # A hook has edited the call after the check: the hidden value still wins.
    binding = tools.find("far")
    done = await binding.execute(ToolCall("far", {"a": 9, "b": 9}), ToolContext())
    assert done.structured == {"got": {"b": 3}}


async def test_p2_a_mounted_tool_that_cannot_be_transformed_is_set_aside_and_reported_once(
    caplog: pytest.LogCaptureFixture,
):
    mount = remote({"a": {}})
    tools = Toolset(search, mount).with_arguments({"far": {"secret": hide(value=1)}, "gone": {}})
    assert tools.names() == tools.names() == ["search"]
    assert tools.prefixed("p").set_aside() == [
        ("far", "tool 'far' has no parameter 'secret' to transform; its parameters: a")
    ]
    assert [(one.where, one.name) for one in tools.prefixed("p").unbound()] == [("with_arguments", "gone")]
    logged = [line for line in caplog.records if line.levelno == logging.WARNING]
    assert [line.getMessage() for line in logged] == [f"{tools.set_aside()[0][1]}; it is left out"]
    mount.definition = ToolDefinition("far", input_schema={"type": "object", "properties": {"secret": {}}})
    assert tools.names() == ["search", "far"]
    assert tools.set_aside() == []


def test_h20_a_transform_is_worked_out_once_for_each_definition():
    tools = remote({"a": {}}).with_arguments({"far": {"a": rename("b")}})
    assert tools.find("far").arguments is tools.find("far").arguments
    assert tools.find("far").definition is tools.find("far").definition


@pytest.mark.parametrize(
    "schema",
    [
        {"anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
        {"dependentRequired": {"b": ["a"]}},
        {"allOf": [{"properties": {"a": {"const": 1}}}]},
        {"if": {"properties": {"a": {"const": 1}}}, "then": {"required": ["b"]}},
        {"not": {"required": ["text"]}},
        {"maxProperties": 1},
        {"patternProperties": {"^x": {}}},
        {"allOf": [{"propertyNames": {"maxLength": 1}}]},
        {"$defs": {"x": {}}, "$ref": "#/$defs/x"},
    ],
)
def test_p2_parameters_that_the_schema_ties_together_can_only_be_described(schema: dict[str, Any]):
    tools = remote({"a": {}, "b": {}, "c": {}}, **schema)
    assert tools.with_arguments({"far": {"a": rename("text")}}).names() == []
    assert tools.with_arguments({"far": {"a": describe("Text.")}}).names() == ["far"]


def test_p2_a_tie_between_other_parameters_does_not_matter():
    tools = remote({"a": {}, "b": {}, "c": {}}, anyOf=[{"required": ["b"]}, {"required": ["c"]}])
    assert tools.with_arguments({"far": {"a": hide(value=1)}}).names() == ["far"]


TREE: dict[str, Any] = {
    "value": {"type": "integer"},
    "children": {"type": "array", "items": {"$ref": "#"}, "default": [{"$ref": "#"}]},
    "like": {"$ref": "#/properties/value"},
}


async def test_p2_references_into_the_root_still_mean_the_tool_s_own_schema():
    tools = remote(TREE, required=["value"], additionalProperties=False)
    changed = tools.with_arguments({"far": {"value": rename("number")}})
    inner = {"value": 2, "children": [{"value": 3}], "like": 4}
    assert await got(changed, {"number": 1, "children": [inner]}) == {"value": 1, "children": [inner]}
    for wrong in ({"number": 1, "children": [{"number": 2}]}, {"number": 1, "like": "x"}):
        with pytest.raises(InvalidArgumentsError):
            await got(changed, wrong)
    hidden = tools.with_arguments({"far": {"value": hide(value=7)}})
    assert await got(hidden, {"like": 4}) == {"value": 7, "like": 4}
    assert schema_of(hidden, "far")["properties"]["children"]["default"] == [{"$ref": "#"}]


def test_p2_examples_of_whole_arguments_follow():
    tools = remote({"a": {}, "b": {}}, examples=[{"a": 1, "b": 2}], default={"a": 3})
    changed = tools.with_arguments({"far": {"a": rename("x"), "b": hide(value=0)}})
    assert schema_of(changed, "far")["examples"] == [{"x": 1}]
    assert schema_of(changed, "far")["default"] == {"x": 3}


async def test_p2_an_invalid_call_made_of_a_hidden_value_never_quotes_it():
    schema = {"dependentSchemas": {"z": {"properties": {"y": {"type": "string"}}}}}
    tools = remote({"a": {}, "y": {}}, **schema).with_arguments({"far": {"a": hide(value="secret")}})
    view = ToolView(tools.bindings())
    with pytest.raises(InvalidArgumentsError) as refused:
        await view["far"].execute(ToolCall("far", {"z": 1, "y": 2}), ToolContext())
    assert "secret" not in str(refused.value)


# Properties.

NAMES = ["a", "b", "c", "d"]
SCHEMAS: list[tuple[Any, list[Any]]] = [
    ({"type": "string"}, ["", "x"]),
    ({"type": "integer", "minimum": 0}, [0, 5]),
    ({"$ref": "#/$defs/pair"}, [[1, 2]]),
    ({"anyOf": [{"type": "null"}, {"$ref": "#/properties/a"}]}, [None]),
    (True, ["x", 1, None, {"a": 1}]),
]
PAIR = {"$defs": {"pair": {"type": "array", "minItems": 2, "items": {"type": "integer"}}}}
values = st.sampled_from(["", "x", 0, 5, -1, [1, 2], [1], None, {"a": 1}])


@st.composite
def rearranged(draw: st.DrawFn) -> tuple[dict[str, Any], dict[str, Any]]:
    chosen = draw(st.lists(st.sampled_from(NAMES), min_size=1, unique=True))
    picked = {name: draw(st.sampled_from(SCHEMAS[:3] if name == "a" else SCHEMAS)) for name in ["a", *chosen]}
    required = sorted(name for name in picked if draw(st.booleans()))
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {name: one for name, (one, _) in picked.items()},
        "required": required,
        **PAIR,
    }
    if draw(st.booleans()):
        schema["additionalProperties"] = draw(st.sampled_from([False, {"type": "integer"}]))
    transforms: dict[str, Any] = {}
    for name, (_, fitting) in picked.items():
        kind = draw(st.sampled_from(["keep", "hide", "fixed", "rename", "default", "both"]))
        value = draw(st.sampled_from(fitting))
        if kind == "fixed" or (kind == "hide" and name in required):
            transforms[name] = hide(value=value)
        elif kind == "hide":
            transforms[name] = hide()
        elif kind in ("rename", "both"):
            transforms[name] = rename(f"new_{name}") | (default(value) if kind == "both" else describe("."))
        elif kind == "default":
            transforms[name] = default(value)
    return schema, transforms


def expected(transforms: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """What the tool should get, said in another way: parameter by parameter."""
    inner = dict(given)
    for name, one in transforms.items():
        if one.name is not None and one.name in inner:
            inner[name] = inner.pop(one.name)
        if isinstance(one.fallback, str | int | list | dict | None):
            inner.setdefault(name, one.fallback)
        if one.hidden and isinstance(one.value, str | int | list | dict | None):
            inner[name] = one.value
    return inner


@given(rearranged(), st.dictionaries(st.sampled_from([*NAMES, *(f"new_{name}" for name in NAMES)]), values))
async def test_p2_what_fits_the_shown_schema_reaches_the_tool_right_and_nothing_else_does(
    made: tuple[dict[str, Any], dict[str, Any]], given_: dict[str, Any]
):
    schema, transforms = made
    reached: list[dict[str, Any]] = []

    async def execute(call: ToolCall, context: ToolContext) -> ToolResult:
        reached.append(call.arguments)
        return ToolResult.of_text("")

    mount = Mount(ToolDefinition("far", input_schema=schema), execute)
    tools = mount.with_arguments({"far": transforms})
    assert tools.set_aside() == []
    shown = schema_of(tools, "far")
    visible = {one.name or name for name, one in transforms.items() if not one.hidden}
    visible |= schema["properties"].keys() - transforms.keys()
    assert set(shown["properties"]) == visible
    assert shown["$defs"]["pair"] == PAIR["$defs"]["pair"]
    unknown = given_.keys() - visible
    secret = any(name in schema["properties"] for name in unknown)
    inner = expected(transforms, given_)
    own = Draft202012Validator(schema)
    free = set() if "additionalProperties" not in schema else unknown
    fits = not secret and own.is_valid(inner) and (not free or schema["additionalProperties"] is not False)
    try:
        await tools.execute("far", given_)
    except InvalidArgumentsError:
        assert reached == [] and not fits
    else:
        assert reached == [inner] and fits
        assert Draft202012Validator(shown).is_valid(given_)


@given(st.text(min_size=2), st.text(), st.integers(-(2**53), 2**53))
async def test_p2_a_local_tool_gets_what_the_model_gave_under_other_names(query: str, key: str, limit: int):
    tools = TOOLS.with_arguments({"search": {"query": rename("q"), "key": rename("k"), "limit": rename("n")}})
    done = await tools.execute("search", {"q": query, "k": key, "n": limit})
    assert done.structured == {"query": query, "key": key, "limit": limit, "near": None}
