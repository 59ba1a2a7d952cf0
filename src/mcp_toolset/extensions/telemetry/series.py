"""`series_of`: the sums of a server as metrics with the names of OpenTelemetry's conventions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from mcp_toolset._records import dataclass
from mcp_toolset.extensions.telemetry.call_metrics import CallKey, CallMetrics, RequestKey, SentKey
from mcp_toolset.extensions.telemetry.histograms import Histogram

Labels = tuple[tuple[str, str], ...]
Sees = Callable[[str, str], bool]
"""Whether a reader may know of a server, and of a tool of it."""

_CALL: Final = "tools/call"
_TOOL: Final = "gen_ai.tool.name"
_OPERATION: Final = ("gen_ai.operation.name", "execute_tool")
_SERVER: Final = "mcp_toolset.server"


@dataclass(frozen=True, slots=True)
class Durations:
    """One metric of durations in seconds.

    Attributes:
        name: Its name.
        told: What it is.
        points: By its attributes a histogram.
    """

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
