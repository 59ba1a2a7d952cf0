"""Calls and requests as OpenTelemetry's conventions name them: what is summed, and what is traced.

Calls are summed here, as an instrument of OpenTelemetry costs a call several times as much.
"""

from __future__ import annotations

import asyncio
import os
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from random import random
from time import monotonic, perf_counter
from typing import Any, Final, NamedTuple

from mcp_toolset._records import dataclass
from mcp_toolset.calls.observers import NAME, REFUSALS, CallReport, Observation, TraceSampler, outcome_of
from mcp_toolset.errors import DefinitionError, UnknownToolError, UpstreamProtocolError
from mcp_toolset.tools.binding import ToolBinding
from mcp_toolset.tools.call import ToolContext
from mcp_toolset.tools.result import ToolResult, is_plain

BOUNDS: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
"""Upper bounds of the buckets in seconds, of the conventions for MCP; the last bucket has none."""

MOST: Final = 10_000  # histograms of one kind; what is of further ones is summed in one
Key = tuple[str, ...]


class Histogram:
    """A sum of durations, and how many of them each bucket has."""

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
    """A histogram for each key, made on first use; what has no room is summed under the key `rest`."""

    def __init__(self, rest: Key) -> None:
        super().__init__()
        self._rest = rest

    def __missing__(self, key: Key) -> Histogram:
        return self.setdefault(key if len(self) < MOST else self._rest, Histogram())

    def copies(self) -> Iterator[tuple[Key, Histogram]]:
        """Each key with a copy of its histogram; a thread may ask while calls go on."""
        for key, found in list(self.items()):
            copy = Histogram()
            copy.add(found)
            yield key, copy


Sent = tuple[tuple[tuple[str, str, str, str], float], ...]

OTHER: Final = "_OTHER"  # what the conventions write for a value that is not told apart
GATHERED: Final = 128
"""Calls that are summed at once: the second and further ones take a fraction of the time of the first."""

INVALID: Final = "-32602"  # the code of JSON-RPC for a tool that does not exist


class CallKey(NamedTuple):
    """Labels of calls in the metrics.

    Attributes:
        error: A class of the error, of few; empty without one.
        version: The protocol revision of a request that was nothing but this call; empty for other calls.
    """

    tool: str
    server: str
    outcome: str
    error: str = ""
    code: str = ""
    version: str = ""


class RequestKey(NamedTuple):
    """Labels of another request of a client."""

    method: str
    version: str
    error: str = ""


class SentKey(NamedTuple):
    """Labels of a request to a mounted server; `tool` is the server's own name of a tool."""

    method: str
    tool: str
    server: str
    error: str


_SAMPLER: Final = "OTEL_TRACES_SAMPLER"
_RATIO: Final = "OTEL_TRACES_SAMPLER_ARG"
_PARENT: Final = "parentbased_"
_FLAGS: Final = slice(53, 55)  # where a `traceparent` has its flags


@dataclass(frozen=True, slots=True)
class Sampling:
    """Which requests are traced: as the client `follows`, or by `ratio`; without a ratio, by rate."""

    follows: bool = True
    ratio: float | None = None

    @classmethod
    def of_environment(cls) -> Sampling:
        said = os.environ.get(_SAMPLER, "").strip().lower()
        if not said:
            return cls()
        follows, kind = said.startswith(_PARENT), said.removeprefix(_PARENT)
        try:
            given = min(1.0, max(0.0, float(os.environ.get(_RATIO) or 1)))
            ratio = {"always_on": 1.0, "always_off": 0.0, "traceidratio": given}[kind]
        except (KeyError, ValueError):
            known = "always_on, always_off or traceidratio, or one of them after parentbased_"
            raise DefinitionError(
                f"{_SAMPLER}={said} with {_RATIO}={os.environ.get(_RATIO, '')} cannot be used; write {known}"
            ) from None
        return cls(follows, ratio)


class Traces(TraceSampler):
    """Chooses requests before they are handled: OpenTelemetry makes a span before it asks its sampler."""

    def __init__(self, rate: float) -> None:
        self._sampling = Sampling.of_environment()
        self._rate = rate
        self._left = self._most = max(1.0, rate)
        self._at = 0.0

    def begin(self, provider: Any) -> None:
        self.tracer = provider.get_tracer(NAME)
        ratio = self._sampling.ratio
        self.due = bool(self._rate if ratio is None else ratio)

    def end(self) -> None:
        self.tracer, self.due = None, False

    def sampled(self, meta: Mapping[str, Any] | None) -> bool:
        if self.tracer is None:
            return False
        if meta and self._sampling.follows and isinstance(parent := meta.get("traceparent"), str):
            return parent[_FLAGS][-1:] in "13579bdf" and len(parent) >= _FLAGS.stop
        if self._sampling.ratio is not None:
            return random() < self._sampling.ratio
        return self.due and self._takes()

    def _takes(self) -> bool:
        """Take one from the bucket; an empty one is asked again when it has one."""
        now = monotonic()
        self._left = min(self._most, self._left + (now - self._at) * self._rate)
        self._at = now
        if self._left < 1:
            self.due = False
            asyncio.get_running_loop().call_later((1 - self._left) / self._rate, self._resume)
            return False
        self._left -= 1
        return True

    def _resume(self) -> None:
        self.due = self.tracer is not None


class CallMetrics:
    """Sums of calls, of other requests, and of requests `sent` to mounted servers in the course of calls."""

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


Labels = tuple[tuple[str, str], ...]
Sees = Callable[[str, str], bool]  # whether a reader may know of a server, and of a tool of it
_CALL: Final = "tools/call"
_TOOL: Final = "gen_ai.tool.name"
_OPERATION: Final = ("gen_ai.operation.name", "execute_tool")
_SERVER: Final = "mcp_toolset.server"


@dataclass(frozen=True, slots=True)
class Durations:
    """One metric of durations in seconds; `told` is its description, `points` has histograms by labels."""

    name: str
    told: str
    points: Mapping[Labels, Histogram]


def everything(server: str, tool: str) -> bool:
    return True


def series_of(metrics: CallMetrics, sees: Sees = everything) -> tuple[Durations, ...]:
    """The metrics of a server, as far as a reader may know of its tools; a thread may ask for them.

    Calls that are not gathered yet are missing.
    """
    calls = [(CallKey(*key), found) for key, found in metrics.calls.copies()]
    calls = [(key, found) for key, found in calls if sees(key.server, key.tool)]
    sent = [(SentKey(*key), found) for key, found in metrics.sent.copies()]
    requests = [(RequestKey(*key), found) for key, found in metrics.requests.copies()]
    return (
        Durations(
            "gen_ai.execute_tool.duration",
            "Calls of tools: of clients, of code that models write and of the program.",
            _summed((_of_call(key), found) for key, found in calls),
        ),
        Durations(
            "mcp.server.operation.duration",
            "Requests of clients, until their answers.",
            _summed((*_served(calls), *((_of_request(key), found) for key, found in requests))),
        ),
        Durations(
            "mcp.client.operation.duration",
            "Requests to mounted servers in the course of calls, until their answers.",
            _summed((_of_sent(key), found) for key, found in sent if sees(key.server, key.tool)),
        ),
    )


def _summed(points: Iterable[tuple[Labels, Histogram]]) -> Mapping[Labels, Histogram]:
    made: dict[Labels, Histogram] = {}
    for labels, found in points:
        made.setdefault(labels, Histogram()).add(found)
    return made


def _of_call(key: CallKey) -> Labels:
    outcome = ("mcp_toolset.outcome", key.outcome)
    return _labels(_OPERATION, (_TOOL, key.tool), (_SERVER, key.server), outcome, ("error.type", key.error))


def _served(calls: Iterable[tuple[CallKey, Histogram]]) -> Iterator[tuple[Labels, Histogram]]:
    for key, found in calls:
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
                found,
            )


def _of_request(key: RequestKey) -> Labels:
    code = key.error if key.error.lstrip("-").isdecimal() else ""
    return _labels(
        ("mcp.method.name", key.method),
        ("mcp.protocol.version", key.version),
        ("error.type", key.error),
        ("rpc.response.status_code", code),
    )


def _of_sent(key: SentKey) -> Labels:
    operation = _OPERATION if key.method == _CALL else ("", "")
    method = ("mcp.method.name", key.method)
    return _labels(method, operation, (_TOOL, key.tool), (_SERVER, key.server), ("error.type", key.error))


def _labels(*pairs: tuple[str, str]) -> Labels:
    return tuple((name, value) for name, value in pairs if value)
