import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.extensions.model_loop.test_export import binding

from mcp_toolset import ToolView
from mcp_toolset.errors import DefinitionError, UnknownToolError
from mcp_toolset.extensions.model_loop.offering import FORMS
from mcp_toolset.extensions.model_loop.schema import provider_names
from mcp_toolset.rounds import ToolRequirement

OBJECT = {"type": "object"}
public = st.text(st.sampled_from("abzAZ019_.-"), min_size=1, max_size=128)


@given(st.lists(st.text(max_size=140), unique=True), st.sampled_from(sorted(FORMS)))
def test_o7_names_are_unique_in_the_alphabet_and_kept_where_they_fit(names, provider):
    form = FORMS[provider]
    table = provider_names(names, form.names, form.reserved)
    assert list(table) == names
    assert len(set(table.values())) == len(names)
    for own, name in table.items():
        assert form.names.fullmatch(name)
        assert name == own or not form.names.fullmatch(own) or own in form.reserved


@given(st.lists(st.text(max_size=80), min_size=1, unique=True))
def test_o7_a_name_that_looks_like_an_altered_one_is_not_mistaken_for_it(names):
    legal = FORMS["openai"].names
    crafted = list(dict.fromkeys([*names, *provider_names(names, legal).values()]))
    table = provider_names(crafted, legal)
    assert len(set(table.values())) == len(crafted)
    assert all(table[name] == name for name in crafted if legal.fullmatch(name))


@given(st.lists(st.text(min_size=1, max_size=80), min_size=2, unique=True))
def test_o7_a_name_is_altered_alike_whatever_stands_beside_it(names):
    legal = FORMS["gemini"].names
    alone = provider_names(names[:1], legal)
    assert provider_names(names, legal)[names[0]] == alone[names[0]]


@given(st.lists(public, min_size=1, max_size=6, unique=True), st.sampled_from(sorted(FORMS)))
def test_o7_the_table_of_an_export_leads_back_from_every_name(names, provider):
    exported = ToolView([binding(OBJECT, name=name) for name in names]).export(provider)
    assert [exported.decode(name) for name in exported.names] == names
    assert sorted(exported.names.values()) == sorted(names)


@pytest.mark.parametrize(
    ("provider", "name"),
    [
        ("openai", "with.dot"),
        ("openai", "x" * 65),
        ("openai_responses", "with.dot"),
        ("anthropic", "with.dot"),
        ("gemini", "9lives"),
        ("gemini", "-dash"),
    ],
)
def test_o7_a_refused_name_goes_out_under_another_and_comes_back(provider, name):
    view = ToolView([binding(OBJECT, name=name)])
    exported = view.export(provider, requirement=ToolRequirement.specific(name))
    (other,) = exported.names
    assert FORMS[provider].names.fullmatch(other) and other != name
    assert other in repr(exported.tools) and other in repr(exported.tool_choice)
    assert exported.call(other, {"a": 1}, "c1").name == name
    with pytest.raises(DefinitionError, match=r"renamed.*keeps a table of names"):
        getattr(view, f"to_{provider}")()


@pytest.mark.parametrize(("provider", "name"), [("anthropic", "x" * 128), ("gemini", "a.b:c")])
def test_o7_a_name_that_only_some_refuse_is_kept_by_the_others(provider, name):
    assert FORMS[provider].names.fullmatch(name)
    assert not FORMS["openai"].names.fullmatch(name)


def test_o7_the_name_of_the_providers_own_search_is_not_taken_twice():
    view = ToolView([binding(OBJECT, name="tool_search_tool_bm25")])
    (name,) = view.export("anthropic").names
    assert name != "tool_search_tool_bm25"


def test_o7_a_name_that_never_went_out_is_unknown():
    exported = ToolView([binding(OBJECT)]).export("openai")
    for attempt in (exported.decode, lambda name: exported.decode_arguments(name, {})):
        with pytest.raises(UnknownToolError):
            attempt("other")


ODD = {
    "type": "object",
    "properties": {"$filter": {"type": "string", "description": "Odd."}, "top": {"type": "integer"}},
    "required": ["$filter"],
    "dependentRequired": {"$filter": ["top"]},
}


@pytest.mark.parametrize("provider", ["anthropic", "gemini"])
def test_o7_an_argument_whose_name_is_refused_goes_out_under_another_and_comes_back(provider):
    view = ToolView([binding(ODD)])
    exported = view.export(provider)
    tool = exported.tools[0] if provider == "anthropic" else exported.tools[0]["functionDeclarations"][0]
    schema = tool.get("input_schema") or tool["parametersJsonSchema"]
    (name,) = schema["required"]
    assert re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,63}", name)
    assert schema["properties"][name]["description"] == "The argument '$filter'. Odd."
    assert "dependentRequired" not in schema
    assert exported.decode_arguments("probe", {name: "x", "top": 1}) == {"$filter": "x", "top": 1}
    with pytest.raises(DefinitionError, match="argument whose name"):
        getattr(view, f"to_{provider}")()


def test_o7_openai_takes_any_argument_name():
    (tool,) = ToolView([binding(ODD)]).to_openai()
    assert tool["function"]["parameters"] == ODD
