import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.extensions.model_loop.test_export import binding

from mcp_toolset import ToolBinding, Toolset, tool
from mcp_toolset.errors import DefinitionError
from mcp_toolset.rounds import ToolAvailability, ToolRequirement


def add(a: int, b: int) -> int:
    """Add."""
    return a + b


def erase(id: str) -> None:
    """Erase."""


TOOLS = Toolset(add, erase).off("erase")
OBJECT = {"type": "object"}
PROVIDERS = ["openai", "openai_responses", "anthropic", "gemini"]


def table(*names: str) -> dict[str, ToolBinding]:
    return {name: binding(OBJECT, name=name) for name in names}


def test_l11_optional_is_met_by_anything():
    assert ToolRequirement.optional().resolve(table("a", "b")) == ["a", "b"]
    assert ToolRequirement.optional().resolve({}) == []
    assert ToolRequirement() == ToolRequirement.optional()


def test_l12_at_least_one_over_an_empty_set_is_an_error_that_says_the_mend():
    assert ToolRequirement.at_least_one().resolve(table("a")) == ["a"]
    with pytest.raises(DefinitionError, match=r"widen the availability"):
        ToolRequirement.at_least_one().resolve({})


def test_l12_specific_outside_of_the_resolved_set_names_it_and_what_there_is():
    assert ToolRequirement.specific("a").resolve(table("a", "b")) == ["a"]
    with pytest.raises(DefinitionError, match=r"'c'.*available: a, b.*default_plus\('c'\)"):
        ToolRequirement.specific("c").resolve(table("b", "a"))
    with pytest.raises(DefinitionError, match=r"\(no tool is\)"):
        ToolRequirement.specific("c").resolve({})


def test_l12_the_message_lists_only_some_of_many_names():
    with pytest.raises(DefinitionError, match=r"t09 and 90 more"):
        ToolRequirement.specific("c").resolve(table(*(f"t{number:02}" for number in range(100))))


@pytest.mark.parametrize("provider", PROVIDERS)
def test_l11_the_tool_itself_can_be_required_under_whatever_name_it_has(provider):
    adding = tool(add)
    view = Toolset(Toolset(adding, erase).prefixed("in"), name="outer").view()
    requirement = ToolRequirement.specific(adding)
    assert requirement.resolve(view) == ["in_add"]
    assert "in_add" in repr(view.export(provider, requirement=requirement).tool_choice)


def test_l12_a_tool_that_stands_there_twice_must_be_required_by_name():
    adding = tool(add)
    view = Toolset(Toolset(adding).prefixed("a"), Toolset(adding).prefixed("b")).view()
    with pytest.raises(DefinitionError, match="a_add, b_add"):
        ToolRequirement.specific(adding).resolve(view)
    assert ToolRequirement.specific("b_add").resolve(view) == ["b_add"]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_l12_an_export_is_refused_before_anything_is_made(provider):
    requirement = ToolRequirement.specific("erase")
    with pytest.raises(DefinitionError, match="'erase' is not available"):
        TOOLS.view().export(provider, requirement=requirement)
    available = ToolAvailability.default_plus("erase")
    assert TOOLS.view(available).export(provider, requirement=requirement).names["erase"] == "erase"


@pytest.mark.parametrize("provider", PROVIDERS)
def test_l12_at_least_one_of_no_tools_is_refused_by_every_export(provider):
    view = TOOLS.view(ToolAvailability.only())
    with pytest.raises(DefinitionError, match="no tool is available"):
        view.export(provider, requirement=ToolRequirement.at_least_one())
    assert view.export(provider).request() == {}


@pytest.mark.parametrize(("kind", "selector"), [("specific", None), ("optional", "a"), ("at_least_one", "a")])
def test_l11_a_requirement_that_means_nothing_cannot_be_made(kind, selector):
    with pytest.raises(DefinitionError, match=r"ToolRequirement\.optional"):
        ToolRequirement(kind, selector)


requirements = st.one_of(
    st.just(ToolRequirement.optional()),
    st.just(ToolRequirement.at_least_one()),
    st.sampled_from("abcd").map(ToolRequirement.specific),
)


@given(requirements, st.lists(st.sampled_from("abcd"), unique=True))
def test_l12_what_resolves_is_part_of_what_is_available_and_never_empty_when_a_call_is_required(
    requirement, names
):
    met = bool(names) if requirement.kind == "at_least_one" else requirement.selector in (None, *names)
    if not met:
        with pytest.raises(DefinitionError):
            requirement.resolve(table(*names))
        return
    found = requirement.resolve(table(*names))
    assert set(found) <= set(names)
    assert found or requirement.kind == "optional"
