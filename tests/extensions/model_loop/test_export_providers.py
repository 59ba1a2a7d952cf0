"""Each provider's own form, checked with the types of its client library where that is installed."""

from dataclasses import replace
from typing import Any

import jsonschema_rs
import pytest
from anthropic.types import ToolChoiceParam, ToolParam, ToolUnionParam
from openai.types.chat import ChatCompletionFunctionToolParam, ChatCompletionToolChoiceOptionParam
from openai.types.responses import FunctionToolParam, ToolChoiceFunctionParam
from openai.types.responses.tool_choice_options import ToolChoiceOptions
from openai.types.responses.tool_param import ToolParam as ResponseToolParam
from openai.types.responses.tool_search_tool_param import ToolSearchToolParam
from pydantic import TypeAdapter
from tests.extensions.model_loop.test_export import binding

from mcp_toolset import ToolBinding, Toolset, ToolView
from mcp_toolset.errors import DefinitionError
from mcp_toolset.rounds import ToolRequirement

OPTIONAL = ToolRequirement.optional()
REQUIRED = ToolRequirement.at_least_one()


def weather(city: str, days: int = 3) -> str:
    """The weather.

    Args:
        city: Where.
        days: How many days.
    """
    return city


def erase(id: str) -> None:
    """Erase a record."""


VIEW = Toolset(weather, erase).view()
SPECIFIC = ToolRequirement.specific("erase")
DEFERRED = ToolView([VIEW["weather"], replace(VIEW["erase"], deferred=True)])


def schema_of(provider: Any, schema: dict[str, Any], **options: Any) -> dict[str, Any]:
    return _schema(provider, ToolView([binding(schema)]).export(provider, **options).tools[0])


def _schema(provider: str, tool: dict[str, Any]) -> dict[str, Any]:
    if provider == "gemini":
        return tool["functionDeclarations"][0]["parametersJsonSchema"]
    return tool["input_schema"] if provider == "anthropic" else tool.get("function", tool)["parameters"]


def takes(shape: Any, value: Any) -> None:
    TypeAdapter(shape).validate_python(value, strict=True)


@pytest.mark.parametrize("strict", [False, True])
def test_o7_openai_chat_is_what_the_client_takes(strict):
    exported = VIEW.export("openai", strict=strict)
    takes(list[ChatCompletionFunctionToolParam], exported.tools)
    assert [tool["function"].get("strict") for tool in exported.tools] == (
        [True] * 2 if strict else [None] * 2
    )
    assert exported.request() == {"tools": exported.tools, "tool_choice": "auto"}


@pytest.mark.parametrize("strict", [False, True])
def test_o7_openai_responses_is_what_the_client_takes_and_always_says_strict(strict):
    exported = VIEW.export("openai_responses", strict=strict)
    takes(list[FunctionToolParam], exported.tools)
    assert [tool["strict"] for tool in exported.tools] == [strict, strict]


@pytest.mark.parametrize("strict", [False, True])
def test_o7_anthropic_is_what_the_client_takes(strict):
    exported = VIEW.export("anthropic", strict=strict)
    takes(list[ToolParam], exported.tools)
    assert exported.tools[0]["name"] == "weather"
    assert exported.tools[0]["input_schema"]["required"] == ["city"]
    assert [tool.get("strict", False) for tool in exported.tools] == [strict, strict]


def test_o7_gemini_has_declarations_in_one_tool_and_its_own_words_for_the_choice():
    exported = VIEW.export("gemini")
    (tool,) = exported.tools
    first = tool["functionDeclarations"][0]
    assert (first["name"], first["description"]) == ("weather", "The weather.")
    assert first["parametersJsonSchema"]["properties"]["city"] == {"type": "string", "description": "Where."}
    assert exported.request() == {
        "tools": exported.tools,
        "toolConfig": {"functionCallingConfig": {"mode": "AUTO"}},
    }


@pytest.mark.parametrize(
    ("requirement", "chat", "responses", "anthropic", "gemini"),
    [
        (OPTIONAL, "auto", "auto", {"type": "auto"}, {"mode": "AUTO"}),
        (REQUIRED, "required", "required", {"type": "any"}, {"mode": "ANY"}),
        (
            SPECIFIC,
            {"type": "function", "function": {"name": "erase"}},
            {"type": "function", "name": "erase"},
            {"type": "tool", "name": "erase"},
            {"mode": "ANY", "allowedFunctionNames": ["erase"]},
        ),
    ],
)
def test_l11_each_requirement_in_each_providers_words(requirement, chat, responses, anthropic, gemini):
    def choice(provider):
        return VIEW.export(provider, requirement=requirement).tool_choice

    assert choice("openai") == chat
    takes(ChatCompletionToolChoiceOptionParam, chat)
    assert choice("openai_responses") == responses
    takes(ToolChoiceOptions | ToolChoiceFunctionParam, responses)
    assert choice("anthropic") == anthropic
    takes(ToolChoiceParam, anthropic)
    assert choice("gemini") == {"functionCallingConfig": gemini}


def test_l11_gemini_holds_calls_to_their_schema_in_strict_mode():
    choice = VIEW.export("gemini", strict=True).tool_choice
    assert choice == {"functionCallingConfig": {"mode": "VALIDATED"}}


def test_o7_an_unknown_provider_is_refused_by_name():
    with pytest.raises(DefinitionError, match="'mistral'; use one of openai, openai_responses"):
        VIEW.export("mistral")  # pyright: ignore[reportArgumentType]


def test_x1_anthropic_finds_deferred_tools_with_its_own_search():
    search, resident, hidden = DEFERRED.export("anthropic").tools
    assert search == {"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"}
    assert "defer_loading" not in resident and hidden["defer_loading"] is True
    takes(list[ToolUnionParam], [search, resident, hidden])
    assert DEFERRED.to_anthropic() == [search, resident, hidden]


def test_x1_openai_responses_finds_deferred_tools_with_its_own_search():
    resident, hidden, search = DEFERRED.export("openai_responses").tools
    assert "defer_loading" not in resident and hidden["defer_loading"] is True
    takes(FunctionToolParam, hidden)
    takes(ToolSearchToolParam, search)
    assert DEFERRED.to_openai_responses() == [resident, hidden, search]


@pytest.mark.parametrize("provider", ["openai", "gemini"])
def test_x1_deferred_tools_are_left_out_where_the_provider_has_no_search(provider):
    assert list(DEFERRED.export(provider, deferred=True).names) == ["weather"]
    with pytest.raises(DefinitionError, match="'erase' is not available"):
        DEFERRED.export(provider, requirement=SPECIFIC, deferred=False)


def test_m5_openai_responses_gets_the_deferred_tools_of_each_server_in_a_namespace():
    def of(name: str, source: str) -> ToolBinding:
        return replace(VIEW["erase"], name=name, source=source, deferred=True)

    view = ToolView([VIEW["weather"], of("crm_erase", "crm"), of("x", "crm"), of("y", "a b"), of("z", "")])
    exported = view.export("openai_responses")
    weather, own, crm, other, search = exported.tools
    takes(list[ResponseToolParam], exported.tools)
    assert (weather["name"], own["name"], search) == ("weather", "z", {"type": "tool_search"})
    assert (crm["type"], crm["name"], [one["name"] for one in crm["tools"]]) == (
        "namespace",
        "crm",
        ["crm_erase", "x"],
    )
    assert crm["description"] == "2 tools of the server crm: crm_erase, x"
    assert all(one["defer_loading"] for one in crm["tools"])
    assert other["name"] == "a_b"
    assert set(exported.names) == {"weather", "crm_erase", "x", "y", "z"}


def test_m5_a_namespace_never_has_the_name_of_a_tool():
    view = ToolView([replace(VIEW["erase"], name=name, source="crm", deferred=True) for name in ("crm", "b")])
    (space, _) = view.export("openai_responses").tools
    assert space["name"] == "crm_2"


@pytest.mark.parametrize("provider", ["anthropic", "openai_responses"])
def test_x1_deferred_tools_can_be_left_out_for_our_own_search(provider):
    exported = DEFERRED.export(provider, deferred=False)
    assert list(exported.names) == ["weather"] and len(exported.tools) == 1


@pytest.mark.parametrize("provider", ["anthropic", "openai_responses"])
def test_x1_a_required_tool_is_not_left_to_be_searched_for(provider):
    tools = DEFERRED.export(provider, requirement=SPECIFIC).tools
    assert len(tools) == 2 and "defer_loading" not in repr(tools)


def test_o7_a_description_too_long_for_openai_goes_on_at_the_parameters():
    text = "\n".join(f"Line {number} says something." for number in range(100))
    (tool,) = ToolView([binding({"type": "object", "description": "Last."}, description=text)]).to_openai()
    function = tool["function"]
    assert len(function["description"]) <= 1024
    head = function["description"].removesuffix(" (Continued in the description of the parameters.)")
    assert (head + " " + function["parameters"]["description"]).split() == [*text.split(), "Last."]


def test_o7_a_description_without_a_space_is_cut_where_it_must_be():
    (tool,) = ToolView([binding({"type": "object"}, description="x" * 3000)]).to_openai()
    head, rest = tool["function"]["description"], tool["function"]["parameters"]["description"]
    assert len(head) <= 1024 and head.count("x") + rest.count("x") == 3000


UNION = {
    "type": "object",
    "properties": {"verbose": {"type": "boolean"}},
    "oneOf": [
        {"properties": {"kind": {"const": "city"}, "city": {"type": "string"}}, "required": ["kind", "city"]},
        {"$ref": "#/$defs/Point"},
    ],
    "$defs": {
        "Point": {
            "type": "object",
            "properties": {"kind": {"const": "point"}, "lat": {"type": "number"}},
            "required": ["kind", "lat"],
        }
    },
}


@pytest.mark.parametrize("provider", ["openai", "openai_responses", "anthropic", "gemini"])
def test_o7_a_union_at_the_root_becomes_one_object_that_says_what_belongs_together(provider):
    schema = schema_of(provider, UNION)
    assert schema["type"] == "object"
    assert not {"oneOf", "anyOf", "allOf", "not", "enum", "const", "$ref"} & schema.keys()
    assert list(schema["properties"]) == ["verbose", "kind", "city", "lat"]
    assert schema["required"] == ["kind"]
    assert schema["description"] == (
        'Give the arguments of exactly one of these: (kind = "city", city); (kind = "point", lat).'
    )
    check = jsonschema_rs.validator_for(schema)
    assert check.is_valid({"kind": "city", "city": "Bern"}) and check.is_valid({"kind": "point", "lat": 1})
    assert not check.is_valid({"kind": "moon", "city": "Bern"})


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (
            {"type": "object", "allOf": [{"properties": {"a": {"type": "string"}}, "required": ["a"]}]},
            {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
        ),
        (
            {"type": "object", "$ref": "#/$defs/A", "$defs": {"A": {"properties": {"a": {}}}}},
            {"type": "object", "properties": {"a": {}}, "$defs": {"A": {"properties": {"a": {}}}}},
        ),
        (
            {"type": "object", "not": {"required": ["a"]}},
            {
                "type": "object",
                "properties": {},
                "description": 'The arguments must not fit {"required": ["a"]}.',
            },
        ),
        (
            {"type": "object", "enum": [{"a": 1}], "description": "Odd."},
            {
                "type": "object",
                "properties": {},
                "description": 'Odd. The arguments as a whole are one of [{"a": 1}].',
            },
        ),
        (
            {
                "type": "object",
                "properties": {"a": {"type": "string"}},
                "additionalProperties": False,
                "anyOf": [{"properties": {"b": {}}}, {"required": ["a"]}],
            },
            {
                "type": "object",
                "properties": {"a": {"type": "string"}},
                "additionalProperties": False,
                "description": "Give the arguments of at least one of these: (b); (a).",
            },
        ),
        (
            {
                "type": "object",
                "allOf": [{"properties": {"a": {"minimum": 1}}}, {"properties": {"a": {"maximum": 5}}}],
            },
            {"type": "object", "properties": {"a": {"allOf": [{"minimum": 1}, {"maximum": 5}]}}},
        ),
    ],
)
def test_o7_what_stands_at_a_root_is_merged_or_told(schema, expected):
    assert schema_of("openai", schema) == expected


@pytest.mark.parametrize(
    ("second", "closed"),
    [
        ({"additionalProperties": False}, True),
        ({}, False),
        ({"additionalProperties": False, "patternProperties": {"^x": {}}}, False),
    ],
)
def test_o7_a_merged_root_is_closed_only_where_every_branch_is(second, closed):
    branches = [{"properties": {"a": {}}, "additionalProperties": False}, {"properties": {"b": {}}, **second}]
    schema = schema_of("openai", {"type": "object", "anyOf": branches})
    assert (schema.get("additionalProperties") is False) == closed


def test_o7_references_to_moved_parts_still_lead_somewhere():
    schema = {
        "type": "object",
        "anyOf": [{"properties": {"a": {"type": "string", "minLength": 2}}}, {"required": ["b"]}],
        "properties": {"b": {"$ref": "#/anyOf/0/properties/a"}, "self": {"$ref": "#"}},
    }
    made = schema_of("anthropic", schema)
    check = jsonschema_rs.validator_for(made)
    assert check.is_valid({"b": "xx", "self": {"b": "yy"}})
    assert not check.is_valid({"b": "x"}) and not check.is_valid({"b": "xx", "self": {"b": "y"}})


TREE = {"type": "object", "properties": {"kids": {"type": "array", "items": {"$ref": "#/$defs/Tree"}}}}
GEMINI = {
    "type": "object",
    "properties": {
        "place": {"$ref": "#/$defs/Place", "description": "Where."},
        "tree": {"$ref": "#/$defs/Tree", "title": "T"},
        "mode": {"const": "fast"},
        "on": {"const": True},
        "level": {"oneOf": [{"type": "integer"}, {"type": "null"}], "default": 3},
        "mail": {"type": "string", "format": "email", "maxLength": 9},
        "both": {"allOf": [{"type": "integer", "minimum": 1}, {"$ref": "#/$defs/Small"}]},
        "two": {"anyOf": [{"type": "string"}], "oneOf": [{"maxLength": 3}]},
        "any": True,
        "map": {"type": "object", "additionalProperties": {"type": "string", "pattern": "x"}},
    },
    "$defs": {
        "Place": {"type": "object", "properties": {"city": {"type": "string"}}},
        "Tree": {
            "type": "object",
            "properties": {"kids": {"type": "array", "items": {"$ref": "#/$defs/Tree"}}},
        },
        "Small": {"maximum": 5},
    },
}


def test_o7_gemini_gets_the_part_of_json_schema_that_it_knows_and_the_rest_in_words():
    properties = schema_of("gemini", GEMINI)["properties"]
    assert properties["place"] == {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "description": "Where.",
    }
    assert properties["mode"] == {"enum": ["fast"]}
    assert properties["on"] == {"description": "(const: true)"}
    assert properties["level"] == {
        "anyOf": [{"type": "integer"}, {"type": "null"}],
        "description": "(default: 3)",
    }
    assert properties["mail"] == {"type": "string", "description": '(format: "email"; maxLength: 9)'}
    assert properties["both"] == {"type": "integer", "minimum": 1, "maximum": 5}
    assert properties["two"] == {"anyOf": [{"type": "string"}], "description": '(oneOf: [{"maxLength": 3}])'}
    assert properties["any"] == {}
    assert properties["map"]["additionalProperties"] == {"type": "string", "description": '(pattern: "x")'}


def test_o7_gemini_keeps_a_reference_only_where_it_would_not_end_and_then_alone():
    schema = schema_of("gemini", GEMINI)
    assert schema["properties"]["tree"] == {"$ref": "#/$defs/Tree"}
    assert schema["$defs"] == {
        "Tree": {
            "type": "object",
            "properties": {"kids": {"type": "array", "items": {"$ref": "#/$defs/Tree"}}},
        }
    }


def test_o7_gemini_does_not_unfold_references_without_bound():
    levels = {
        f"L{n}": {"type": "object", "properties": {k: {"$ref": f"#/$defs/L{n + 1}"} for k in "abcd"}}
        for n in range(12)
    }
    levels["L12"] = {"type": "string"}
    schema = schema_of(
        "gemini", {"type": "object", "properties": {"x": {"$ref": "#/$defs/L0"}}, "$defs": levels}
    )
    assert len(repr(schema)) < 100_000
    jsonschema_rs.validator_for(schema)
