"""Calls that pyright infers from the members of a toolset, read by pyright and never run (U104)."""

from typing import assert_never, assert_type

from tests.typing.calls import ReadFile, Reads, Searches, Snippets, WebSearch

from mcp_toolset import ToolCall, Toolset
from mcp_toolset.rounds import DecodedCall

tools = Toolset(WebSearch, ReadFile)
assert_type(tools, Toolset[Searches | Reads])


def complete(call: ToolCall) -> object:
    match tools.off(ReadFile).decode(call):
        case DecodedCall(WebSearch(query=query)) as search:
            assert_type(search, Searches)
            search.complete(query)  # expected-error
            return search.complete(Snippets(snippets=[query]))
        case DecodedCall(ReadFile()) as read:
            return read.complete(read.input.path)
        case never:
            assert_never(never)


def forgetting(call: ToolCall) -> object:
    match tools.decode(call):
        case DecodedCall(ReadFile()):
            return None
        case rest:
            assert_never(rest)  # expected-error
