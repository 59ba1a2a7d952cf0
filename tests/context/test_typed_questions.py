"""`context.ask` takes types as well as schemas, and the answer is a value of the type."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal

import pytest
from pydantic import BaseModel, Field
from tests.support.asking import ERAS, Person, connected, text_of

from mcp_toolset import ToolContext, tool
from mcp_toolset.serving.serve import server_of

pytestmark = pytest.mark.anyio


class Guest(BaseModel):
    name: str = Field(description="As in the passport.")
    age: int = Field(ge=0)
    note: str | None = None


@dataclass
class Room:
    size: Literal["small", "large"]
    view: bool = False


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


async def asked(wanted: Any, answer: dict[str, Any], mode: str = ERAS[0]) -> tuple[Any, str, Any]:
    """The value that a tool gets, the text of its result, and the schema that the client was sent."""
    values: list[Any] = []

    @tool
    async def greet(context: ToolContext) -> str:
        """Greet the user."""
        got = await context.ask("Who are you?", wanted)
        values.append(got.value)
        return got.action

    person = Person(answer)
    async with connected(server_of(greet, capabilities=["ask"]), mode, elicitation_callback=person) as client:
        result = await client.call_tool("greet", {})
    return (values or [None])[-1], text_of(result), person.asked[0].requested_schema


@pytest.mark.parametrize("mode", ERAS)
@pytest.mark.parametrize(
    ("wanted", "answer", "value"),
    [
        (Guest, {"name": "Ada", "age": 36}, Guest(name="Ada", age=36)),
        (Room, {"size": "large"}, Room("large")),
        (Colour, {"value": "blue"}, Colour.BLUE),
        (Literal["yes", "no"], {"value": "no"}, "no"),
        (Literal["yes"], {"value": "yes"}, "yes"),
        (["tea", "coffee"], {"value": "tea"}, "tea"),
        (int, {"value": 3}, 3),
        (float, {"value": 1.5}, 1.5),
        (bool, {"value": True}, True),
        (str, {"value": "x"}, "x"),
    ],
)
async def test_u98_a_question_takes_a_type_and_the_answer_is_a_value_of_it(
    wanted: Any, answer: dict[str, Any], value: Any, mode: str
) -> None:
    got, text, schema = await asked(wanted, answer, mode)
    assert (got, text) == (value, "accept")
    assert schema["type"] == "object" and "$ref" not in str(schema) and "anyOf" not in str(schema)


async def test_u98_an_answer_that_is_no_value_of_the_type_is_an_error_of_the_call() -> None:
    got, text, _ = await asked(Guest, {"name": "Ada", "age": -1})
    assert got is None and "age" in text


async def test_u98_a_type_that_no_form_can_ask_for_is_named() -> None:
    @tool
    async def greet(context: ToolContext) -> str:
        """Greet the user."""
        await context.ask("Who are you?", object)
        return "hello"

    server = server_of(greet, capabilities=["ask"])
    async with connected(server, ERAS[0], elicitation_callback=Person({})) as client:
        result = await client.call_tool("greet", {})
    assert result.is_error and "cannot" in text_of(result)


async def test_u98_without_the_capability_the_error_says_that_serve_grants_it() -> None:
    @tool
    async def greet(context: ToolContext) -> str:
        """Greet the user."""
        await context.ask("Who are you?")
        return "hello"

    async with connected(server_of(greet), ERAS[0], elicitation_callback=Person({})) as client:
        assert "grant it with serve(…, capabilities=[…, 'ask'])" in text_of(
            await client.call_tool("greet", {})
        )
