"""`Transcript`: the report of a run to its caller: value or error, printed text, calls."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import field
from typing import Any, Final

from mcp_toolset._records import dataclass
from mcp_toolset.extensions.code.limits import CodeLimits
from mcp_toolset.extensions.code.sandbox import FaultKind, Program, SandboxFault
from mcp_toolset.tools.core.result import ToolResult
from mcp_toolset.tools.text.hidden_text import cleaned

MAX_LISTED: Final = 20
"""Calls that are listed one by one; more are counted by tool."""

MAX_TRACEBACK: Final = 3000
"""Characters of a traceback; of a longer one, the start and the end."""

PREVIEW: Final = 2000
"""Characters of JSON that are shown of a value that is too large."""

_LIMITS: Final[Mapping[FaultKind | str, str]] = {
    "seconds": "the code has computed for more than {} s",
    "timeout": "the run took more than {} s",
    "memory_mb": "the code needs more than {} MB",
    "suspensions": "the code stopped for calls, waits and imports more than {} times",
    "printed": "the code has printed more than {} characters",
    "workers": "no process of the sandbox was free; runs at once: {}",
    "calls": "the code has called tools more than {} times",
}
_COROUTINE: Final = '"<coroutine object'
_TOO_LARGE: Final = object()
_NOT_AWAITED: Final = "it is a coroutine that was not awaited: put `await` before the call"


def limit_text(kind: FaultKind | str, mode: CodeLimits) -> str:
    """A refusal that names the limit of `CodeMode` behind it; empty for what is no limit."""
    if kind not in _LIMITS:
        return ""
    limit: float = getattr(mode, kind)
    return f"{_LIMITS[kind].format(f'{limit:g}')} (the server's limit `{kind}` of code mode)"


@dataclass(frozen=True, slots=True)
class CallNote:
    """One call that the snippet made: the tool, whether it has succeeded, and milliseconds."""

    name: str
    ok: bool
    ms: int
    error: str = ""

    def to_wire(self) -> dict[str, Any]:
        """The note, without an error if there is none."""
        wire = {"name": self.name, "ok": self.ok, "ms": self.ms}
        return {**wire, "error": self.error} if self.error else wire


@dataclass(slots=True)
class Transcript:
    """What a run has done so far.

    Attributes:
        calls: The calls that have ended, in the order of their ends.
    """

    calls: list[CallNote] = field(default_factory=list[CallNote])

    def value(self, text: str, printed: str, program: Program) -> ToolResult:
        """The result of a run that has ended by itself, with its value as JSON."""
        size = len(text.encode())
        value = _read(text) if size <= program.mode.value else _TOO_LARGE
        told: dict[str, Any] = {"value": value}
        if value is _TOO_LARGE:
            limit = f"the server's limit `value` of code mode: {program.mode.value} bytes"
            note = f"the value is too large ({limit}): filter, count or sum within the code"
            told = {"preview": text[:PREVIEW], "bytes": size, "note": note}
        if text.startswith(_COROUTINE):
            told["note"] = _NOT_AWAITED
        return self._result(told, printed)

    def fault(self, fault: SandboxFault | str, printed: str, program: Program) -> ToolResult:
        """The result of a run that has ended early; what ran stays done."""
        if isinstance(fault, str):
            told = fault
        else:
            limit = limit_text(fault.kind, program.mode)
            told = f"stopped: {limit}" if limit else _shortened(fault.text)
            told += _hint(fault.text, program)
        return self._result({"error": told}, printed, is_error=True)

    def _result(self, told: dict[str, Any], printed: str, *, is_error: bool = False) -> ToolResult:
        if printed:
            told["printed"] = cleaned(printed)
        if self.calls:
            told["calls"] = self._listed()
        text = json.dumps(told, ensure_ascii=False, separators=(",", ":"))
        wire: dict[str, Any] = {"content": [{"type": "text", "text": text}], "structuredContent": told}
        return ToolResult({**wire, "isError": True} if is_error else wire)

    def _listed(self) -> list[dict[str, Any]]:
        if len(self.calls) <= MAX_LISTED:
            return [each.to_wire() for each in self.calls]
        counted: dict[tuple[str, bool], list[int]] = {}
        for each in self.calls:
            counted.setdefault((each.name, each.ok), []).append(each.ms)
        return [
            {"name": name, "ok": ok, "times": len(times), "ms": sum(times)}
            for (name, ok), times in counted.items()
        ]


def _read(text: str) -> object:
    try:
        return json.loads(text, parse_constant=lambda constant: None)
    # Nested too deeply to be read, or what a snippet has put in place of the JSON.
    except (RecursionError, ValueError):
        return _TOO_LARGE


def _hint(text: str, program: Program) -> str:
    if "NameError" not in text:
        return ""
    names = ", ".join(sorted(program.functions.tools)) or "none: pass grants"
    return f"\nFunctions in scope: {names}"


def _shortened(text: str) -> str:
    if len(text) <= MAX_TRACEBACK:
        return text
    half = MAX_TRACEBACK // 2
    return f"{text[:half]}\n…\n{text[-half:]}"
