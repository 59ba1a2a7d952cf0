from __future__ import annotations

import functools
from typing import Annotated, Any

import pytest
from tests.naming import steady
from tests.support.calling import tool_table

from mcp_toolset import Injected, Tool, ToolCall, ToolContext, Toolset, tool
from mcp_toolset.errors import DefinitionError, StateError

pytestmark = pytest.mark.anyio


class Database:
    """No JSON Schema can be made of it."""

    def __init__(self, name: str) -> None:
        self.name = name


class Replica(Database): ...


@tool
def query(text: str, database: Annotated[Database, Injected]) -> str:
    """Ask the database.

    Args:
        text: The question.
        database: Where to ask.
    """
    return f"{database.name}: {text}"


def test_l5_an_injected_parameter_is_not_in_the_schema_and_needs_no_schema_of_its_own():
    assert query.input_schema == {
        "type": "object",
        "properties": {"text": {"type": "string", "description": "The question."}},
        "required": ["text"],
        "additionalProperties": False,
    }
    assert query("hi", Database("direct")) == "direct: hi"


@pytest.mark.parametrize("key", ["database", Database], ids=steady)
async def test_l5_it_is_supplied_by_name_or_by_type_by_the_toolset_the_tool_or_the_context(key: Any):
    supplied = {key: Database("db")}
    sent = {"text": "hi"}
    view = Toolset(query).injecting(supplied).prefixed("x").view()
    assert (await tool_table(view.values()).call(ToolCall("x_query", sent))).text == "db: hi"
    assert (await query.injecting(supplied).execute(sent)).text == "db: hi"
    assert (await query.execute(sent, ToolContext().injecting(supplied))).text == "db: hi"


async def test_l5_a_name_goes_before_a_type():
    both = {Database: Database("type"), "database": Database("name")}
    assert (await query.injecting(both).execute({"text": "hi"})).text == "name: hi"


@pytest.mark.parametrize("supplied", [{}, {"databases": 1}, {Replica: Replica("r")}], ids=steady)
async def test_l5_what_nobody_supplies_is_an_error_that_names_the_parameter_and_the_mend(supplied: Any):
    with pytest.raises(StateError) as refused:
        await query.injecting(supplied).execute({"text": "hi"})
    text = str(refused.value)
    assert (
        "tool 'query' needs 'database'" in text
        and "Database" in text
        and "injecting({'database': …})" in text
    )
    view = Toolset(query).injecting(supplied).view()
    assert (await tool_table(view.values()).call(ToolCall("query", {"text": "hi"}))).is_error


async def test_l5_the_model_cannot_supply_it():
    made = query.injecting({"database": Database("db")})
    view = Toolset(made).view()
    refused = await tool_table(view.values()).call(
        ToolCall("query", {"text": "hi", "database": {"name": "mine"}})
    )
    assert refused.is_error and "database" in refused.text


async def test_l5_the_context_goes_before_the_outer_toolset_and_that_before_the_inner_one():
    inner = Toolset(query).injecting({"database": Database("inner")})
    outer = Toolset(inner).injecting({"database": Database("outer")})
    sent = ToolCall("query", {"text": "hi"})
    assert (await tool_table(inner.bindings()).call(sent)).text == "inner: hi"
    assert (await tool_table(outer.bindings()).call(sent)).text == "outer: hi"
    own = ToolContext().injecting({"database": Database("call")})
    assert (await tool_table(outer.bindings()).call(sent, own)).text == "call: hi"


async def test_l5_values_may_depend_on_the_call():
    class Caller(ToolContext):
        principal = "ada"

    made = query.injecting(lambda context: {Database: Database(f"db of {context.principal}")})
    assert (await made.execute({"text": "hi"}, Caller())).text == "db of ada: hi"
    assert (await made.execute({"text": "hi"})).text == "db of None: hi"


async def test_l5_a_default_or_a_none_stands_in_for_what_nobody_supplies():
    @tool
    def look(
        limit: Annotated[int, Injected] = 7, database: Annotated[Database | None, Injected()] = None
    ) -> str:
        return f"{limit} {database and database.name}"

    assert look.input_schema["properties"] == {}
    assert (await look.execute()).text == "7 None"
    assert (await look.injecting({"limit": 3, Database: Database("db")}).execute()).text == "3 db"
    assert (await look.injecting({"limit": 3, "database": None}).execute()).text == "3 None"


async def test_l5_the_context_is_the_callers_own_in_all_else():
    class Caller(ToolContext):
        __slots__ = ("reports",)

        def __init__(self) -> None:
            self.reports: list[float] = []

        session = "s1"

        async def progress(
            self, progress: float, total: float | None = None, message: str | None = None
        ) -> None:
            self.reports.append(progress)

    caller = Caller()

    @tool
    async def work(context: ToolContext, step: Annotated[float, Injected]) -> str:
        await context.progress(step)
        assert isinstance(context, Caller) and context.reports is caller.reports
        context.require("progress")
        return f"{context.session}"

    assert (await work.injecting({"step": 0.5}).execute({}, caller.injecting({"more": 1}))).text == "s1"
    assert caller.reports == [0.5]


async def test_l5_a_method_and_a_partial_may_have_injected_parameters():
    class Desk:
        async def ask(self, text: str, database: Annotated[Database, Injected]) -> str:
            return f"{database.name}: {text}"

    made: Tool[..., Any] = tool(Desk().ask)
    assert (await made.injecting({Database: Database("d")}).execute({"text": "a"})).text == "d: a"
    bound = tool(functools.partial(query.function, database=Database("bound")))  # type: ignore[arg-type]
    assert (await bound.execute({"text": "a"})).text == "bound: a"


async def test_l5_a_schema_tool_reads_what_is_injected_from_its_context():
    made = Tool.from_schema("look", {}, lambda arguments, context: context.injected["database"].name)
    assert (await made.injecting({"database": Database("db")}).execute()).text == "db"


def test_l5_a_value_without_its_type_is_refused_with_the_mend():
    wrong: Any = Database("db")
    with pytest.raises(DefinitionError, match=r"give values by type, as in \{Database: value\}"):
        Toolset(query).injecting(wrong)
