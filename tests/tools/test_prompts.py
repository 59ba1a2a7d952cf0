"""Prompts made of functions (P4)."""

from __future__ import annotations

from typing import Any

import pytest
from mcp_types import GetPromptResult, PromptMessage, TextContent

from mcp_toolset import Prompts, ToolContext
from mcp_toolset.errors import DefinitionError, InvalidArgumentsError

pytestmark = pytest.mark.anyio


def texts(result: GetPromptResult) -> list[str]:
    return [message.content.text for message in result.messages if isinstance(message.content, TextContent)]


async def test_p4_a_function_becomes_a_prompt_by_its_docstring_and_parameters() -> None:
    prompts = Prompts()

    @prompts.add(title="Review")
    async def review(code: str, context: ToolContext, focus: str = "bugs") -> str:
        """Review some code.

        Args:
            code: What to review.
        """
        assert context is given
        return f"Look for {focus} in {code}"

    given = ToolContext()
    (listed,) = await prompts.list_prompts()
    assert (listed.name, listed.title, listed.description) == ("review", "Review", "Review some code.")
    assert listed.arguments is not None
    assert [(one.name, one.description, one.required) for one in listed.arguments] == [
        ("code", "What to review.", True),
        ("focus", None, False),
    ]
    result = await prompts.get_prompt("review", {"code": "x"}, given)
    assert texts(result) == ["Look for bugs in x"] and result.messages[0].role == "user"


async def test_p4_a_prompt_is_one_message_or_several() -> None:
    prompts = Prompts()

    @prompts.add
    def talk() -> list[PromptMessage | str]:
        answer = TextContent(type="text", text="Yes?")
        return ["Hello", PromptMessage(role="assistant", content=answer)]

    result = await prompts.get_prompt("talk", {}, ToolContext())
    assert [message.role for message in result.messages] == ["user", "assistant"]


async def test_p4_what_does_not_fit_is_said_by_name() -> None:
    prompts = Prompts()

    @prompts.add
    def plan(goal: str) -> str:
        return goal

    with pytest.raises(InvalidArgumentsError, match="'goal' is missing, 'gaol' is unknown"):
        await prompts.get_prompt("plan", {"gaol": "x"}, ToolContext())
    with pytest.raises(LookupError, match="Unknown prompt: plans"):
        await prompts.get_prompt("plans", {}, ToolContext())
    with pytest.raises(DefinitionError, match="two prompts named 'plan'"):
        prompts.add(plan)


def number(count: int) -> str:
    return str(count)


def rest(*words: str) -> str:
    return " ".join(words)


@pytest.mark.parametrize("function", [number, rest])
def test_p4_a_parameter_that_is_no_argument_is_refused(function: Any) -> None:
    with pytest.raises(DefinitionError, match=f"prompt '{function.__name__}'"):
        Prompts().add(function)


def test_p6_adding_and_removing_is_told() -> None:
    prompts, told = Prompts(), list[str]()
    end = prompts.on_change(lambda: told.append("changed"))
    prompts.add(name="one")(lambda: "1")
    prompts.remove("one")
    prompts.remove("one")
    end()
    prompts.add(name="two")(lambda: "2")
    assert told == ["changed"] * 2
