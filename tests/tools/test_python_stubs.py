"""Tools as typed Python functions: their names, and stubs that stand in place of definitions."""

from __future__ import annotations

import ast
import json
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from mcp_toolset import ToolDefinition, tool
from mcp_toolset.tools.python_stub import Functions, python_name, python_stub


class Order(BaseModel):
    id: str
    amount: float
    parent: Order | None = None


class Orders(BaseModel):
    orders: list[Order]
    total: int = 0


@tool
def orders_list(
    month: Annotated[str, Field(description="As YYYY-MM.")],
    limit: int = 200,
    state: Literal["open", "paid"] = "open",
    tag: str | None = None,
) -> Orders:
    """List the orders of a month."""
    return Orders(orders=[])


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("get_weather", "get_weather"),
        ("get-weather", "get_weather"),
        ("files/read.text", "files_read_text"),
        ("list", "list_"),
        ("import", "import_"),
        ("json", "json_"),
        ("__import__", "import_"),
        ("3d", "tool_3d"),
        ("_private", "private"),
        ("ａｓｙｎｃ", "tool_4977"),
    ],
)
def test_m6_a_tool_has_a_name_that_python_can_call(name: str, function: str) -> None:
    found = python_name(name)
    assert found.isidentifier() and found.isascii()
    assert found == function or (found.startswith("tool_") and not name.isascii())


def test_m6_no_function_stands_for_two_tools() -> None:
    functions = Functions(["get-weather", "get_weather", "get.weather", "other"])
    assert functions.tools["other"] == "other" and "get_weather" not in functions.tools
    assert len(functions.ambiguous["get_weather"]) == 3
    assert sorted(functions.tools.values()) == ["get-weather", "get.weather", "get_weather", "other"]


def test_m6_a_server_cannot_name_a_tool_so_that_it_takes_the_place_of_another() -> None:
    pair = ["get-weather", "get_weather"]
    taken = list(Functions(pair).ambiguous["get_weather"])
    functions = Functions([*pair, taken[0]])
    assert functions.tools[taken[0]] == taken[0]
    assert sorted(functions.tools.values()) == sorted([*pair, taken[0]])


def test_m6_a_stub_is_python_with_the_types_of_the_schemas() -> None:
    text = python_stub("orders-list", orders_list.definition)
    ast.parse(text)
    assert "async def orders_list(*, month: str, limit: int = 200" in text
    assert "state: Literal['open', 'paid'] = 'open', tag: str | None = None) -> OrdersList:" in text
    assert "class OrdersList(TypedDict):\n    orders: list[OrdersListOrder]\n" in text
    assert "    total: NotRequired[int]" in text
    assert "month: As YYYY-MM." in text and "List the orders of a month." in text
    assert len(text) * 2 < len(json.dumps(orders_list.definition.to_wire("orders-list")))


def _definition(properties: Any, output: Any = None) -> ToolDefinition:
    schema = {"type": "object", "properties": properties}
    return ToolDefinition("odd", input_schema=schema, output_schema=output)


def test_m6_a_result_without_a_schema_is_any_and_odd_parameters_are_told() -> None:
    text = python_stub("odd", _definition({"from": {"type": "string"}, "a-b": {"type": "integer"}}))
    ast.parse(text)
    assert text.startswith("async def odd(**more: Any) -> Any:")
    assert "Pass **{'from': …}: str" in text and "Pass **{'a-b': …}: int" in text


@pytest.mark.parametrize(
    "strange",
    [
        {"$ref": "#/nowhere"},
        {"$ref": "https://example.org/x"},
        {"$ref": "#"},
        {"enum": [[1], {}]},
        {"type": ["string", "null", 3]},
        {"anyOf": "no"},
        {"type": "object", "properties": []},
        {"type": "array", "items": 5},
        {"default": 'x"""\n    import os'},
        {"type": "string", "description": 'ends """ early\n\nos.system("x")'},
        True,
        None,
        "string",
    ],
)
def test_m6_schemas_of_strangers_give_stubs_that_are_still_python(strange: Any) -> None:
    text = python_stub("odd", _definition({"it": strange}, {"type": "object", "properties": {"it": strange}}))
    tree = ast.parse(text)
    assert all(isinstance(each, ast.AsyncFunctionDef | ast.ClassDef) for each in tree.body)
    function = tree.body[-1]
    assert isinstance(function, ast.AsyncFunctionDef) and len(function.body) <= 2


def test_m6_a_type_within_itself_and_a_deep_one_end() -> None:
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}}}
    schema = {"type": "object", "properties": {"head": {"$ref": "#/$defs/Node"}}, "$defs": {"Node": node}}
    ast.parse(python_stub("odd", _definition({}, schema)))
    deep: dict[str, Any] = {"type": "string"}
    for _ in range(60):
        deep = {"type": "object", "properties": {"x": deep}}
    text = python_stub("odd", _definition({"it": deep}, deep))
    ast.parse(text)
    assert len(text) < 2000
