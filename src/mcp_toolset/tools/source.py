"""`ToolSource`: a mounted server, or another source of tools; and providers of prompts and resources."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeVar, runtime_checkable

import anyio
import anyio.abc

from mcp_toolset._records import dataclass
from mcp_toolset.errors import ToolNotReadyError, UnknownToolError
from mcp_toolset.tools.call import ToolContext
from mcp_toolset.tools.definition import ToolDefinition

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
        stops: The number of stops because no call used it.
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
