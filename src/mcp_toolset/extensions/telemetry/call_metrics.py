"""`CallMetrics`: the observer that sums calls, the requests in which they came, and those that they sent."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Final, NamedTuple

from mcp_toolset.calls.pipeline.observers import REFUSALS, outcome_of
from mcp_toolset.errors import UnknownToolError, UpstreamProtocolError
from mcp_toolset.extensions.telemetry.histograms import Histograms
from mcp_toolset.tools.core.call import ToolContext
from mcp_toolset.tools.core.result import ToolResult, is_plain

if TYPE_CHECKING:
    from mcp_toolset.calls.pipeline.observers import CallReport, Observation
    from mcp_toolset.extensions.telemetry.traces import Traces
    from mcp_toolset.tools.binding.binding import ToolBinding

    Sent = tuple[tuple[tuple[str, str, str, str], float], ...]

OTHER: Final = "_OTHER"
"""What the conventions write for a value that is not told apart."""

GATHERED: Final = 128
"""Calls that are summed at once: the second and further ones take a fraction of the time of the first."""

INVALID: Final = "-32602"
"""The code of JSON-RPC for a tool that does not exist."""


class CallKey(NamedTuple):
    """What calls are told apart by.

    Attributes:
        tool: The public name of the tool; empty if there is none.
        server: The name of its mounted server; empty for a local tool.
        outcome: The outcome, as in a `CallReport`.
        error: A class of the error, of few; empty without one.
        code: The code of the error that the request had for an answer; empty if it had a result.
        version: The protocol revision of a request that was nothing but this call; empty for other calls.
    """

    tool: str
    server: str
    outcome: str
    error: str = ""
    code: str = ""
    version: str = ""


class RequestKey(NamedTuple):
    """What other requests of clients are told apart by."""

    method: str
    version: str
    error: str = ""


class SentKey(NamedTuple):
    """What requests to mounted servers are told apart by; `tool` is the server's own name of a tool."""

    method: str
    tool: str
    server: str
    error: str


class CallMetrics:
    """Sums what is told of calls; see `Rules.observers`.

    Attributes:
        calls: All calls that an audit log has.
        requests: Requests that are no calls of tools.
        sent: Requests to mounted servers in the course of calls.
        traces: Which calls are traced; `None` for none.
    """

    def __init__(self, traces: Traces | None = None) -> None:
        self.calls = Histograms(CallKey(OTHER, OTHER, OTHER))
        self.requests = Histograms(RequestKey(OTHER, OTHER))
        self.sent = Histograms(SentKey(OTHER, OTHER, OTHER, OTHER))
        self.traces = traces
        self._plain: list[tuple[ToolBinding, str, float, Sent]] = []

    def __call__(self, report: CallReport) -> None:
        """Count a call that was reported, and did not come to run."""
        error = _error(report.outcome, report.reason)
        self.calls[CallKey(report.tool, report.server, report.outcome, error)].note(report.duration)

    def count_call(self, seen: Observation, context: ToolContext, result: ToolResult | None) -> None:
        duration, binding = perf_counter() - seen.began, seen.binding
        version = "" if context.is_inner else context.protocol_version or ""
        if seen.fault is None and result is not None and binding is not None and is_plain(result):
            self._plain.append((binding, version, duration, seen.sent))
            if len(self._plain) >= GATHERED:
                self.gather()
            return
        tool, server = ("", "") if binding is None else (binding.name, binding.source)
        outcome, reason = outcome_of(seen.fault, result)
        code = "" if result is not None else _code(seen.fault)
        self.calls[tool, server, outcome, _error(outcome, reason), code, version].note(duration)
        self._note_sent(seen.sent)

    def gather(self) -> None:
        """Sum the calls that are not summed yet; in the thread in which calls are counted."""
        plain, self._plain = self._plain, []
        for binding, version, duration, sent in plain:
            self.calls[binding.name, binding.source, "result", "", "", version].note(duration)
            self._note_sent(sent)

    def _note_sent(self, sent: Sent) -> None:
        for key, seconds in sent:
            self.sent[key].note(seconds)


def _error(outcome: str, reason: str) -> str:
    """The class of an error: a rule writes what it likes into a reason."""
    match outcome:
        case "refused":
            return reason if reason in REFUSALS else "refused by a rule"
        case "error":
            return reason or "tool_error"
        case "cancelled":
            return outcome
        case _:
            return ""


def _code(fault: BaseException | None) -> str:
    match fault:
        case UnknownToolError():
            return INVALID
        case UpstreamProtocolError():
            return str(fault.code)
        case _:
            return ""
