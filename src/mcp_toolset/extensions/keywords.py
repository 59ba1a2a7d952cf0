"""`Keywords`: the keywords of `ToolsetServer` and `serve` that are extensions of this package."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypedDict

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from os import PathLike

    from mcp_toolset.extensions.approvals.extension import Approvals, WaitingCalls
    from mcp_toolset.extensions.audit.extension import Audit, AuditLog
    from mcp_toolset.extensions.code.extension import CodeMode
    from mcp_toolset.extensions.journal.extension import Journal
    from mcp_toolset.extensions.journal.guard import JournalGuard
    from mcp_toolset.extensions.large_results.extension import LargeResults
    from mcp_toolset.extensions.learning.extension import SearchLearning
    from mcp_toolset.extensions.limits.extension import LimitedCalls
    from mcp_toolset.extensions.limits.limits import Limits
    from mcp_toolset.extensions.pass_extensions.extension import PassExtensions
    from mcp_toolset.extensions.processes.extension import Processes
    from mcp_toolset.extensions.profiles.extension import Profiles
    from mcp_toolset.extensions.registries.extension import RegistryAddress
    from mcp_toolset.extensions.sampler import Sampler
    from mcp_toolset.extensions.server_card.extension import ServerCard
    from mcp_toolset.extensions.skills.extension import Skills
    from mcp_toolset.extensions.statistics.extension import Statistics
    from mcp_toolset.extensions.surface.extension import ClientSurface
    from mcp_toolset.extensions.suspended.extension import Suspension
    from mcp_toolset.extensions.task_handles.extension import TaskHandles
    from mcp_toolset.extensions.tasks import TaskCalls
    from mcp_toolset.extensions.telemetry.extension import Observability, Telemetry
    from mcp_toolset.stores.store import StorePlace
    from mcp_toolset.tools.services import ModelSampler

    StrPath = str | PathLike[str]


class Keywords(TypedDict, total=False):
    """An extension by its key: `True` or a value turns it on, `False` off; with `None` the file decides.

    The class of each extension documents the values of its keyword.
    """

    approvals: WaitingCalls | Approvals | str | PathLike[str] | Literal[False] | None
    audit: Audit | AuditLog | str | PathLike[str] | bool | None
    code: CodeMode | bool | None
    task_after: TaskHandles | float | None
    journal: Journal | JournalGuard | StorePlace | bool | None
    large_results: LargeResults | int | bool | None
    learning: SearchLearning | str | PathLike[str] | bool | None
    limits: LimitedCalls | Mapping[str, Limits] | Literal[False] | None
    pass_extensions: PassExtensions | Sequence[str] | bool | None
    processes: Processes | StorePlace | bool | None
    registry_url: RegistryAddress | str | Literal[False] | None
    profiles: Profiles | Mapping[str, Any] | str | Literal[False] | None
    sampler: Sampler | ModelSampler | Literal[False] | None
    server_card: ServerCard | Mapping[str, str] | str | bool | None
    skills: Skills | StrPath | Sequence[StrPath] | bool | None
    stats: Statistics | str | PathLike[str] | bool | None
    surface: ClientSurface | Literal["list", "search", "auto"] | bool | None
    suspended: Suspension | StorePlace | bool | None
    tasks: TaskCalls | bool | None
    telemetry: Observability | Telemetry | str | bool | None


class MountKeywords(TypedDict, total=False):
    """The keywords of `RemoteToolset` that are extensions; see docs/limits.md.

    Attributes:
        retries: The number of repeats of a failed call, from 0 to 10, for tools that are annotated as
            read-only or idempotent.
        breaker: The circuit breaker: the consecutive failures after which the server is not called, and for
            how many seconds.
        forward: Headers to send with each caller's requests, by name, each with the source of its value:
            `identity.name` or another fact of the caller, or `header.NAME`; see docs/upstream-login.md.
        forward_authorization: True to send each caller's own `Authorization` header on to this server; by
            default it is never sent. For streamable HTTP only.
        single: True if a single replica may have the server at a time, if replicas share a state; the
            other replicas call the server through it. All callers then share its session. See
            docs/replicas.md.
        sampler: A model of the program, for which this server may ask in calls of clients that lend none;
            its tokens are those of the call. See docs/offers.md.
    """

    forward: Mapping[str, str] | None
    forward_authorization: bool
    single: bool
    sampler: ModelSampler | None
    retries: int
    breaker: tuple[int, float] | None


class DeferredKeywords(TypedDict, total=False):
    """The extensions that `Toolset.deferred` turns on, by their keys."""

    code: bool
