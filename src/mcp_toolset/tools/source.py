"""`ToolSource`: a mounted server, or another source of tools; and providers of prompts and resources.

`open_sources` starts the sources of a toolset concurrently, and `OpeningReport` shows which are slow.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import field
from functools import lru_cache, partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeVar, runtime_checkable

import anyio
import anyio.abc
import anyio.lowlevel

from mcp_toolset._records import dataclass
from mcp_toolset.errors import ToolNotReadyError, UnknownToolError, sole
from mcp_toolset.tools.call import ToolContext
from mcp_toolset.tools.definition import ToolDefinition
from mcp_toolset.tools.hidden_text import visible

if TYPE_CHECKING:
    from typing_extensions import TypeIs


@dataclass(frozen=True, slots=True)
class ToolChange:
    """One tool that differs from its pin."""

    name: str  # The tool's original name at its source.
    # True if it is quarantined until a person accepts it; false if the new definition is served.
    held: bool
    # The definition that was accepted, safe to show; `None` for a tool that is new.
    pinned: ToolDefinition | None = field(repr=False)
    # The present definition, without the mount's secrets; hostile until accepted.
    offered: ToolDefinition = field(repr=False)
    gained: tuple[str, ...] = ()  # Powers that the new definition has and the old one has not.
    # Where the two definitions differ, such as `inputSchema.properties.path`.
    differences: tuple[str, ...] = ()
    reason: str = ""  # The change in one line, for people and models; without a text of the server.

    @property
    def is_new(self) -> bool:
        return self.pinned is None


SourceState = Literal["closed", "starting", "ready", "stopped", "offline", "misconfigured"]

STARTING: Final[tuple[SourceState, ...]] = ("closed", "starting")
"""A source in these states has neither listed its tools nor failed."""


@dataclass(frozen=True, slots=True)
class SourceStatus:
    """The status of a source, also while the source is down.

    Attributes:
        state: `ready` if calls succeed; `stopped` if the next call starts it; `offline` if calls fail at
            once, with the reason; `misconfigured` if its configuration cannot be used and must be corrected.
        reason: Why it is not ready, for people and models; never a secret.
        retry_in: Seconds until the next attempt, if one is planned.
        tools: The number of its present tools.
        set_aside: Tools that cannot be used, or are quarantined, each with the reason.
        changes: Tools that differ from their pins, quarantined or not.
        flagged: Tools with hidden text, and what was found.
        remembered: True if its tools are from its last list, before it was stopped or in the last run.
        stops: How often it was stopped because no call used it.
        about: The source's own description, in one line.
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
    stops: int = 0

    @property
    def is_up(self) -> bool:
        """True if calls reach it: it is ready, or is stopped and a call starts it."""
        return self.state in ("ready", "stopped")

    @property
    def is_starting(self) -> bool:
        """True if it has neither listed its tools nor failed."""
        return self.state in STARTING


@dataclass(frozen=True, slots=True)
class Provenance:
    """The server and definition behind a mounted tool at this moment; a grant is valid for these only."""

    endpoint: str  # A digest of the server's address and of the name that it gives itself.
    digest: str  # The digest of the definition in the server's last list; empty if the list has it no more.


@runtime_checkable
class ToolSource(Protocol):
    """A source that a toolset opens and closes."""

    @property
    def source_name(self) -> str: ...

    @property
    def status(self) -> SourceStatus: ...

    def on_change(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` when its tools or its status have changed; return a function that stops this."""
        ...

    async def run(self, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Run until cancelled; started once the first attempt has ended. Failures are in `status`."""


STDERR_LOGGER: Final = "mcp_toolset.stderr"
"""The logger of the stderr of servers' processes; `.NAME` follows, the name of the server."""

PRINTED_LOGGER: Final = "mcp_toolset.printed"  # The logger of lines on stdout that are no messages.


@runtime_checkable
class Scrubbing(Protocol):
    """A source that knows its secrets."""

    def scrubbed(self, text: str) -> str:
        """`text` without the secrets."""
        ...


def not_ready(fault: UnknownToolError, sources: Iterable[ToolSource]) -> UnknownToolError:
    """The error for an unknown tool, with each source that is not ready and may have the tool."""
    away = [state for source in sources if (state := state_of(source.source_name, source.status))]
    if not away:
        return fault
    return ToolNotReadyError(
        fault.name, "; ".join(away), str(fault).removeprefix(f"Unknown tool: {fault.name}")
    )


def state_of(name: str, status: SourceStatus) -> str:
    """Why a source cannot be called, in one line; empty if it is ready."""
    if status.is_up:
        return ""
    reason = f": {status.reason}" if status.reason else ""
    if status.state == "starting":
        return f"server `{name}` is still starting{reason}"
    if status.state == "closed":
        return f"server `{name}` is closed; open its toolset with `async with`"
    again = f"; next attempt within {status.retry_in:g} s" if status.retry_in else ""
    return f"server `{name}` is {status.state}{reason}{again}"


_P = TypeVar("_P")


def fits(one: object, protocol: type[_P]) -> TypeIs[_P]:
    """True if an object has the members of a runtime protocol; `isinstance` alone would take 10 µs."""
    return _class_fits(type(one), protocol) or isinstance(one, protocol)


@lru_cache(maxsize=1024)
def _class_fits(kind: type, protocol: type) -> bool:
    """True if a class itself has the members, so that all its objects have them."""
    return isinstance(kind, protocol)


if TYPE_CHECKING:
    from mcp_types import (
        BlobResourceContents,
        Completion,
        GetPromptResult,
        Prompt,
        PromptMessage,
        PromptReference,
        Resource,
        ResourceTemplate,
        ResourceTemplateReference,
        TextResourceContents,
    )

    Reference = PromptReference | ResourceTemplateReference
    """The prompt or the resource template that has an argument."""
    Written = str | PromptMessage | Sequence[PromptMessage | str] | GetPromptResult
    """Results of a prompt function; a text becomes one message of the user."""
else:

    def __getattr__(name: str) -> Any:
        if name == "Reference":
            from mcp_types import PromptReference, ResourceTemplateReference

            return PromptReference | ResourceTemplateReference
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


_Function = TypeVar("_Function", bound=Callable[..., Any])


@runtime_checkable
class PromptProvider(Protocol):
    """Lists and fills in the prompts of a server; `Prompts` does so with functions."""

    async def list_prompts(self) -> Sequence[Prompt | Mapping[str, Any]]:
        """The prompts to list, in a stable order."""
        ...

    async def get_prompt(
        self, name: str, arguments: Mapping[str, str], context: ToolContext
    ) -> GetPromptResult | Mapping[str, Any]:
        """A prompt with its arguments filled in; `context` asks the user or samples, as in a tool.

        Raises:
            LookupError: the prompt does not exist.
            InvalidArgumentsError: an argument is missing or unknown; the message goes to the client.
        """
        ...

    def on_change(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` whenever the list has changed; return a function that stops this."""
        ...


class CompletionProvider(Protocol):
    """Proposes values while an argument is being typed; any async callable of this form is one."""

    def __call__(
        self, reference: Reference, argument: str, value: str, others: Mapping[str, str]
    ) -> Awaitable[Completion | Mapping[str, Any] | Sequence[str]]:
        """At most 100 values that start with `value`; `others` are arguments that are filled in already."""
        ...


@runtime_checkable
class ResourceProvider(Protocol):
    """Readable resources of a server (specification, server/resources).

    Entries and contents are models of `mcp_types`, or wire dictionaries.
    """

    async def list_resources(self) -> Sequence[Resource | Mapping[str, Any]]:
        """The resources to list, in a stable order."""
        ...

    async def list_resource_templates(self) -> Sequence[ResourceTemplate | Mapping[str, Any]]:
        """URI templates, for resources that are too many to list."""
        ...

    async def read_resource(
        self, uri: str
    ) -> Sequence[TextResourceContents | BlobResourceContents | Mapping[str, Any]]:
        """The contents at `uri`; a `LookupError` is told to the client."""
        ...

    def on_change(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` whenever the list has changed; return a function that stops this."""
        ...


@runtime_checkable
class UpdatingResources(ResourceProvider, Protocol):
    """Resources that report changes of their contents, so that clients can subscribe to them."""

    def on_update(self, callback: Callable[[str], None]) -> Callable[[], None]:
        """Call `callback` with the URI of each changed resource; return a function that stops this."""
        ...


QUIET: Final = 1.0  # Seconds before the first line of the report; most servers are ready earlier.


class OpeningReport:
    """Reports on a terminal, after `QUIET` seconds, which servers are waited for, and each outcome."""

    def __init__(self, sources: Sequence[ToolSource]) -> None:
        self._all = len(sources)
        self._waiting = list(sources)
        self._speaks = False
        self._done = anyio.Event()
        if not sources:
            self._done.set()

    async def run(self) -> None:
        """Begin to report if not all servers are ready in `QUIET` seconds."""
        with anyio.move_on_after(QUIET):
            await self._done.wait()
            return
        self._speaks = sys.stderr.isatty()
        self._say(f"waiting for {self._names()} {self._count()} …")

    def settled(self, source: ToolSource) -> None:
        """Note that a server is ready or has failed."""
        if source not in self._waiting:
            return
        self._waiting.remove(source)
        status = source.status
        outcome = f"{status.tools} tools" if status.is_up else status.reason
        self._say(f"{source.source_name}: {status.state} ({outcome}) {self._count()}")
        if not self._waiting:
            self._done.set()

    def ended(self) -> None:
        """Note that nothing is waited for any more."""
        if self._waiting:
            self._say(f"going on without {self._names()}: still starting")

    def _names(self) -> str:
        return ", ".join(source.source_name for source in self._waiting)

    def _count(self) -> str:
        return f"({self._all - len(self._waiting)} of {self._all} servers settled)"

    def _say(self, line: str) -> None:
        if self._speaks:
            sys.stderr.write(f"mcp-toolset: {visible(line)}\n")
            sys.stderr.flush()


TIMEOUT: Final = 3.0  # Seconds to wait for the other servers, once a tool can be used.

MOMENT: Final = 1.0  # Seconds to wait for servers of this process, if no other server is waited for.


@dataclass(frozen=True, slots=True)
class OpeningWait:
    """How long opening waits for the first attempts of the sources."""

    # Seconds; `None`: the `start_timeout` of each source; 0: wait for servers of this process only.
    timeout: float | None = None
    # Seconds to wait for the other sources once a tool can be used; `None`: wait for all.
    rest_timeout: float | None = None
    tells: bool = False  # Whether a terminal shows which sources are waited for.


class _Settled(anyio.abc.TaskStatus[None]):
    """Notes that a source's first attempt has succeeded or failed."""

    def __init__(self) -> None:
        self.event = anyio.Event()

    def started(self, value: Any = None) -> None:
        self.event.set()


async def open_sources(
    group: anyio.abc.TaskGroup, sources: Sequence[ToolSource], waiting: OpeningWait, *, has_local_tools: bool
) -> None:
    """Start all sources in a task group, and wait for their first attempts as `waiting` says."""
    opened = [(source, _Settled()) for source in sources]
    for source, status in opened:
        group.start_soon(partial(source.run, task_status=status))
    # After this checkpoint, the status of each source says that its first attempt has begun.
    await anyio.lowlevel.checkpoint()
    if waiting.timeout == 0:
        opened = [(source, status) for source, status in opened if getattr(source, "at_hand", False)]
    if not opened:
        return
    report = OpeningReport(sources if waiting.tells else ())
    with anyio.CancelScope() as scope:
        if waiting.timeout is not None:
            scope.deadline = anyio.current_time() + (waiting.timeout or MOMENT)
        if has_local_tools:
            _shorten(scope, waiting.rest_timeout)
        async with anyio.create_task_group() as watch:
            for source, status in opened:
                watch.start_soon(_watch, source, status, scope, waiting.rest_timeout, report)
            watch.start_soon(report.run)
    report.ended()


async def _watch(
    source: ToolSource,
    status: _Settled,
    scope: anyio.CancelScope,
    rest_timeout: float | None,
    report: OpeningReport,
) -> None:
    """Wait for the first attempt of a source; if it succeeds, shorten the wait for the others."""
    await status.event.wait()
    report.settled(source)
    if source.status.is_up:
        _shorten(scope, rest_timeout)


def _shorten(scope: anyio.CancelScope, rest_timeout: float | None) -> None:
    if rest_timeout is not None:
        scope.deadline = min(scope.deadline, anyio.current_time() + rest_timeout)


async def settled(sources: Sequence[ToolSource]) -> None:
    """Wait until no source is starting."""
    for source in sources:
        changed = anyio.Event()
        stop = source.on_change(changed.set)
        try:
            while source.status.state == "starting":
                await changed.wait()
                stop()
                changed = anyio.Event()
                stop = source.on_change(changed.set)
        finally:
            stop()


async def unwind(
    stack: AsyncExitStack,
    kind: type[BaseException] | None,
    fault: BaseException | None,
    trace: TracebackType | None,
) -> None:
    """Close what a stack holds; an error of the block is raised itself, not in a group of one."""
    try:
        await stack.__aexit__(kind, fault, trace)
    except BaseExceptionGroup as group:
        if sole(group) is not fault:
            raise
