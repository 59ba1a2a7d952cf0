"""`CallObserver`: what receives the report of each call, and the observers of a server told apart once."""

from __future__ import annotations

import inspect
import logging
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from time import perf_counter
from typing import Any, Final, Literal, NamedTuple, Protocol, cast, runtime_checkable

from mcp_toolset._records import dataclass
from mcp_toolset.calls.pipeline.call_report import CallReport
from mcp_toolset.calls.pipeline.decision import Decision
from mcp_toolset.errors import DefinitionError
from mcp_toolset.tools.binding.binding import ToolBinding
from mcp_toolset.tools.core.call import ToolContext
from mcp_toolset.tools.core.identity import Identity
from mcp_toolset.tools.core.result import ToolResult
from mcp_toolset.tools.declare.tool import Tool


class Observation:
    """What is known about one call while it runs.

    Attributes:
        binding: The tool, once it was looked up.
        fault: The error that became an error result.
        ran: Whether the tool was run.
        decisions: What hooks decided.
        arguments: The digest of the arguments.
        rule: The rule of a policy that decided.
        repairs: What was repaired in the arguments.
        began: When it began, on a monotonic clock.
        times: Whether the requests that it sends are timed.
        usage: Tokens by kind that the program's own model took.
        sent: Those to mounted servers: method, tool, server and class of the error of each, and its seconds.
    """

    __slots__ = (
        *("arguments", "began", "binding", "decisions", "fault", "ran", "repairs", "rule", "sent", "times"),
        "usage",
    )

    def __init__(self, binding: ToolBinding | None = None, arguments: str = "") -> None:
        self.binding = binding
        self.fault: BaseException | None = None
        self.ran = False
        self.decisions: tuple[str, ...] = ()
        self.arguments = arguments
        self.rule = ""
        self.repairs: tuple[str, ...] = ()
        self.usage: tuple[tuple[str, int], ...] = ()
        self.times = False
        self.sent: tuple[tuple[tuple[str, str, str, str], float], ...] = ()
        self.began = perf_counter()


CURRENT: Final[ContextVar[Observation | None]] = ContextVar("mcp_toolset_observation", default=None)
"""The observation of the current call."""


def note_decision(decision: Decision) -> None:
    """Add a hook's decision to the observation of the current call, if it is observed."""
    seen = CURRENT.get()
    if seen is not None:
        seen.decisions = (*seen.decisions, type(decision).__name__)


def note_rule(rule: str) -> None:
    """Note the rule of a policy that decided about the current call, if it is observed."""
    seen = CURRENT.get()
    if seen is not None:
        seen.rule = rule


def note_usage(usage: Mapping[str, int]) -> None:
    """Add tokens that a model of the program took to the observation of the current call."""
    seen = CURRENT.get()
    if seen is not None:
        sums = Counter(dict(seen.usage))
        sums.update(usage)
        seen.usage = tuple(sorted(sums.items()))


def note_fault(fault: Exception) -> None:
    """Note the reason of a refusal, where the text for the caller contains arguments."""
    note_in(CURRENT.get(), fault)


def note_in(seen: Observation | None, fault: BaseException) -> None:
    """Note the exception that became an error result, if the call is observed."""
    if seen is not None:
        seen.fault = fault


@contextmanager
def noting(seen: Observation) -> Generator[None]:
    """Make notes in a block apply to this call."""
    token = CURRENT.set(seen)
    try:
        yield
    finally:
        CURRENT.reset(token)


Common = tuple[str, str, str, str | None, str | None, str | None, str, int]
"""What a call has in common with others: called, tool, server, principal, protocol, session, client, caller.

The last is Python's `id` of the identity, which takes longer to compare: who keeps it must keep the identity.
"""


class CallFacts(NamedTuple):
    """What is known of a call that has ended; the fields of `CallReport`, in its order."""

    called: str
    tool: str
    server: str
    outcome: Literal["result", "refused", "error", "cancelled", "asked"]
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
    identity: Identity | None
    arguments: str
    rule: str
    trace: str
    repairs: tuple[str, ...]
    usage: tuple[tuple[str, int], ...] = ()


def common_of(call: CallFacts) -> Common:
    return (
        call.called,
        call.tool,
        call.server,
        call.principal,
        call.protocol_version,
        call.session,
        call.client,
        id(call.identity),
    )


_log: Final = logging.getLogger("mcp_toolset.calls")


class CallObserver(Protocol):
    """A callable that gets the report of each call; it must return quickly."""

    def __call__(self, report: CallReport, /) -> object:
        """Receive the report of a call. An error that it raises is logged, and changes nothing."""
        ...


@runtime_checkable
class DigestingObserver(CallObserver, Protocol):
    """An observer that makes the digests of arguments and can do without reports, such as an `AuditLog`."""

    def digest(self, arguments: Mapping[str, Any]) -> str: ...

    def note(self, facts: CallFacts, /) -> object:
        """Receive what the report of a call would say; a report costs a call more."""
        ...

    def note_plain(self, common: Common, arguments: str, outcome: str, ran: bool, duration: float, /) -> bool:
        """Receive what is to be said of a plain call, without raising; `False` if `note` must have it."""
        ...


class Sampler(Protocol):
    """Chooses the requests that are traced.

    Attributes:
        tracer: Makes their spans; `None` while no collector takes any.
        due: Whether a request without a trace of its client may be chosen.
        active: The requests that are traced now.
    """

    tracer: Any
    due: bool
    active: int

    def sampled(self, meta: Mapping[str, Any] | None) -> bool:
        """Whether the request with this `_meta` is traced."""
        ...


@runtime_checkable
class CountingObserver(CallObserver, Protocol):
    """An observer that needs no report of a call that has run, as it sums calls."""

    def count_call(self, seen: Observation, context: ToolContext, result: ToolResult | None, /) -> object:
        """Count a call, without raising."""
        ...


@runtime_checkable
class TimingObserver(CountingObserver, Protocol):
    """An observer that sums the requests that calls send, and may have requests traced.

    Attributes:
        traces: Chooses the requests and calls that are traced; `None` for none.
    """

    traces: Sampler | None


Digest = Callable[[Mapping[str, Any]], str]


def check_observers(observers: object) -> tuple[CallObserver, ...]:
    """The observers, checked.

    Raises:
        DefinitionError: it is not a list, or an observer cannot be called with a report, or is asynchronous.
    """
    if isinstance(observers, str | Mapping) or not isinstance(observers, Iterable):
        raise DefinitionError(f"observers is a list of functions of a CallReport, not {observers!r}")
    found = tuple(cast("Iterable[CallObserver]", observers))
    for one in found:
        call: Any = getattr(one, "__call__", None)  # noqa: B004
        if not callable(one) or isinstance(one, type | Tool):
            raise DefinitionError(f"an observer is a function of a CallReport, not {one!r}")
        if inspect.iscoroutinefunction(one) or inspect.iscoroutinefunction(call):
            raise DefinitionError(
                f"an observer is called, not awaited: make {one!r} a plain function that puts the report "
                "into a queue"
            )
    return found


def digest_of(observers: Iterable[CallObserver]) -> Digest | None:
    """What makes the digests of arguments; `None` if no observer does."""
    return next((one.digest for one in observers if isinstance(one, DigestingObserver)), None)


def sampler_of(observers: Iterable[CallObserver]) -> Sampler | None:
    """What chooses the requests that are traced; `None` if no observer does."""
    timing = [one for one in observers if isinstance(one, TimingObserver)]
    return next((one.traces for one in timing if one.traces is not None), None)


@dataclass(frozen=True, slots=True)
class Listeners:
    """The observers of calls, told apart once.

    Attributes:
        observers: They get reports.
        logs: They get facts.
        counters: They sum calls.
        digest: What makes the digests of arguments; `None` if no observer does.
        times: Whether the requests that calls send are timed.
        traces: Chooses the calls without a client that are traced; `None` for none.
    """

    observers: tuple[CallObserver, ...]
    logs: tuple[DigestingObserver, ...]
    counters: tuple[CountingObserver, ...]
    digest: Digest | None
    times: bool = False
    traces: Sampler | None = None

    @classmethod
    def of(cls, observers: Iterable[CallObserver]) -> Listeners | None:
        """The listeners among observers; `None` if there are none."""
        every = tuple(observers)
        logs = tuple(one for one in every if isinstance(one, DigestingObserver))
        counters = tuple(one for one in every if isinstance(one, CountingObserver))
        others = tuple(one for one in every if not isinstance(one, DigestingObserver | CountingObserver))
        if not every:
            return None
        times = any(isinstance(one, TimingObserver) for one in every)
        return cls(others, logs, counters, digest_of(logs), times, sampler_of(every))


def tell(observers: Iterable[Callable[[Any], object]], report: CallReport | CallFacts) -> None:
    """Send the report to every observer; an error of an observer is logged."""
    for observer in observers:
        try:
            observer(report)
        # An observer is the application's code and may raise anything; the call is not its to end.
        except Exception:
            _log.exception("the observer %r raised", observer)
