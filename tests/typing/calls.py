"""Typed calls of declared classes, for pyright and mypy to read: the wrong uses are marked (U104)."""

from typing import assert_never, assert_type

from pydantic import BaseModel

from mcp_toolset import ToolCall, ToolInput, Toolset, tool, tool_input
from mcp_toolset.rounds import DecodedCall, FunctionCall


class Snippets(BaseModel):
    snippets: list[str]


@tool_input(name="web_search")
class WebSearch(BaseModel, ToolInput[Snippets]):
    """Search the web."""

    query: str


@tool_input
class ReadFile(BaseModel, ToolInput[str]):
    """Read a file."""

    path: str


@tool
def double(number: int) -> int:
    """Double a number."""
    return 2 * number


Searches = DecodedCall[WebSearch, Snippets]
Reads = DecodedCall[ReadFile, str]

pair = Toolset(WebSearch) + ReadFile
assert_type(pair, Toolset[Searches | Reads])
assert_type(pair.off(ReadFile).prefixed("x").deferred(), Toolset[Searches | Reads])


class App(Toolset[Searches | Reads | FunctionCall[..., int]]):
    search = WebSearch
    read = ReadFile
    double = double


app = App().prefixed("app")


async def complete(call: ToolCall) -> object:
    done = app.decode(call)
    if WebSearch.is_call(done):
        assert_type(done, Searches)
        done.complete("text")  # expected-error
        return done.complete(Snippets(snippets=[done.input.query]))
    if ReadFile.is_call(done):
        assert_type(done, Reads)
        return done.complete(done.input.path)
    if isinstance(done, FunctionCall):
        assert_type(await done.call(), int)
        return done.complete(await done.call())
    assert_never(done)


async def forgetting(call: ToolCall) -> object:
    done = app.decode(call)
    if WebSearch.is_call(done):
        return done.complete(Snippets(snippets=[]))
    if isinstance(done, FunctionCall):
        return done.complete(1)
    assert_never(done)  # expected-error


async def matching(call: ToolCall) -> object:
    match pair.off(WebSearch).decode(call):
        case found if WebSearch.is_call(found):
            return found.complete(Snippets(snippets=[]))
        case found if ReadFile.is_call(found):
            found.complete(3)  # expected-error
            return found.complete("")
    return None
