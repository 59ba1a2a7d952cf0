"""Repairs the arguments of `search_tools` and `resolve_tools`: the `prepare` of these two tools.

What fits is not touched, but for ids that are none: those are tried without the marks around them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, cast

from mcp_toolset.catalog.deferred.next_call import explained, next_call
from mcp_toolset.catalog.deferred.slips import Sent, TwoReadings, names_in, renamed, spellings
from mcp_toolset.errors import InvalidArgumentsError
from mcp_toolset.tools.core.call import ToolCall, ToolContext
from mcp_toolset.tools.core.definition import ToolDefinition
from mcp_toolset.tools.schema.argument_repair import repairs_of, with_repairs
from mcp_toolset.tools.schema.effort import is_wide
from mcp_toolset.tools.schema.validation import SchemaCheck

Known = Callable[[str, ToolContext], bool]
"""Whether a text is the id or the name of a tool that the caller may know of."""

UNKNOWN: Final[Mapping[str, Any]] = {
    "query": "<what the tool should do>",
    "ids": ["<id of a hit>"],
    "grant": "<grant from resolve_tools>",
    "arguments": {},
    "limit": 10,
    "page": 1,
    "resolve": 1,
}
"""What the next call says for what is missing or wrong."""

MAX_VALUES: Final = 10_000
"""Values in the arguments of a search, and in what is resolved at once."""

_BETWEEN: Final = re.compile(r"[,;\s]+")


class Preparing:
    """Reads the arguments of the two tools that find and resolve."""

    def __init__(self, known: Known) -> None:
        """Read ids as `known` knows them."""
        self._known = known

    def search(self, schema: Sent, check: SchemaCheck, call: ToolCall, context: ToolContext) -> ToolCall:
        """A call of `search_tools` as it was meant."""
        _check_size(call)
        return call if check.is_valid(call.arguments) else _read(schema, check, call, _searched)

    def resolve(self, schema: Sent, check: SchemaCheck, call: ToolCall, context: ToolContext) -> ToolCall:
        """A call of `resolve_tools` as it was meant."""
        _check_size(call)
        if not check.is_valid(call.arguments):
            if (meant := _read(schema, check, call, _resolved)) is call:
                return call
            call = meant
        return self._spelled(check, call, context)

    def _spelled(self, check: SchemaCheck, call: ToolCall, context: ToolContext) -> ToolCall:
        """The call with ids that are known, in place of those that have marks around them."""
        sent: list[str] = call.arguments["ids"]
        ids = [one for id in sent for one in self._spelling(id, context)]
        if ids == sent or not check.is_valid({"ids": ids}):
            return call
        return with_repairs(call, {"ids": ids}, ["ids are without the marks around them"])

    def _spelling(self, id: str, context: ToolContext) -> Sequence[str]:
        known = next((one for one in spellings(id) if one and self._known(one, context)), None)
        if known is not None:
            return [known]
        # Several ids in one text, if each of them is one.
        several = [
            next((one for one in spellings(part) if self._known(one, context)), "") for part in _parts(id)
        ]
        return several if len(several) > 1 and all(several) else [id]


def _check_size(call: ToolCall) -> None:
    if is_wide(call.arguments, MAX_VALUES):
        raise InvalidArgumentsError(
            f"Invalid arguments for {call.name}: they have more than {MAX_VALUES:,} values; send less at once"
        )


def _parts(text: str) -> list[str]:
    return [part for part in _BETWEEN.split(text) if part]


def _read(
    schema: Sent,
    check: SchemaCheck,
    call: ToolCall,
    meant: Callable[[Mapping[str, Any], list[str]], dict[str, Any]],
) -> ToolCall:
    done: list[str] = []
    try:
        arguments = meant(call.arguments, done)
    except TwoReadings as two:
        raise InvalidArgumentsError(two_readings(call.name, str(two), two.readings)) from None
    arguments, more = repairs_of(schema, arguments)
    done += more
    return with_repairs(call, arguments, done) if done and check.is_valid(arguments) else call


def two_readings(name: str, why: str, readings: Sequence[Sent]) -> str:
    """The error for arguments that can be read in two ways, which it shows."""
    calls = [next_call(name, each) for each in readings[:2]]
    return f"Invalid arguments for {name}: {why}; send the one you mean\n" + "\nor ".join(calls)


def _searched(sent: Sent, done: list[str]) -> dict[str, Any]:
    found = renamed("search_tools", sent, done)
    query = found.get("query")
    if isinstance(query, list):
        several = cast("list[object]", query)
        if len(several) > 1:
            each = [{**found, "query": one} for one in several]
            raise TwoReadings("a search has one query; search once for each step", each)
        found["query"] = several[0] if several else ""
        done.append("query is read as text")
    elif query is None:
        found["query"] = ""
        done.append("query is empty")
    if isinstance(found.get("exclude"), str | dict):
        found["exclude"] = names_in(found["exclude"])
        done.append("exclude is read as an array")
    return found


def _resolved(sent: Sent, done: list[str]) -> dict[str, Any]:
    found = renamed("resolve_tools", sent, done)
    ids = names_in(found.get("ids"))
    if ids is not None and ids != found["ids"]:
        found["ids"] = ids
        done.append("ids is read as an array")
    return found


def explained_fixed(definition: ToolDefinition, check: SchemaCheck, call: ToolCall) -> str:
    """What follows the faults of the arguments of one of the fixed tools."""
    try:
        sent = _MEANT[call.name](call.arguments, []) if call.name in _MEANT else call.arguments
    except TwoReadings as two:
        sent = two.readings[0]
    given = call.with_arguments(dict(sent))
    if call.name not in _MEANT and not isinstance(sent.get("grant"), str):
        return f"; a grant comes from resolve_tools\n{next_call('resolve_tools', {'ids': UNKNOWN['ids']})}"
    return explained(definition, check, call.name, given, known=UNKNOWN)


_MEANT: Final = {"search_tools": _searched, "resolve_tools": _resolved}
