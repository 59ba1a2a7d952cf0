"""`ServerOptions`: what a server was told when it was made, so that another can be made like it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal

from mcp_toolset.calls.events import EventLog
from mcp_toolset.calls.pipeline.rules import Rules
from mcp_toolset.catalog.grants.access import Access
from mcp_toolset.catalog.grants.ledger import GrantLedger
from mcp_toolset.protocol.cache_hints import CacheHint
from mcp_toolset.server.kept_catalogs import Keeping
from mcp_toolset.tools.declare.prompts import CompletionProvider, PromptProvider, ResourceProvider

if TYPE_CHECKING:
    from mcp_toolset.catalog.registry.state_store import StateStore
    from mcp_toolset.catalog.search.index import Scorer


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """The arguments of a `ToolsetServer` beside its toolset, which says what each means.

    `rules` holds hooks, middleware and descriptions together; `capabilities` are checked.
    """

    name: str
    version: str
    instructions: str | None
    rules: Rules
    resources: ResourceProvider | None
    prompts: PromptProvider | None
    completions: CompletionProvider | None
    capabilities: frozenset[str]
    events: EventLog
    manual_timeout: float
    grants: GrantLedger
    access: Access | None
    client_prefix: str
    state: str | PathLike[str] | StateStore | None
    scorer: Scorer | Literal["built-in"] | None
    list_hint: CacheHint
    list_patience: float | None
    keep: Keeping
    instructions_budget: int

    def arguments(self) -> Mapping[str, Any]:
        """The options as keyword arguments of a `ToolsetServer`."""
        return {field.name: getattr(self, field.name) for field in fields(self)}
