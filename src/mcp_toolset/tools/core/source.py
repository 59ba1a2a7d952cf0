"""`ToolSource`: something with a life of its own that tools come from, such as a mounted server."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

import anyio
import anyio.abc

from mcp_toolset.errors import ToolNotReadyError, UnknownToolError
from mcp_toolset.tools.core.change import ToolChange

SourceState = Literal["closed", "starting", "ready", "offline", "misconfigured"]


@dataclass(frozen=True, slots=True)
class SourceStatus:
    """How a source is doing; a source that is down is a status, not an absence.

    Attributes:
        state: `ready` when calls go through; `offline` when they fail at once, with the reason;
            `misconfigured` when its configuration cannot be used, which only its author can mend.
        reason: Why it is not ready, for people and models; never a secret.
        retry_in: Seconds until the next attempt, where one is planned.
        tools: How many tools it contributes now.
        set_aside: Tools that could not be used, or are held back, with the reason for each.
        changes: Tools that are not what they were when they were pinned, held or not.
        flagged: Tools in whose texts something was hidden, and what.
        remembered: Whether its tools are those of the last run, because it has not listed in this one.
        about: What it says about itself, in one line.
    """

    state: SourceState = "closed"
    reason: str = ""
    retry_in: float | None = None
    tools: int = 0
    set_aside: tuple[tuple[str, str], ...] = ()
    changes: tuple[ToolChange, ...] = ()
    flagged: tuple[tuple[str, str], ...] = ()
    remembered: bool = False
    about: str = ""


@dataclass(frozen=True, slots=True)
class Provenance:
    """What stands behind a mounted tool at this moment; a grant holds for this alone.

    Attributes:
        endpoint: Which server it is: a digest of its address and of the name that it gives itself.
        digest: The digest of the definition as the server listed it last; empty when it lists it no more.
    """

    endpoint: str
    digest: str


@runtime_checkable
class ToolSource(Protocol):
    """What a toolset opens and closes."""

    @property
    def source_name(self) -> str:
        """The name it is mounted under."""
        ...

    @property
    def status(self) -> SourceStatus:
        """How it is doing."""
        ...

    def on_change(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` when its tools or its status have changed; returns a function that ends this."""
        ...

    async def run(self, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Live until cancelled. Reports started once the first attempt has succeeded or failed.

        Never raises because of the outside world: that is what `status` is for.
        """
        ...


@runtime_checkable
class AtHand(Protocol):
    """A source that may be part of this process, so that opening it takes a moment only."""

    @property
    def at_hand(self) -> bool:
        """Whether it is."""
        ...


def not_ready(fault: UnknownToolError, sources: Iterable[ToolSource]) -> UnknownToolError:
    """The error for an unknown tool: with each source that is not ready, which may be the one that has it."""
    away = [state for source in sources if (state := state_of(source.source_name, source.status))]
    if not away:
        return fault
    return ToolNotReadyError(
        fault.name, "; ".join(away), str(fault).removeprefix(f"Unknown tool: {fault.name}")
    )


def state_of(name: str, status: SourceStatus) -> str:
    """What keeps a source from being called, in one line; empty when it is ready."""
    if status.state == "ready":
        return ""
    reason = f": {status.reason}" if status.reason else ""
    if status.state == "starting":
        return f"server `{name}` is still starting{reason}"
    if status.state == "closed":
        return f"server `{name}` is closed; open its toolset with `async with`"
    again = f"; next attempt within {status.retry_in:g} s" if status.retry_in else ""
    return f"server `{name}` is {status.state}{reason}{again}"
