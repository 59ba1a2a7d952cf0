"""`CallObserver`: what receives the report of each call, and the observers of a server told apart once."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Protocol, cast, runtime_checkable

from mcp_toolset._records import dataclass
from mcp_toolset.calls.pipeline.call_facts import CallFacts, Common
from mcp_toolset.calls.pipeline.call_report import CallReport
from mcp_toolset.calls.pipeline.observation import Observation
from mcp_toolset.errors import DefinitionError
from mcp_toolset.tools.core.call import ToolContext
from mcp_toolset.tools.core.result import ToolResult
from mcp_toolset.tools.declare.tool import Tool

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
