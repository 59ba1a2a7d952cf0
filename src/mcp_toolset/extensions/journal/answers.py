"""What callers are told of a recorded call: its result, that it runs, or that its outcome is unknown."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final, cast

from mcp_toolset._records import replace
from mcp_toolset.calls.decision import error_result
from mcp_toolset.errors import (
    InvalidArgumentsError,
    InvalidOutputError,
    RetrySuggestedError,
    ToolsetError,
    UnknownToolError,
    UpstreamError,
    UpstreamProtocolError,
)
from mcp_toolset.extensions.journal.journal_store import Found, Intent, Outcome, Record
from mcp_toolset.extensions.journal.unit import Unit
from mcp_toolset.tools.result import ToolResult

JOURNAL_META_KEY: Final = "mcp-toolset/journal"
"""In the `_meta` of a result that is from the journal, or whose call may have happened: its id and state."""

SHOWN: Final = 12
"""Characters of an id that people are shown, and may name it by."""

UNKNOWN: Final = Outcome("unknown")

_NOT_RUN: Final = frozenset({-32700, -32600, -32601, -32602, -32042})
"""Codes of JSON-RPC and MCP by which a server says that a call did not run."""


def moment(seconds: float) -> str:
    """A time as people read it."""
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(seconds))


def marked(result: ToolResult, id: str, state: str, **more: float) -> ToolResult:
    """A result that says in `_meta` how its call stands in the journal."""
    meta: Any = result.wire.get("_meta") or {}
    told = {"id": id[:SHOWN], "state": state, **more}
    return replace(result, wire={**result.wire, "_meta": {**meta, JOURNAL_META_KEY: told}})


def outcome_of(unit: Unit, result: ToolResult, most: int) -> Outcome:
    if result.stopped:
        return UNKNOWN
    return _sealed(unit, {"result": dict(result.wire), "unstructured": result.unstructured}, most)


def outcome_of_fault(unit: Unit, fault: ToolsetError, *, mounted: bool, most: int) -> Outcome | None:
    """What is recorded of a call that ended with an error; `None` if it has certainly not happened."""
    if isinstance(fault, UpstreamProtocolError):
        if fault.code in _NOT_RUN:
            return None
        told = {"upstream": fault.upstream, "code": fault.code, "message": fault.reason, "data": fault.data}
        return _sealed(unit, {"error": told}, most)
    if isinstance(fault, UpstreamError):
        return UNKNOWN if fault.sent else None
    if isinstance(fault, InvalidArgumentsError | UnknownToolError | RetrySuggestedError):
        return None
    if mounted and not isinstance(fault, InvalidOutputError):
        # Such as a server that asks on and on, or whose question the client cannot answer.
        return UNKNOWN
    return _sealed(unit, {"result": dict(error_result(fault).wire)}, most)


def replayed(unit: Unit, record: Record) -> ToolResult:
    """The result of a call that has ended."""
    kept: Any = None if record.outcome is None else unit.opened(record.outcome)
    if not isinstance(kept, Mapping):
        text = record.note or "its result cannot be read any more"
        told = ToolResult.of_error(f"{_named(record.intent)} ran before under this key, and is done: {text}")
        return marked(told, unit.id, "done", began=record.began)
    table = cast("Mapping[str, Any]", kept)
    if (fault := table.get("error")) is not None:
        raise UpstreamProtocolError(fault["upstream"], fault["code"], fault["message"], fault["data"])
    result = ToolResult(table["result"], unstructured=table.get("unstructured", False))
    return marked(result, unit.id, "replayed", began=record.began)


def refusal(unit: Unit, found: Found, what: str) -> ToolResult:
    """Why a call does not run now."""
    record = found.record
    told = f"{_named(record.intent)} {what}"
    return marked(ToolResult.of_error(told), unit.id, found.standing, began=record.began)


def unknown(record: Record, standing: str) -> str:
    """Why a call does not run again whose outcome is not known."""
    began = f"was not run again: a call under its key began at {moment(record.began)}"
    if standing == "asked":
        return f"{began}, and asked the client a question; answer it, or make the call under another key"
    place = f"on the server {record.intent.server}" if record.intent.server else "where it has its effect"
    return (
        f"{began}, and its outcome is not known. Find out {place} whether it has happened, then record that "
        f"with `mcp-toolset journal settle {record.intent.id[:SHOWN]}`, with --done or --never"
    )


def _named(intent: Intent) -> str:
    return f"{intent.server}/{intent.tool}" if intent.server else intent.tool


def _sealed(unit: Unit, value: Mapping[str, Any], most: int) -> Outcome:
    if not unit.is_repeatable:
        return Outcome("done")
    sealed = unit.sealed(value)
    if len(sealed) <= most:
        return Outcome("done", sealed)
    return Outcome("done", note=f"its result takes {len(sealed)} bytes, and {most} are kept")
