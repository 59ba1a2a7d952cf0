"""The retry hint of a result: how many seconds to wait before a retry."""

from __future__ import annotations

from math import ceil
from typing import Any, Final, cast

from mcp_toolset.errors import RetrySuggestedError, ToolsetError
from mcp_toolset.tools.core.result import ToolResult

RETRY_META_KEY: Final = "mcp-toolset/retry"


def error_result(fault: ToolsetError) -> ToolResult:
    """An error as a result that the model can act on; a suggested retry keeps its seconds for programs."""
    result = ToolResult.of_error(str(fault))
    return suggesting(result, fault.after) if isinstance(fault, RetrySuggestedError) else result


def suggesting(result: ToolResult, after: float) -> ToolResult:
    """The same result with a retry hint of so many seconds."""
    meta: Any = result.wire.get("_meta") or {}
    return ToolResult({**result.wire, "_meta": {**meta, RETRY_META_KEY: {"after": after}}})


def retry_after(result: ToolResult) -> float | None:
    """The seconds to wait before a retry, or `None` if the result has no hint."""
    meta: Any = result.wire.get("_meta")
    marker: Any = cast("dict[str, Any]", meta).get(RETRY_META_KEY) if isinstance(meta, dict) else None
    after: Any = cast("dict[str, Any]", marker).get("after") if isinstance(marker, dict) else None
    return float(after) if isinstance(after, int | float) and not isinstance(after, bool) else None


def in_tenths(seconds: float) -> float:
    """A wait in tenths of a second, rounded up, so that a caller who waits so long has waited enough."""
    return max(1, ceil(round(seconds * 10, 9))) / 10
