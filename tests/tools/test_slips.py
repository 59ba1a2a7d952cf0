"""Slips of programmers are errors that say how to mend them, where they are made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from mcp_toolset import ToolCall, ToolContext, ToolDefinition, ToolRegistry, Toolset, ToolsetServer, tool
from mcp_toolset.errors import DefinitionError


@tool
def add(a: int) -> int:
    """Add."""
    return a


TOOLS: Any = Toolset(add)
MESSAGE: Any = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}],
}


class Forgetful(Toolset):
    add = add

    def __init__(self) -> None:
        self.greeting = "hello"


SLIPS: dict[str, tuple[Callable[[], Any], str]] = {
    "registry and a tool": (lambda: ToolRegistry().register(add), r"write Toolset\(…\)"),  # pyright: ignore[reportArgumentType]
    "registry and a class": (lambda: ToolRegistry().register(Toolset), r"write Toolset\(…\)"),  # pyright: ignore[reportArgumentType]
    "no super, names": (lambda: Forgetful().names(), r"super\(\).__init__\(\)"),
    "no super, nested": (lambda: Toolset(Forgetful()), r"super\(\).__init__\(\)"),
    "no super, repr": (lambda: repr(Forgetful()), r"super\(\).__init__\(\)"),
    "no super, verb": (lambda: Forgetful().off(), r"super\(\).__init__\(\)"),
    "no super, served": (lambda: ToolsetServer(Forgetful()), r"super\(\).__init__\(\)"),
    "server of a tool": (lambda: ToolsetServer(add), r"write Toolset\(…\)"),  # pyright: ignore[reportArgumentType]
    "server of a class": (lambda: ToolsetServer(Forgetful), r"Forgetful\(\)"),  # pyright: ignore[reportArgumentType]
}


OF_ROUNDS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "of a view": (lambda of: of.of(MESSAGE, TOOLS.view()), r"view\.export\("),
    "of a toolset": (lambda of: of.of(MESSAGE, TOOLS), r"view\.export\("),
    "of provider tools": (lambda of: of.of(MESSAGE, TOOLS.view().to_openai()), r"view\.export\("),
    "openai and a toolset": (lambda of: of.from_openai(MESSAGE, TOOLS), r"give toolset\.view\(\)"),
    "openai and an export": (
        lambda of: of.from_openai(MESSAGE, TOOLS.view().export("openai")),
        r"use ToolRound\.of\(message, export\)",
    ),
    "openai and no export": (
        lambda of: of.from_openai(MESSAGE, TOOLS.view(), export=TOOLS.view()),
        r"view\.export\(",
    ),
    "calls and a toolset": (
        lambda of: of.from_calls([ToolCall("add", {"a": 1}, id="1")], TOOLS),
        r"give toolset\.view\(\)",
    ),
    "calls that are messages": (lambda of: of.from_calls([MESSAGE], TOOLS.view()), "from_openai"),
    "state and a toolset": (
        lambda of: of.from_state(of.from_openai(MESSAGE, TOOLS.view()).to_state(), TOOLS),
        r"give toolset\.view\(\)",
    ),
}


@pytest.mark.needs("model_loop")
@pytest.mark.parametrize("slip", OF_ROUNDS)
def test_u109_a_slip_of_a_round_is_a_definition_error_with_the_mend(slip: str):
    from mcp_toolset.rounds import ToolRound

    make, mend = OF_ROUNDS[slip]
    with pytest.raises(DefinitionError, match=mend):
        make(ToolRound)


@pytest.mark.parametrize("slip", SLIPS)
def test_u109_a_slip_is_a_definition_error_with_the_mend(slip: str):
    make, mend = SLIPS[slip]
    with pytest.raises(DefinitionError, match=mend):
        make()


def test_u109_an_instance_still_lacks_the_attributes_that_it_lacks():
    assert not hasattr(TOOLS, "nothing")
    assert Forgetful().greeting == "hello"


@pytest.mark.parametrize("name", ["", " ", None, 3])
def test_u125_a_definition_without_a_name_is_refused(name: Any):
    with pytest.raises(DefinitionError, match="a tool has a name"):
        ToolDefinition(name)


def test_u110_the_names_of_a_view_are_iterable():
    names = Toolset(add).prefixed("x").view().names
    assert (list(names), len(names), "x_add" in names, "add" in names) == (["x_add"], 1, True, False)
    assert repr(names) == "ToolNames(x_add)"


def test_u110_the_handle_of_a_source_has_a_name_that_people_know():
    class Shop(Toolset):
        add = add

    registry = ToolRegistry()
    assert registry.register(Shop().prefixed("a").deferred()).name == "Shop"
    assert registry.register(Toolset(add, name="mine").prefixed("b").off()).name == "mine"
    assert registry.register(Toolset(add).prefixed("c").off()).name == "Toolset(c_add)"


def test_u110_the_names_of_a_context_are_grouped_by_what_they_are_for():
    page = ToolContext.__doc__ or ""
    groups = [
        line.split("`")[1::2]
        for line in page.replace("\n      ", " ").splitlines()
        if line.startswith("    - ")
    ]
    told = [name for group in groups for name in group]
    shown = {name for name in dir(ToolContext) if not name.startswith("_")}
    assert sorted(told) == sorted({*told}), "a name is in two groups"
    assert shown <= {*told} and {*told} <= shown
    assert {"for_handler", "follows", "is_inner"} <= {*groups[-1]}


def test_u110_described_is_sync_wherever_it_stands():
    view = TOOLS.described({"add": "Sum."}).view()
    assert view["add"].definition.description == "Sum."
    assert view["add"].definition.described("More.").description == "More."
    assert not hasattr(view, "described")
