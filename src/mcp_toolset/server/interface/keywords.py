"""`ServerKeywords`: what a `ToolsetServer` takes by keyword beside its parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypedDict

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

    from mcp_toolset.calls.background import EventLog
    from mcp_toolset.calls.middleware import ToolMiddleware
    from mcp_toolset.catalog.grants.access import Access
    from mcp_toolset.catalog.grants.ledger import GrantLedger
    from mcp_toolset.catalog.search.index import Scorer
    from mcp_toolset.context.shared import Shared
    from mcp_toolset.extensions.keywords import Keywords
    from mcp_toolset.protocol.eras import CacheHint
    from mcp_toolset.security.authenticator import Auth
    from mcp_toolset.server.interface.monitor import Ready
    from mcp_toolset.server.mounts import Keeping
    from mcp_toolset.stores.places import StorePlace
    from mcp_toolset.tools.call import Sessions
    from mcp_toolset.tools.source import CompletionProvider, PromptProvider, ResourceProvider


class OwnKeywords(TypedDict, total=False):
    """What few servers say of themselves.

    Attributes:
        events: Where tools note events; a log in memory unless given.
        manual_timeout: Seconds that a manual call waits for the application, unless the tool says
            otherwise.
        grants: Issues and checks the grants of deferred tools, or where they are kept: the path of a file, a
            URL, or a `Store`; by default in memory, with the default lifetimes.
        access: A function that says who may use which deferred tool, at each search, resolve and call.
        client_prefix: What clients put before every name, such as `mcp__tools__`; with it, names
            stay within 64 characters.
        state: Where names and membership are kept from one run to the next: the path of a file, the URL
            of a store, or a `Store`.
        scorer: The second ranking beside the words in the search of deferred tools, as for `SearchIndex`;
            for a sentence model give an `EmbeddingScorer` that no other server uses.
        list_hint: How long, and for whom, clients of 2026-07-28 may keep this server's own entries of
            lists. Mounted servers send their own hints, and the strictest hint of a list counts.
        list_patience: Seconds from the opening on in which lists and searches wait for mounted servers
            of which nothing is known; 5 unless given here or in the configuration that is served.
        keep: The folder that keeps what mounted servers list, and the index of the search, from one run
            to the next; `False` keeps nothing. Unless given: `MCP_TOOLSET_CACHE`, else beside `state`,
            else the user's cache.
        instructions_budget: Tokens that the instructions of mounted servers take at most; 0 leaves
            them out.
        sessions: Returns another session for a tool with the capability `sessions`, from its id and the
            context of the call; `None` if the tool may not read that session.
        shared: What the replicas of this server share, such as `SharedState("redis://…")`: grants, names
            and members, limits, sessions and questions, unless these are given. See docs/replicas.md.
        ready: What must work for `/ready` to say so; the configuration's unless given, otherwise a server
            that listens is ready. See docs/starting.md.
    """

    events: EventLog | None
    manual_timeout: float
    grants: GrantLedger | StorePlace | None
    access: Access | None
    client_prefix: str
    state: StorePlace | None
    scorer: Scorer | Literal["built-in"] | None
    list_hint: CacheHint
    list_patience: float | None
    keep: Keeping
    instructions_budget: int
    sessions: Sessions | None
    shared: Shared | None
    ready: Ready | None


OWN: Final = frozenset(OwnKeywords.__annotations__)
"""Their names; the other keywords are keys of extensions."""

if TYPE_CHECKING:

    class ServerKeywords(OwnKeywords, Keywords, total=False):
        """What few servers say, and the extensions of this package by their keys."""

    class ServeKeywords(ServerKeywords, total=False):
        """The parameters of `ToolsetServer` that `serve` passes on, and its keywords."""

        version: str
        middleware: Sequence[ToolMiddleware]
        resources: ResourceProvider | None
        prompts: PromptProvider | None
        completions: CompletionProvider | None
        capabilities: Iterable[str]
        auth: Auth | None
        extensions: Sequence[Any]
