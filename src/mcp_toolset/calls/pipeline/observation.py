"""`CallReport`: what came of one call, told to observers in one place, wherever the call was made.

`ToolDispatch.call` tells of every call that it runs: served, of the program that owns a server, or of
a round. A round tells of the calls that never get there. While nobody observes, a call does nothing here.
"""

from __future__ import annotations

import inspect
import logging
import sys
import time
from collections.abc import Awaitable, Callable, Generator, Iterable, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol, cast

from mcp_toolset.calls.pipeline.decision import Decision
from mcp_toolset.calls.pipeline.rejection import rejection_reason
from mcp_toolset.errors import (
    ClientCapabilityError,
    DefinitionError,
    GrantError,
    GrantStoreError,
    InvalidArgumentsError,
    PermissionDeniedError,
    RequestStateError,
    UnknownToolError,
)
from mcp_toolset.tools.binding.binding import ToolBinding
from mcp_toolset.tools.core.asking import InputRequired, joined
from mcp_toolset.tools.core.call import ToolCall, ToolContext
from mcp_toolset.tools.core.cancelling import CancelledError
from mcp_toolset.tools.core.result import ToolResult

Outcome = Literal["result", "error", "refused", "asked", "cancelled"]
"""What came of a call.

- `result`: the caller has a result.
- `error`: the tool, its server or a rule failed; the caller has an error.
- `refused`: the call was not let through: no such tool, no grant, wrong arguments, a hook, a policy.
- `asked`: the call ended with a question; it is called again with the answer, and is then told of again.
- `cancelled`: the caller, or the loop, gave up.
"""

_REFUSALS: Final[tuple[tuple[type[Exception], str], ...]] = (
    (UnknownToolError, "unknown tool"),
    (InvalidArgumentsError, "invalid arguments"),
    (GrantError, "no valid grant"),
    (GrantStoreError, "the grant store failed"),
    (PermissionDeniedError, "permission denied"),
    (ClientCapabilityError, "the client lacks a capability"),
    (RequestStateError, "invalid request state"),
)
_OTEL: Final = "opentelemetry.trace"
_log = logging.getLogger("mcp_toolset.calls")


@dataclass(frozen=True, slots=True)
class CallReport:
    """What came of one call. It holds no argument, no result and no credential.

    Attributes:
        called: The name that the caller used: `call_tool` for a deferred tool that was called by its grant.
        tool: The public name of the tool that the call was for; empty if there is no such tool.
        server: The name of the mounted server that has the tool; empty for local tools.
        outcome: What came of the call.
        reason: Why it was refused, in the words of the rule that refused it or in a few fixed ones; the
            kind of exception if it failed by one. Empty otherwise.
        ran: Whether the tool was run; a manual tool, whether it was handed to the application.
        decisions: What execution hooks decided, in order: `RunNormally`, `Complete`, `Reject`.
        id: The id of the call, in a round.
        round: The id of the round, the same for all calls of one model reply; empty for other calls.
        session: The caller's session, where the protocol has sessions.
        principal: Who the caller has proved to be.
        client: The name and version that the client program gives itself; empty if it is not known.
        protocol_version: The protocol revision of the call; `None` if it came over no wire.
        started: When it came in, in seconds since the epoch.
        duration: Seconds until its result was there.
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


class CallObserver(Protocol):
    """Anything that can be called with a report; it may not wait."""

    def __call__(self, report: CallReport, /) -> object:
        """Hear what came of a call. What it raises is logged, and changes nothing."""
        ...


@dataclass(slots=True)
class Observation:
    """What is found out about one call while it runs.

    Attributes:
        binding: The tool, once it was looked up.
        fault: What became an error result.
        ran: Whether the tool was run.
        decisions: What hooks decided.
        started: Seconds since the epoch.
        began: The same moment on a steady clock.
    """

    binding: ToolBinding | None = None
    fault: BaseException | None = None
    ran: bool = False
    decisions: list[str] = field(default_factory=list[str])
    started: float = field(default_factory=time.time)
    began: float = field(default_factory=time.perf_counter)


_CURRENT: Final[ContextVar[Observation | None]] = ContextVar("mcp_toolset_observation", default=None)


def check_observers(observers: object) -> tuple[CallObserver, ...]:
    """The observers, if they can be some.

    Raises:
        DefinitionError: it is no list, or one of them cannot be called with a report, or is asynchronous.
    """
    if isinstance(observers, str) or not isinstance(observers, Iterable):
        raise DefinitionError(f"observers is a list of functions of a CallReport, not {observers!r}")
    found = tuple(cast("Iterable[CallObserver]", observers))
    for one in found:
        call: Any = getattr(one, "__call__", None)  # noqa: B004
        if not callable(one) or isinstance(one, type):
            raise DefinitionError(f"an observer is a function of a CallReport, not {one!r}")
        if inspect.iscoroutinefunction(one) or inspect.iscoroutinefunction(call):
            raise DefinitionError(
                f"an observer is called, not awaited: make {one!r} a plain function that puts the report "
                "into a queue"
            )
    return found


def note_decision(decision: Decision) -> None:
    """Add what a hook decided to the observation of the call at hand, if it is observed."""
    seen = _CURRENT.get()
    if seen is not None:
        seen.decisions.append(type(decision).__name__)


def note_run() -> None:
    """Note that the tool of the call at hand is run."""
    seen = _CURRENT.get()
    if seen is not None:
        seen.ran = True


def note_fault(fault: Exception) -> None:
    """Note what a call was refused by, where the words that the caller reads have arguments in them."""
    seen = _CURRENT.get()
    if seen is not None:
        seen.fault = fault


@contextmanager
def noting(seen: Observation) -> Generator[None]:
    """Have what is noted about a call in a block be about this one."""
    token = _CURRENT.set(seen)
    try:
        yield
    finally:
        _CURRENT.reset(token)


async def observe(
    observers: Sequence[CallObserver],
    call: ToolCall,
    context: ToolContext,
    run: Callable[[Observation], Awaitable[ToolResult]],
) -> ToolResult:
    """Run a call, and tell observers and the trace at hand what came of it."""
    seen = Observation()
    result: ToolResult | None = None
    with noting(seen), _span(call, context):
        try:
            result = await run(seen)
            return result
        # Whatever the call ended by is told, and goes on.
        except BaseException as fault:
            seen.fault = fault
            raise
        finally:
            report = report_of(seen, call, context, result)
            _trace(report)
            tell(observers, report)


def report_of(
    seen: Observation, call: ToolCall, context: ToolContext, result: ToolResult | None
) -> CallReport:
    """The report of a call that has ended."""
    outcome, reason = _outcome(seen.fault, result)
    client = context.client_info
    binding = seen.binding
    return CallReport(
        called=call.name,
        tool="" if binding is None else binding.name,
        server="" if binding is None else binding.source,
        outcome=outcome,
        reason=reason,
        ran=seen.ran,
        decisions=tuple(seen.decisions),
        id=call.id,
        round=context.round,
        session=context.session,
        principal=context.principal,
        client=" ".join(str(client[key]) for key in ("name", "version") if client.get(key)),
        protocol_version=context.protocol_version,
        started=seen.started,
        duration=time.perf_counter() - seen.began,
    )


def tell(observers: Iterable[CallObserver], report: CallReport) -> None:
    """Tell every observer; what one of them raises is logged."""
    for observer in observers:
        try:
            observer(report)
        # An observer is the application's code and may raise anything; the call is not its to end.
        except Exception:
            _log.exception("the observer %r raised", observer)


def _outcome(fault: BaseException | None, result: ToolResult | None) -> tuple[Outcome, str]:
    if fault is not None:
        return _of_fault(fault)
    if result is None or not result.is_complete:
        return "asked", ""
    refused = rejection_reason(result)
    if refused is not None:
        return "refused", refused.reason
    return ("error" if result.is_error else "result"), ""


def _of_fault(fault: BaseException) -> tuple[Outcome, str]:
    fault = joined(fault)
    if isinstance(fault, InputRequired):
        return "asked", ""
    if isinstance(fault, CancelledError):
        return "cancelled", ""
    refusal = next((told for kind, told in _REFUSALS if isinstance(fault, kind)), None)
    return ("error", type(fault).__name__) if refusal is None else ("refused", refusal)


def _span(call: ToolCall, context: ToolContext) -> AbstractContextManager[object]:
    """A span for a call that came over no wire; a served call is within the span of its request."""
    otel: Any = sys.modules.get(_OTEL)
    if context.protocol_version is not None or otel is None or otel._TRACER_PROVIDER is None:
        return nullcontext()
    return otel.get_tracer("mcp_toolset").start_as_current_span(f"execute_tool {call.name}")


def _trace(report: CallReport) -> None:
    """Name the tool, its server and the outcome on the span at hand, by OpenTelemetry's conventions."""
    otel: Any = sys.modules.get(_OTEL)
    if otel is None or otel._TRACER_PROVIDER is None:
        return
    span = otel.get_current_span()
    if not span.is_recording():
        return
    attributes = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": report.tool or report.called,
        "gen_ai.tool.call.id": report.id,
        "mcp_toolset.called": report.called,
        "mcp_toolset.server": report.server,
        "mcp_toolset.outcome": report.outcome,
        "mcp_toolset.reason": report.reason,
        "mcp_toolset.decisions": ",".join(report.decisions),
    }
    span.set_attributes({key: value for key, value in attributes.items() if value})
    if report.protocol_version is None and report.tool not in ("", report.called):
        span.update_name(f"execute_tool {report.tool}")
