"""Plain types have the schemas, checks and forms that pydantic's own generators give them."""

from __future__ import annotations

import json
import subprocess
import sys
from inspect import Parameter, Signature
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field, TypeAdapter
from pydantic_core import SchemaSerializer, SchemaValidator, ValidationError, to_json

from mcp_toolset import tool
from mcp_toolset.tools.json_schema import PlainSchema
from mcp_toolset.tools.signature import plain_arguments, plain_type

words = st.sampled_from(["", "a", "1", "true", "None", "ü", "1.0"])
literals = st.lists(words, min_size=1, max_size=3, unique=True).map(lambda given: Literal[tuple(given)])
plain = st.recursive(
    st.sampled_from([str, int, float, bool]) | literals,
    lambda inner: inner.map(lambda item: list[item]) | inner.map(lambda item: dict[str, item] | None),
    max_leaves=3,
) | st.sampled_from([Any, list[Any], dict[str, Any], list[dict[str, Any]] | None, str | None])
defaults = st.just(Parameter.empty) | st.none() | st.booleans() | st.integers() | words | st.just(1.5)
parameters = st.dictionaries(st.sampled_from(["a", "b", "c"]), st.tuples(plain, defaults))
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**65), 2**65) | st.floats() | words | st.just(b"a"),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(words, inner, max_size=2),
    max_leaves=4,
)


def made(parameters: dict[str, tuple[Any, Any]]) -> list[Parameter]:
    return [
        Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        for name, (annotation, default) in parameters.items()
    ]


def of_pydantic(parameters: list[Parameter]) -> TypeAdapter[Any]:
    def keywords(**parsed: Any) -> dict[str, Any]:
        return parsed

    keywords.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    keywords.__signature__ = Signature(parameters)  # pyright: ignore[reportFunctionMemberAccess]
    return TypeAdapter[Any](keywords)  # pyright: ignore[reportArgumentType]


def outcome(validate: Any, value: Any) -> object:
    """What checking a value comes to; by its text, in which NaN equals itself and 1 is not True."""
    try:
        return repr(validate(value))
    except ValidationError as fault:
        return [(error["loc"], error["type"], error["msg"]) for error in fault.errors(include_url=False)]


@given(parameters, st.dictionaries(st.sampled_from(["a", "b", "c", "d"]), values, max_size=4))
def test_arguments_of_plain_types_are_those_of_pydantic(given: dict[str, Any], arguments: Any) -> None:
    found = plain_arguments(made(given))
    assert found is not None
    adapter = of_pydantic(made(given))
    assert json.dumps(found[1]) == json.dumps(adapter.json_schema(schema_generator=PlainSchema))
    ours = SchemaValidator(found[0])
    assert outcome(ours.validate_python, arguments) == outcome(adapter.validate_python, arguments)
    text = to_json(arguments, inf_nan_mode="constants")
    assert outcome(ours.validate_json, text) == outcome(adapter.validate_json, text)


@given(plain, values)
def test_a_returned_value_of_a_plain_type_is_written_as_pydantic_does(annotation: Any, value: Any) -> None:
    found, adapter = plain_type(annotation), TypeAdapter[Any](annotation)
    assert found is not None
    schema = adapter.json_schema(mode="serialization", schema_generator=PlainSchema)
    assert json.dumps(found[1]) == json.dumps(schema)
    ours = SchemaSerializer(found[0]).to_python(value, mode="json", by_alias=True, warnings=False)
    assert repr(ours) == repr(adapter.dump_python(value, mode="json", by_alias=True, warnings=False))


class Text(str): ...


@pytest.mark.parametrize(
    "annotation", [Text, bytes, list, dict, list[bytes], dict[int, str], Literal[1], int | str, None | str]
)
def test_other_types_are_left_to_pydantic(annotation: Any) -> None:
    assert plain_type(annotation) is None
    assert plain_type(Annotated[annotation, "said"]) is None
    assert plain_arguments(made({"a": (str, Parameter.empty), "b": (annotation, None)})) is None


@pytest.mark.parametrize("default", [float("nan"), [], {}, Text("a"), object()])
def test_other_defaults_are_left_to_pydantic(default: Any) -> None:
    assert plain_arguments(made({"a": (str, default)})) is None


def test_a_tool_of_plain_types_is_declared_without_pydantic_s_generators() -> None:
    program = """
import sys
from mcp_toolset import tool
@tool
def add(a: int, b: list[float] | None = None, *, how: str = "+") -> dict[str, int]: ...
print("pydantic" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.stderr) == ("False\n", "")


@pytest.mark.parametrize("annotation", [int, str | None, list[str], Literal["a", "b"]])
@pytest.mark.parametrize("default", [Parameter.empty, None])
def test_a_text_at_a_plain_type_is_its_description(annotation: Any, default: Any) -> None:
    found = plain_arguments(made({"a": (Annotated[annotation, "What it is."], default)}))
    assert found is not None
    described = Annotated[annotation, Field(description="What it is.")]
    adapter = of_pydantic(made({"a": (described, default)}))
    assert json.dumps(found[1]) == json.dumps(adapter.json_schema(schema_generator=PlainSchema))


@pytest.mark.parametrize("notes", [(Field(ge=1),), ("a text", Field(ge=1)), ("one", "two"), (Text("a"),)])
def test_other_notes_at_a_type_are_left_to_pydantic(notes: tuple[Any, ...]) -> None:
    annotated: Any = Annotated[int, *notes]
    assert plain_arguments(made({"a": (annotated, Parameter.empty)})) is None


def test_descriptions_join_the_schemas_of_plain_types() -> None:
    @tool
    def add(a: int, b: int = 2) -> int:
        """Add.

        Args:
            a: The first.
            b: The second.
        """
        return a + b

    assert json.dumps(add.definition.input_schema["properties"]) == json.dumps(
        {
            "a": {"description": "The first.", "type": "integer"},
            "b": {"default": 2, "description": "The second.", "type": "integer"},
        }
    )
