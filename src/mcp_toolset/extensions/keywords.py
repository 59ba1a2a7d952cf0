"""`Keywords`: the keywords of `ToolsetServer` and `serve` that are extensions of this package."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypedDict

if TYPE_CHECKING:
    from os import PathLike

    from mcp_toolset.extensions.audit.audit_log import AuditLog
    from mcp_toolset.extensions.audit.extension import Audit
    from mcp_toolset.extensions.code.extension import CodeMode
    from mcp_toolset.extensions.journal.extension import Journal, Journaled
    from mcp_toolset.extensions.large_results.extension import LargeResults
    from mcp_toolset.extensions.learning.extension import SearchLearning
    from mcp_toolset.extensions.processes.extension import Processes
    from mcp_toolset.extensions.sampler.extension import Sampler
    from mcp_toolset.extensions.statistics.extension import Statistics
    from mcp_toolset.extensions.telemetry.extension import Observability
    from mcp_toolset.extensions.telemetry.options import Telemetry
    from mcp_toolset.tools.core.sampling import ModelSampler


class Keywords(TypedDict, total=False):
    """An extension by its key: `True` or its value turns it on, `False` off; `None` is the configuration's.

    The class of each extension says what its keyword takes.
    """

    audit: Audit | AuditLog | str | PathLike[str] | bool | None
    code: CodeMode | bool | None
    journal: Journal | Journaled | bool | None
    large_results: LargeResults | int | bool | None
    learning: SearchLearning | str | PathLike[str] | bool | None
    processes: Processes | str | PathLike[str] | bool | None
    sampler: Sampler | ModelSampler | Literal[False] | None
    stats: Statistics | str | PathLike[str] | bool | None
    telemetry: Observability | Telemetry | str | bool | None


class DeferredKeywords(TypedDict, total=False):
    """The extensions that `Toolset.deferred` turns on, by their keys."""

    code: bool
