"""`Observation`: what is known about one call while it runs, and how parts of the call add to it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from time import perf_counter
from typing import Final

from mcp_toolset.calls.pipeline.decision import Decision
from mcp_toolset.tools.binding.binding import ToolBinding


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
