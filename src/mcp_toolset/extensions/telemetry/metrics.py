"""`CallMetrics`: histograms of calls and requests, with the names of OpenTelemetry's conventions.

An instrument of OpenTelemetry would cost a call several times as much.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from time import perf_counter
from typing import Final, NamedTuple

from mcp_toolset._records import dataclass
from mcp_toolset.calls.observers import REFUSALS, CallReport, Observation, outcome_of
from mcp_toolset.errors import UnknownToolError, UpstreamProtocolError
from mcp_toolset.extensions.telemetry.sampling import Traces
from mcp_toolset.tools.binding import ToolBinding
from mcp_toolset.tools.call import ToolContext
from mcp_toolset.tools.result import ToolResult, is_plain

BOUNDS: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
"""Upper bounds of the buckets in seconds, from the conventions for MCP; the last bucket has no bound."""

MAX_HISTOGRAMS: Final = 10_000  # of one kind; durations with further keys share one histogram
Key = tuple[str, ...]


class Histogram:
    """The sum of durations, and the number of durations in each bucket."""

    __slots__ = ("buckets", "total")

    def __init__(self) -> None:
        self.total = 0.0
        self.buckets = [0] * (len(BOUNDS) + 1)

    @property
    def count(self) -> int:
        return sum(self.buckets)

    def note(self, seconds: float) -> None:
        self.total += seconds
        self.buckets[bisect_left(BOUNDS, seconds)] += 1

    def add(self, other: Histogram) -> None:
        self.total += other.total
        self.buckets = [a + b for a, b in zip(self.buckets, other.buckets, strict=True)]


class Histograms(dict[Key, Histogram]):
    """A histogram for each key, made on first use; above the limit, further keys share the key `rest`."""

    def __init__(self, rest: Key) -> None:
        super().__init__()
        self._rest = rest

    def __missing__(self, key: Key) -> Histogram:
        return self.setdefault(key if len(self) < MAX_HISTOGRAMS else self._rest, Histogram())

    def copies(self) -> Iterator[tuple[Key, Histogram]]:
        """Each key with a copy of its histogram; other threads may call this while calls are counted."""
        for key, histogram in list(self.items()):
            copy = Histogram()
            copy.add(histogram)
            yield key, copy


Sent = tuple[tuple[tuple[str, str, str, str], float], ...]

OTHER: Final = "_OTHER"  # the value of the conventions for the rest of a label's values
BATCH: Final = 128
"""The number of calls that are counted together: several times faster than one by one."""

INVALID: Final = "-32602"  # the JSON-RPC code for an unknown tool


class CallKey(NamedTuple):
    """Labels of calls in the metrics.

    Attributes:
        error: The class of the error, one of few; empty without an error.
        version: The protocol revision of the client's request for this call; empty for inner calls.
    """

    tool: str
    server: str
    outcome: str
    error: str = ""
    code: str = ""
    version: str = ""


class RequestKey(NamedTuple):
    """Labels of a client's request that is no call."""

    method: str
    version: str
    error: str = ""


class SentKey(NamedTuple):
    """Labels of a request to a mounted server; `tool` is the server's own name of a tool."""

    method: str
    tool: str
    server: str
    error: str


class CallMetrics:
    """Histograms of calls, of other requests, and of the requests `sent` to mounted servers for calls."""

    def __init__(self, traces: Traces | None = None) -> None:
        self.calls = Histograms(CallKey(OTHER, OTHER, OTHER))
        self.requests = Histograms(RequestKey(OTHER, OTHER))
        self.sent = Histograms(SentKey(OTHER, OTHER, OTHER, OTHER))
        self.traces = traces
        self._plain: list[tuple[ToolBinding, str, float, Sent]] = []

    def __call__(self, report: CallReport) -> None:
        """Count a call that was refused before it ran."""
        error = _error(report.outcome, report.reason)
        self.calls[CallKey(report.tool, report.server, report.outcome, error)].note(report.duration)

    def count_call(self, seen: Observation, context: ToolContext, result: ToolResult | None) -> None:
        duration, binding = perf_counter() - seen.began, seen.binding
        version = "" if context.is_inner else context.protocol_version or ""
        if seen.fault is None and result is not None and binding is not None and is_plain(result):
            self._plain.append((binding, version, duration, seen.sent))
            if len(self._plain) >= BATCH:
                self.gather()
            return
        tool, server = ("", "") if binding is None else (binding.name, binding.source)
        outcome, reason = outcome_of(seen.fault, result)
        code = "" if result is not None else _code(seen.fault)
        self.calls[tool, server, outcome, _error(outcome, reason), code, version].note(duration)
        self._note_sent(seen.sent)

    def gather(self) -> None:
        """Sum the calls of the current batch; only in the thread that counts calls."""
        plain, self._plain = self._plain, []
        for binding, version, duration, sent in plain:
            self.calls[binding.name, binding.source, "result", "", "", version].note(duration)
            self._note_sent(sent)

    def _note_sent(self, sent: Sent) -> None:
        for key, seconds in sent:
            self.sent[key].note(seconds)


def _error(outcome: str, reason: str) -> str:
    """The class of an error; reasons of rules are free text, and so share one class."""
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


Labels = tuple[tuple[str, str], ...]
Sees = Callable[[str, str], bool]
"""True if a reader may know of a server and of its tool."""

_CALL: Final = "tools/call"
_TOOL: Final = "gen_ai.tool.name"
_OPERATION: Final = ("gen_ai.operation.name", "execute_tool")
_SERVER: Final = "mcp_toolset.server"


@dataclass(frozen=True, slots=True)
class Durations:
    """One metric of durations in seconds: histograms by labels."""

    name: str
    description: str
    points: Mapping[Labels, Histogram]


def everything(server: str, tool: str) -> bool:
    return True


def series_of(metrics: CallMetrics, sees: Sees = everything) -> tuple[Durations, ...]:
    """The metrics of the tools that a reader may know of, without the calls of the current batch.

    Other threads may call this.
    """
    calls = [(CallKey(*key), histogram) for key, histogram in metrics.calls.copies()]
    calls = [(key, histogram) for key, histogram in calls if sees(key.server, key.tool)]
    sent = [(SentKey(*key), histogram) for key, histogram in metrics.sent.copies()]
    sent = [(key, histogram) for key, histogram in sent if sees(key.server, key.tool)]
    requests = [(RequestKey(*key), histogram) for key, histogram in metrics.requests.copies()]
    return (
        Durations(
            "gen_ai.execute_tool.duration",
            "Calls of tools: of clients, of code that models write and of the program.",
            _summed((_call_labels(key), histogram) for key, histogram in calls),
        ),
        Durations(
            "mcp.server.operation.duration",
            "Requests of clients, until their answers.",
            _summed(
                (*_call_requests(calls), *((_request_labels(key), histogram) for key, histogram in requests))
            ),
        ),
        Durations(
            "mcp.client.operation.duration",
            "Requests to mounted servers in the course of calls, until their answers.",
            _summed((_sent_labels(key), histogram) for key, histogram in sent),
        ),
    )


def _summed(points: Iterable[tuple[Labels, Histogram]]) -> Mapping[Labels, Histogram]:
    sums: dict[Labels, Histogram] = {}
    for labels, histogram in points:
        sums.setdefault(labels, Histogram()).add(histogram)
    return sums


def _call_labels(key: CallKey) -> Labels:
    outcome = ("mcp_toolset.outcome", key.outcome)
    return _labels(_OPERATION, (_TOOL, key.tool), (_SERVER, key.server), outcome, ("error.type", key.error))


def _call_requests(calls: Iterable[tuple[CallKey, Histogram]]) -> Iterator[tuple[Labels, Histogram]]:
    """The calls that were requests of clients."""
    for key, histogram in calls:
        if key.version:
            error = key.code or (key.error and ("cancelled" if key.outcome == "cancelled" else "tool_error"))
            yield (
                _labels(
                    ("mcp.method.name", _CALL),
                    _OPERATION,
                    (_TOOL, key.tool),
                    ("mcp.protocol.version", key.version),
                    ("error.type", error),
                    ("rpc.response.status_code", key.code),
                ),
                histogram,
            )


def _request_labels(key: RequestKey) -> Labels:
    code = key.error if key.error.lstrip("-").isdecimal() else ""
    return _labels(
        ("mcp.method.name", key.method),
        ("mcp.protocol.version", key.version),
        ("error.type", key.error),
        ("rpc.response.status_code", code),
    )


def _sent_labels(key: SentKey) -> Labels:
    operation = _OPERATION if key.method == _CALL else ("", "")
    method = ("mcp.method.name", key.method)
    return _labels(method, operation, (_TOOL, key.tool), (_SERVER, key.server), ("error.type", key.error))


def _labels(*pairs: tuple[str, str]) -> Labels:
    return tuple((name, value) for name, value in pairs if value)
