import json
from dataclasses import FrozenInstanceError, replace
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from mcp_toolset import ToolDefinition
from mcp_toolset.errors import DefinitionError

texts = st.text(max_size=20)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
objects = st.dictionaries(texts, values, max_size=4)
filled = st.dictionaries(texts, values, min_size=1, max_size=4)
schemas = objects.map(lambda schema: {**schema, "type": "object"})
STANDARD = {"name", "title", "description", "inputSchema", "outputSchema", "annotations", "icons", "_meta"}
definitions = st.builds(
    ToolDefinition,
    name=st.text(min_size=1, max_size=20).filter(str.strip),
    description=st.none() | texts,
    input_schema=schemas,
    output_schema=st.none() | schemas,
    title=st.none() | texts,
    annotations=st.none() | filled,
    icons=st.none() | st.lists(objects, min_size=1, max_size=2).map(tuple),
    meta=st.none() | filled,
    extra=objects.map(lambda extra: {key: value for key, value in extra.items() if key not in STANDARD}),
)


def shuffled(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: shuffled(value[key]) for key in reversed(list(value))}
    return [shuffled(item) for item in value] if isinstance(value, list) else value


@given(definitions)
def test_a1_a_definition_survives_json(definition: ToolDefinition):
    again = ToolDefinition.from_wire(json.loads(json.dumps(definition.to_wire())))
    assert again == definition
    assert again.digest == definition.digest
    assert hash(again) == hash(definition)


@given(definitions)
def test_a1_the_wire_form_comes_back_as_it_went(definition: ToolDefinition):
    wire = definition.to_wire()
    assert ToolDefinition.from_wire(wire).to_wire() == wire


@given(definitions)
def test_h17_the_digest_does_not_depend_on_the_order_of_keys(definition: ToolDefinition):
    assert ToolDefinition.from_wire(shuffled(definition.to_wire())).digest == definition.digest


@given(definitions, definitions)
def test_h17_digests_are_equal_exactly_when_the_texts_are(one: ToolDefinition, other: ToolDefinition):
    texts = [json.dumps(definition.to_wire(), sort_keys=True) for definition in (one, other)]
    assert (one.digest == other.digest) == (texts[0] == texts[1])


@given(definitions, texts)
def test_h17_another_description_is_another_digest(definition: ToolDefinition, text: str):
    assume(text != definition.description)
    before = definition.digest
    assert definition.described(text).digest != before
    assert definition.digest == before


def test_h17_a_digest_can_be_taken_of_any_text():
    assert len(ToolDefinition("probe", "\ud800").digest) == 64


def test_o1_a_definition_cannot_be_changed():
    definition = ToolDefinition("probe")
    with pytest.raises(FrozenInstanceError):
        definition.name = "other"  # type: ignore[misc]


def test_a1_keys_of_later_revisions_are_carried_along_and_never_displace_ours():
    wire = {"name": "probe", "inputSchema": {"type": "object"}, "execution": {"taskSupport": "optional"}}
    definition = ToolDefinition.from_wire(wire)
    assert definition.extra == {"execution": {"taskSupport": "optional"}}
    assert definition.to_wire("public") == {**wire, "name": "public"}
    odd = replace(definition, extra={"name": "shadow"})
    assert odd.to_wire()["name"] == "probe"


def test_a1_a_bare_definition_has_an_object_schema():
    assert ToolDefinition("probe").to_wire() == {
        "name": "probe",
        "inputSchema": {"type": "object", "properties": {}},
    }


def test_o1_the_wire_form_is_a_copy():
    definition = ToolDefinition("probe")
    definition.to_wire()["inputSchema"]["type"] = "array"
    assert definition.input_schema["type"] == "object"


@pytest.mark.parametrize(
    ("annotations", "read_only"),
    [(None, False), ({}, False), ({"readOnlyHint": True}, True), ({"readOnlyHint": "yes"}, False)],
)
def test_x3_only_an_explicit_hint_makes_a_tool_read_only(annotations: Any, read_only: bool):
    assert ToolDefinition("probe", annotations=annotations).read_only is read_only


@pytest.mark.parametrize(
    ("wire", "says"),
    [
        ({}, "without a usable name: None"),
        ({"name": ""}, "without a usable name: ''"),
        ({"name": 5}, "without a usable name: 5"),
        ({"inputSchema": None}, "inputSchema must be an object, found nothing"),
        ({"inputSchema": []}, "inputSchema must be an object, found list"),
        ({"inputSchema": {}}, 'inputSchema must have "type": "object"'),
        ({"inputSchema": {"type": "array"}}, 'inputSchema must have "type": "object"'),
        ({"outputSchema": True}, "outputSchema must be an object, found bool"),
        ({"description": 5}, "description must be a string, found int"),
        ({"title": []}, "title must be a string, found list"),
        ({"annotations": "x"}, "annotations must be an object, found str"),
        ({"icons": {}}, "icons must be a list, found dict"),
        ({"icons": ["x"]}, "icons must be a list of objects"),
        ({"icons": [["a", "b"]]}, "icons must be a list of objects"),
        ({"_meta": 1}, "_meta must be an object, found int"),
    ],
)
def test_f17_a_malformed_entry_is_refused_with_the_tool_the_key_and_what_was_found(
    wire: dict[str, Any], says: str
):
    base = {"name": "probe", "inputSchema": {"type": "object"}} if wire and "name" not in wire else {}
    with pytest.raises(DefinitionError) as refused:
        ToolDefinition.from_wire({**base, **wire})
    assert says in str(refused.value)
    assert not base or "'probe'" in str(refused.value)


@pytest.mark.parametrize("key", ["description", "title", "outputSchema", "annotations", "icons", "_meta"])
def test_f17_null_for_an_optional_key_means_absent(key: str):
    wire = {"name": "probe", "inputSchema": {"type": "object"}}
    assert ToolDefinition.from_wire({**wire, key: None}).to_wire() == wire
