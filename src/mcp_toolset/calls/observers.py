"""Reports of calls: `Observation` has notes about a running call, and `CallObserver` gets its `CallReport`.

`end_observation` makes the report of a call from its notes, and passes the report to the observers.
"""

from __future__ import annotations

import inspect
import logging
import re
import sys
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar, Token
from dataclasses import field
from time import perf_counter, time
from typing import Any, Final, Literal, Protocol, cast, runtime_checkable

from mcp_toolset import errors
from mcp_toolset._records import dataclass
from mcp_toolset.calls.decision import OTEL, TRACER, Decision, rejection_reason, tracing
from mcp_toolset.concurrency.tasks import CancelledError
from mcp_toolset.tools.binding import ToolBinding
from mcp_toolset.tools.call import Identity, ToolCall, ToolContext
from mcp_toolset.tools.result import InputRequired, ToolResult, joined
from mcp_toolset.tools.tool import Tool

Outcome = Literal["result", "error", "refused", "asked", "cancelled"]
"""The outcome of a call.

- `result`: the caller has a result.
- `error`: the tool, its server or a rule failed; the caller has an error.
- `refused`: the call did not run: unknown tool, no grant, wrong arguments, a hook, a policy.
- `asked`: the call ended with a question; the repeated call with the answer is reported as well.
- `cancelled`: the caller, or the loop, cancelled it.
"""

_REFUSALS: Final[tuple[tuple[type[Exception], str], ...]] = (
    (errors.UnknownToolError, "unknown tool"),
    (errors.InvalidArgumentsError, "invalid arguments"),
    (errors.GrantError, "no valid grant"),
    (errors.StoreError, "a store failed"),
    (errors.PermissionDeniedError, "permission denied"),
    (errors.ClientCapabilityError, "the client lacks a capability"),
    (errors.RequestStateError, "invalid request state"),
)
REFUSALS: Final = frozenset(reason for _, reason in _REFUSALS)
"""The fixed reasons of refusals; other reasons are texts of rules."""


@dataclass(frozen=True, slots=True)
class CallReport:
    """The report of one call. It has no arguments, no result and no credentials.

    Attributes:
        called: The name that the caller used: `call_tool` for a deferred tool that was called by its grant.
        tool: The public name of the called tool; empty if it does not exist.
        server: The name of the mounted server of the tool; empty for local tools.
        outcome: The outcome of the call.
        reason: Of a refusal: the rule's text or a fixed text. Of an exception: its type. Empty otherwise.
        ran: True if the tool ran; for a manual tool, if the application got the call.
        decisions: The decisions of execution hooks, in order: `RunNormally`, `Complete`, `Reject`.
        id: The id of the call, in a round.
        round: The id of the round, the same for all calls of one model reply; empty for other calls.
        session: The caller's session, if the protocol has sessions.
        principal: The authenticated user.
        client: The name and version that the client program gives itself; empty if unknown.
        protocol_version: The protocol revision of the call; `None` without a client.
        started: When the call arrived, in seconds since the epoch.
        duration: Seconds until the result.
        identity: The authenticated caller, with name and roles.
        arguments: A keyed digest of the arguments as the caller sent them, if an observer makes digests: an
            `AuditLog` does.
        rule: The rule of a policy that decided about the call; empty if no rule did.
        trace: The id of the call's trace; empty without a trace.
        repairs: The repairs of the arguments, in words and without values.
        usage: Tokens by kind that the program's own model took for the call; see `sampler` of a server.
        view: The name of the view of the server, such as a profile, that got the call; empty for the server.
    """

    called: str
    tool: str
    server: str
    outcome: Outcome
    reason: str
    ran: bool
    decisions: tuple[str, ...]
    id: str
    round: str
    session: str | None
    principal: str | None
    client: str
    protocol_version: str | None
    started: float
    duration: float
    identity: Identity | None = None
    arguments: str = ""
    rule: str = ""
    trace: str = ""
    repairs: tuple[str, ...] = ()
    usage: tuple[tuple[str, int], ...] = ()
    view: str = ""


def outcome_of(fault: BaseException | None, result: ToolResult | None) -> tuple[Outcome, str]:
    if fault is not None:
        outcome, reason = _of_fault(fault)
        # A middleware has waited for work that was cancelled; the caller has an error result.
        return ("error", reason) if outcome == "cancelled" and result is not None else (outcome, reason)
    if result is None or not result.is_complete:
        return "asked", ""
    rejection = rejection_reason(result)
    if rejection is not None:
        return "refused", rejection.reason
    return ("error" if result.is_error else "result"), ""


def _of_fault(fault: BaseException) -> tuple[Outcome, str]:
    fault = joined(fault)
    if isinstance(fault, InputRequired):
        return "asked", ""
    if isinstance(fault, CancelledError):
        return "cancelled", ""
    refusal = next((reason for kind, reason in _REFUSALS if isinstance(fault, kind)), None)
    return ("error", type(fault).__name__) if refusal is None else ("refused", refusal)


def client_label(context: ToolContext) -> str:
    return label_of(context.client_info)


def label_of(client: Mapping[str, Any]) -> str:
    name, version = client.get("name"), client.get("version")
    return f"{name} {version}" if name and version else str(name or version or "")


@dataclass(slots=True, eq=False)
class Observation:
    """Notes about one call while it runs."""

    binding: ToolBinding | None = None
    arguments: str = ""  # The digest of the arguments.
    fault: BaseException | None = None  # The error that became an error result.
    ran: bool = False
    decisions: tuple[str, ...] = ()
    rule: str = ""
    repairs: tuple[str, ...] = ()
    usage: tuple[tuple[str, int], ...] = ()
    times: bool = False  # True if requests of the call to mounted servers are timed.
    # These requests: method, tool, server and class of the error of each, and its seconds.
    sent: tuple[tuple[tuple[str, str, str, str], float], ...] = ()
    began: float = field(default_factory=perf_counter)  # The start, on a monotonic clock.


CURRENT: Final[ContextVar[Observation | None]] = ContextVar("mcp_toolset_observation", default=None)
"""The observation of the current call."""

VIEW: Final[ContextVar[str]] = ContextVar("mcp_toolset_view", default="")
"""The name of the view that answers the current request; empty for the server itself."""


def note_decision(decision: Decision) -> None:
    notes = CURRENT.get()
    if notes is not None:
        notes.decisions = (*notes.decisions, type(decision).__name__)


def note_rule(rule: str) -> None:
    notes = CURRENT.get()
    if notes is not None:
        notes.rule = rule


def note_usage(usage: Mapping[str, int]) -> None:
    notes = CURRENT.get()
    if notes is not None:
        sums = Counter(dict(notes.usage))
        sums.update(usage)
        notes.usage = tuple(sorted(sums.items()))


def note_fault(fault: Exception) -> None:
    """Note the reason of a refusal, where the text for the caller contains arguments."""
    note_in(CURRENT.get(), fault)


def note_in(notes: Observation | None, fault: BaseException) -> None:
    if notes is not None:
        notes.fault = fault


@contextmanager
def noting(notes: Observation) -> Generator[None]:
    """Take notes about a call."""
    token = CURRENT.set(notes)
    try:
        yield
    finally:
        CURRENT.reset(token)


Common = tuple[str, str, str, str | None, str | None, str | None, str, int, str]
"""Facts that many calls share: called, tool, server, principal, protocol, session, client, caller, view.

The caller is Python's `id` of the identity, since identities are slow to compare; keep the identity with it.
"""


def common_of(call: CallReport) -> Common:
    return (
        call.called,
        call.tool,
        call.server,
        call.principal,
        call.protocol_version,
        call.session,
        call.client,
        id(call.identity),
        call.view,
    )


_log: Final = logging.getLogger("mcp_toolset.calls")


CallObserver = Callable[[CallReport], object]
"""Gets the report of each call, and must return quickly; an error that it raises is logged alone."""


class DigestingObserver(ABC):
    """An observer that makes digests of arguments, such as an `AuditLog`; plain calls need no report."""

    @abstractmethod
    def __call__(self, report: CallReport, /) -> object: ...

    @abstractmethod
    def digest(self, arguments: Mapping[str, Any], /) -> str: ...

    def note_plain(self, common: Common, arguments: str, outcome: str, ran: bool, duration: float, /) -> bool:
        """Note a plain call without a report; must not raise. Return `False` to get the report instead."""
        return False


class TraceSampler:
    """Samples the requests to trace: by default none."""

    tracer: Any = None  # Makes their spans; `None` without a collector.
    due: bool = False  # True if a request without a trace of its client may be sampled.
    active: int = 0  # The number of requests that are traced now.

    def sampled(self, meta: Mapping[str, Any] | None) -> bool:
        return False


@runtime_checkable
class CountingObserver(Protocol):
    """An observer that counts calls, and needs no reports.

    If it has an attribute `traces`, a `TraceSampler` or `None`, the requests of calls are timed for it.
    """

    def __call__(self, report: CallReport, /) -> object: ...

    def count_call(
        self, notes: Observation, context: ToolContext, result: ToolResult | None, /
    ) -> object: ...


Digest = Callable[[Mapping[str, Any]], str]


def check_observers(observers: object) -> tuple[CallObserver, ...]:
    """The observers; `DefinitionError` unless they are a list of plain functions of a report."""
    if isinstance(observers, str | Mapping) or not isinstance(observers, Iterable):
        raise errors.DefinitionError(f"observers is a list of functions of a CallReport, not {observers!r}")
    checked = tuple(cast("Iterable[CallObserver]", observers))
    for observer in checked:
        call: Any = getattr(observer, "__call__", None)  # noqa: B004
        if not callable(observer) or isinstance(observer, type | Tool):
            raise errors.DefinitionError(f"an observer is a function of a CallReport, not {observer!r}")
        if inspect.iscoroutinefunction(observer) or inspect.iscoroutinefunction(call):
            raise errors.DefinitionError(
                f"an observer is called, not awaited: make {observer!r} a plain function that puts the "
                "report into a queue"
            )
    return checked


def digest_of(observers: Iterable[CallObserver]) -> Digest | None:
    return next((log.digest for log in observers if isinstance(log, DigestingObserver)), None)


def sampler_of(observers: Iterable[CallObserver]) -> TraceSampler | None:
    counting = (observer for observer in observers if isinstance(observer, CountingObserver))
    choices = (getattr(observer, "traces", None) for observer in counting)
    return next((traces for traces in choices if traces is not None), None)


@dataclass(frozen=True, slots=True)
class Listeners:
    """The observers of calls by kind: `observers` get reports, `logs` get facts, `counters` count calls."""

    observers: tuple[CallObserver, ...]
    logs: tuple[DigestingObserver, ...]
    counters: tuple[CountingObserver, ...]
    digest: Digest | None  # Makes the digests of arguments; `None` without such an observer.
    times: bool = False  # True if the requests of calls to mounted servers are timed.
    traces: TraceSampler | None = None  # Samples calls without a client.

    @classmethod
    def of(cls, observers: Iterable[CallObserver]) -> Listeners | None:
        """The listeners for some observers; `None` without observers."""
        if not (observers := tuple(observers)):
            return None
        logs = tuple(log for log in observers if isinstance(log, DigestingObserver))
        counters = tuple(counter for counter in observers if isinstance(counter, CountingObserver))
        others = tuple(
            other for other in observers if not isinstance(other, DigestingObserver | CountingObserver)
        )
        times = any(hasattr(counter, "traces") for counter in counters)
        return cls(others, logs, counters, digest_of(logs), times, sampler_of(observers))


def tell(observers: Iterable[Callable[[Any], object]], report: CallReport) -> None:
    for observer in observers:
        try:
            observer(report)
        # An observer is the application's code and may raise anything; the call goes on.
        except Exception:
            _log.exception("the observer %r raised", observer)


NAME: Final = "mcp_toolset"  # The name of the tracer and the meter of this package.

_ATTRIBUTES: Final = (
    *("gen_ai.tool.name", "mcp_toolset.outcome", "gen_ai.tool.call.id", "mcp_toolset.called"),
    *("mcp_toolset.server", "mcp_toolset.reason", "mcp_toolset.decisions"),
)
_TRACE_ID: Final = re.compile(r"[0-9a-f]{32}")
_EXECUTED: Final = "execute_tool"
_OPERATION: Final = {"gen_ai.operation.name": _EXECUTED}


def end_observation(
    notes: Observation,
    token: Token[Observation | None],
    listeners: Listeners | None,
    call: ToolCall,
    context: ToolContext,
    result: ToolResult | None,
) -> None:
    """End the notes about a call, and report the call to observers and traces."""
    CURRENT.reset(token)
    otel = _tracing(listeners)
    if otel is not None:
        _set_attributes(otel, notes, call, context, result)
    if listeners is None:
        return
    for log in listeners.logs:
        if otel is not None or not _is_noted(log, notes, call, context, result):
            tell((log,), report_of(notes, call, context, result))
    for counter in listeners.counters:
        counter.count_call(notes, context, result)
    if listeners.observers:
        tell(listeners.observers, report_of(notes, call, context, result))


def _is_noted(
    log: DigestingObserver,
    notes: Observation,
    call: ToolCall,
    context: ToolContext,
    result: ToolResult | None,
) -> bool:
    """True if a log has noted a plain call without a report, which is faster; nearly all calls are plain."""
    binding = notes.binding
    if result is None or binding is None or notes.fault is not None or call.id:
        return False
    if notes.rule or notes.decisions or notes.usage:
        return False
    wire = result.wire
    if "_meta" in wire or result.ask is not None or wire.get("resultType", "complete") != "complete":
        return False
    if context.round or "traceparent" in context.meta:
        return False
    common = (
        call.name,
        binding.name,
        binding.source,
        context.principal,
        context.protocol_version,
        context.session,
        client_label(context),
        id(context.identity),
        VIEW.get(),
    )
    outcome = "error" if wire.get("isError") is True else "result"
    return log.note_plain(common, notes.arguments, outcome, notes.ran, perf_counter() - notes.began)


def report_of(
    notes: Observation, call: ToolCall, context: ToolContext, result: ToolResult | None
) -> CallReport:
    outcome, reason = outcome_of(notes.fault, result)
    binding, duration = notes.binding, perf_counter() - notes.began
    return CallReport(
        call.name,
        "" if binding is None else binding.name,
        "" if binding is None else binding.source,
        outcome,
        reason,
        notes.ran,
        notes.decisions,
        call.id,
        context.round,
        context.session,
        context.principal,
        client_label(context),
        context.protocol_version,
        time() - duration,
        duration,
        context.identity,
        notes.arguments,
        notes.rule,
        _trace_of(context),
        notes.repairs,
        notes.usage,
        VIEW.get(),
    )


def extra_of(call: ToolCall, context: ToolContext, server: str) -> dict[str, object]:
    """The `extra` of a log record about a call: see `serving.log_lines`."""
    return {
        "tool": call.name,
        "server": server,
        "client": client_label(context),
        "view": VIEW.get(),
        "id": call.id or context.request_id,
        "trace": _trace_of(context),
        "kept_level": logging.WARNING,
    }


def span_of(
    call: ToolCall, context: ToolContext, listeners: Listeners | None
) -> AbstractContextManager[object] | None:
    """The span of a traced call; `None` for a call that is a whole request of a client, which has a span."""
    tracer = TRACER.get() if listeners is not None and listeners.times else None
    if tracer is None and tracing():
        tracer = sys.modules[OTEL].get_tracer(NAME)
    if tracer is not None:
        return tracer.start_as_current_span(f"{_EXECUTED} {call.name}", attributes=_OPERATION)
    traces = None if listeners is None else listeners.traces
    if traces is not None and not context.is_inner and traces.sampled(context.meta):
        return _sampled_span(call, traces)
    return None


@contextmanager
def _sampled_span(call: ToolCall, traces: TraceSampler) -> Generator[None]:
    token = TRACER.set(traces.tracer)
    traces.active += 1
    try:
        with traces.tracer.start_as_current_span(f"{_EXECUTED} {call.name}", attributes=_OPERATION):
            yield
    finally:
        traces.active -= 1
        TRACER.reset(token)


def _trace_of(context: ToolContext) -> str:
    """The id of the current trace, or of the client's (W3C Trace Context); empty without one."""
    otel: Any = sys.modules[OTEL] if TRACER.get() is not None or tracing() else None
    if otel is not None and (current := otel.get_current_span().get_span_context()).is_valid:
        return f"{current.trace_id:032x}"
    if (parent := context.meta.get("traceparent")) is None:
        return ""
    parts = str(parent).split("-")
    return parts[1] if len(parts) == 4 and _TRACE_ID.fullmatch(parts[1]) else ""


def _tracing(listeners: Listeners | None) -> Any:
    traces = None if listeners is None else listeners.traces
    own = traces is not None and traces.active and TRACER.get() is not None
    return sys.modules[OTEL] if own or tracing() else None


def _set_attributes(
    otel: Any, notes: Observation, call: ToolCall, context: ToolContext, result: ToolResult | None
) -> None:
    if not (span := otel.get_current_span()).is_recording():
        return
    outcome, reason = outcome_of(notes.fault, result)
    tool, server = (call.name, "") if notes.binding is None else (notes.binding.name, notes.binding.source)
    called = call.name if tool != call.name else ""
    if called and (context.is_inner or context.protocol_version is None):
        span.update_name(f"{_EXECUTED} {tool}")
    decisions = ",".join(notes.decisions)
    values = (tool, outcome, call.id, called, server, reason, decisions)
    span.set_attributes({key: value for key, value in zip(_ATTRIBUTES, values, strict=True) if value})
