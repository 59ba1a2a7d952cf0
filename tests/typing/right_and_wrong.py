"""Uses of toolsets, read by a type checker and never run: the wrong ones are marked (L6, L7, L8, P2)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, assert_never, assert_type

import mcp_toolset
import mcp_toolset.rounds
from mcp_toolset import (
    HookSet,
    InputTool,
    RunNormally,
    Tool,
    ToolBinding,
    ToolCall,
    ToolDefinition,
    Toolset,
    ToolView,
    tagged,
    tool,
)
from mcp_toolset.arguments import default, describe, hide, rename
from mcp_toolset.rounds import DecodedCall, FunctionCall, ToolAvailability, ToolRequirement


class User:
    name: str


class DataTools(Toolset):
    @tool
    @staticmethod
    def get_user(id: int) -> User:
        """Get a user."""
        return User()

    @tool(name="list_all", read_only=True)
    @staticmethod
    async def list_users(limit: int = 10) -> list[User]:
        """List users."""
        return []


@tool
def search(query: str, *, limit: int = 3) -> str:
    """Search."""
    return query


class AppTools(Toolset):
    search = search
    data = DataTools()


class MoreTools(AppTools):
    other = tool(lambda: 3)


tools = MoreTools()
view: ToolView = tools.view()

# Tools are attributes, of the class and of its instances, nested and inherited.
assert_type(AppTools.search("x", limit=1), str)
assert_type(MoreTools.search("x"), str)
assert_type(AppTools.data.get_user(3), User)
assert_type(tools.data.get_user(id=3), User)
assert_type(tools.other(), int)
repr(AppTools.serach)  # expected-error
repr(AppTools.data.get_usr)  # expected-error
tools.searching("x")  # expected-error


async def calls() -> None:
    assert_type(await AppTools.data.list_users(), list[User])
    assert_type((await tools.execute(AppTools.search, {"query": "x"})).text, str)
    await tools.execute(3)  # expected-error
    await tools.execute("search", ["x"])  # expected-error
    await tools.execute(AppTools.serch)  # expected-error


AppTools.search(3)  # expected-error
AppTools.search("x", limit="3")  # expected-error
AppTools.search()  # expected-error
AppTools.data.get_user("3")  # expected-error
repr(AppTools.data.get_user(3).nam)  # expected-error
wrong: int = AppTools.search("x")  # expected-error

# A tool, or its name, selects it; a nested toolset selects a group.
ToolAvailability.only(AppTools.search, "get_user", AppTools.data)
ToolAvailability.default_plus(AppTools.data.get_user)
ToolRequirement.specific(AppTools.data.get_user)
ToolRequirement.specific("search")
assert_type(view[AppTools.search], ToolBinding)
assert_type(view["search"], ToolBinding)
assert_type(tools.find(DataTools.get_user), ToolBinding)
assert_type(tools.names(), list[str])
assert_type(tools.definitions(), list[ToolDefinition])
assert_type(view.describe(AppTools.search, "Find."), ToolView)
ToolAvailability.only(3)  # expected-error
ToolAvailability.default_plus(AppTools.data.get_usr)  # expected-error
ToolRequirement.specific(AppTools.data)  # expected-error
view[3]  # expected-error
view[DataTools]  # expected-error
tools.find(search.execute)  # expected-error
view.describe(AppTools.search, 3)  # expected-error

# Verbs take selectors, and each gives a toolset.
assert_type(tools.off(AppTools.search, "get_user").prefixed("x").deferred(), Toolset)
assert_type(tools.renamed({AppTools.search: "find"}), Toolset)
more: Toolset = tools + search
names: dict[str, str] = {"search": "find"}
by_tool: Mapping[Tool[..., Any], str] = {AppTools.search: "find"}
tools.renamed(names).renamed(by_tool).described({AppTools.search: "Find.", "get_user": "Get."})
tools.filtered(lambda one: one.on, include=["get_*", AppTools.search], exclude=[AppTools.data.get_user])
tools.including(search, tools, len)
tools.granting("sample", "ask")
tools.off(3)  # expected-error
tools.renamed({"search": 3})  # expected-error
tools.renamed({3: "find"})  # expected-error
tools.filtered(lambda one: one.colour)  # expected-error
tools.including(3)  # expected-error
tools.granting(3)  # expected-error
tools.prefixed(AppTools.search)  # expected-error
tools + 3  # expected-error

# Arguments are transformed by what the four functions make.
tools.with_arguments({"search": {"query": rename("q") | describe("What."), "limit": hide(value=3)}})
tools.with_arguments({AppTools.search: {"limit": default(5)}})
tools.with_arguments({"search": {"limit": 5}})  # expected-error
tools.with_arguments({"search": hide()})  # expected-error
tools.with_arguments({AppTools.data: {"limit": hide()}})  # expected-error
rename(3)  # expected-error
hide(3)  # expected-error
describe(None)  # expected-error


# Functions of a turn.
class Turn:
    user: str


def define(binding: ToolBinding, turn: Turn) -> ToolDefinition | None:
    return binding.definition.described(turn.user)


def fill(call: ToolCall, turn: Turn) -> dict[str, Any]:
    return {**call.arguments, "user": turn.user}


async def waits(binding: ToolBinding) -> ToolDefinition:
    return binding.definition


tools.prepared(define, call=fill).view(turn=Turn())
tools.prepared(lambda one: one.definition)
tools.prepared(fill)  # expected-error
tools.prepared(call=define)  # expected-error
tools.prepared(waits)  # expected-error
tools.prepared(lambda one: one.name)  # expected-error

# Hooks are registered for tools.
hooks = HookSet()


@hooks.execution(AppTools.search)
async def check(call: ToolCall, input: dict[str, Any]) -> RunNormally:
    return RunNormally(input)


@hooks.execution(AppTools.serch)  # expected-error
async def late(call: ToolCall, input: dict[str, Any]) -> RunNormally:
    return RunNormally(input)


@hooks.execution(AppTools.search)  # expected-error
def sync(call: ToolCall, input: dict[str, Any]) -> RunNormally:
    return RunNormally(input)


# A member of a class toolset is no method of toolsets.
class Taken(Toolset):
    find = search  # expected-error


# A toolset of values knows the union of its members' calls, and a match over it has them all or is an error.
@dataclass
class Query:
    text: str


@dataclass
class Delete:
    id: int


searching: InputTool[Query, list[str]] = InputTool.of(Query, output=list[str])
deleting = InputTool.of(Delete, output=bool)
assert_type(deleting, InputTool[Delete, bool])


@tool
async def later(name: str, *, days: int = 1) -> float:
    """Tell."""
    return 1.0


typed = Toolset(searching, deleting, later)
outer = Toolset(typed, searching)


async def matching(call: ToolCall) -> object:
    match outer.decode(call):
        case DecodedCall(Query(text)) as asked:
            assert_type(asked, DecodedCall[Query, list[str]])
            asked.complete(text)  # expected-error
            return asked.complete([text])
        case DecodedCall(Delete()) as gone:
            assert_type(await gone.call(), bool)
            return gone.complete(True)
        case FunctionCall() as other:
            assert_type(await other.call(), float)
            return other.complete(await other.call())
        case never:
            assert_never(never)


async def forgetting(call: ToolCall) -> object:
    match typed.decode(call):
        case DecodedCall(Query()):
            return 1
        case FunctionCall():
            return 2
        case rest:
            assert_never(rest)  # expected-error


# Every verb keeps the types of calls.
changed = typed.off(later).prefixed("x").deferred().described({later: "Tell."}).filtered(lambda one: one.on)
kept: Toolset[DecodedCall[Query, list[str]] | DecodedCall[Delete, bool] | FunctionCall[..., Any]] = changed


async def matching_changed(call: ToolCall) -> object:
    match changed.decode(call):
        case DecodedCall(Query(text)) as asked:
            return asked.complete([text])
        case DecodedCall(Delete()) as gone:
            return gone.complete(True)
        case FunctionCall() as other:
            return other.complete(await other.call())
        case never:
            assert_never(never)


async def forgetting_changed(call: ToolCall) -> object:
    match changed.decode(call):
        case DecodedCall(Query(text)) as asked:
            return asked.complete([text])
        case FunctionCall() as other:
            return other.complete(await other.call())
        case rest:
            assert_never(rest)  # expected-error


AppCall = DecodedCall[Query, list[str]] | DecodedCall[Delete, bool]


class Declared(Toolset[AppCall]):
    query = searching
    delete = Delete


assert_type(Declared().decode(ToolCall("x", {})), AppCall)
assert_type(tools.decode(ToolCall("x", {})), DecodedCall[Any, Any] | FunctionCall[..., Any])
accepts: Toolset = typed
ToolAvailability.only(Query, Declared.delete, tagged("admin"))
tools.off(Query, tagged("admin"))
view[Delete]
ToolRequirement.specific(Query)


# A method is the tool of each instance, without its self.
class Store(Toolset):
    @tool
    def find(self, key: str) -> bytes:
        """Find."""
        return b""


assert_type(Store().find("k"), bytes)
Store().find()  # expected-error
Store().find(3)  # expected-error

round_context = mcp_toolset.rounds.RoundContext()
assert_type(round_context, mcp_toolset.rounds.RoundContext)
unknown = mcp_toolset.no_such_name  # expected-error
