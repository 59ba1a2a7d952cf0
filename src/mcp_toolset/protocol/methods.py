"""Which methods a revision of the protocol has, and what is known of each: `REQUESTS`, a table of `Method`.

`ServerMachine` refuses by it what a revision does not have, and parameters that are malformed. A method that
no revision has, such as `vendor/method`, is not in the table: it passes unread to its handler.

    REQUESTS["2026-07-28"]["tools/call"].params.fault({"name": 5})    # "name must be a string"
    "server/discover" in REQUESTS["2025-11-25"]                       # False
    NAME_PARAMETERS["resources/read"]                                 # "uri": the header Mcp-Name repeats it

A new revision is a line in `revisions`, and here what its methods have anew (schema, `ClientRequest`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mcp_toolset._records import dataclass, replace
from mcp_toolset.protocol.revisions import (
    HANDSHAKE_PROTOCOL_VERSIONS,
    KNOWN_PROTOCOL_VERSIONS,
    MODERN_PROTOCOL_VERSIONS,
    is_modern,
)
from mcp_toolset.protocol.shapes import FLAG, ID, NUMBER, OBJECT, TEXT, Items, Members, OneOf, Tagged, Values

LOG_LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
"""Severities of log messages, the least first (server/utilities/logging)."""


@dataclass(frozen=True, slots=True)
class Method:
    """A method that clients may call.

    Attributes:
        name: As it stands in a request.
        params: Its parameters, but for `_meta`.
        revisions: Those that have it.
        is_cacheable: Whether its results say how long they may be kept (`ttlMs`, `cacheScope`).
        may_ask: Whether its result may be `input_required`, and its parameters repeat what was answered.
        name_parameter: The parameter that the header `Mcp-Name` repeats.
    """

    name: str
    params: Members = Members()
    revisions: tuple[str, ...] = KNOWN_PROTOCOL_VERSIONS
    is_cacheable: bool = False
    may_ask: bool = False
    name_parameter: str | None = None

    def in_revision(self, revision: str) -> Method:
        """The method as a revision has it: input that was asked for is repeated in the modern era only."""
        if not (self.may_ask and is_modern(revision)):
            return self
        return replace(self, params=self.params.and_optional(**_ROUND_TRIP))


CAPABILITIES: Final = Members(
    optional={
        "roots": OBJECT,
        "sampling": Members(optional={"context": OBJECT, "tools": OBJECT}),
        "elicitation": Members(optional={"form": OBJECT, "url": OBJECT}),
        "experimental": Values(OBJECT),
        "extensions": Values(OBJECT),
        "tasks": OBJECT,
    }
)
"""What a client declares: in the handshake, or in the envelope of each request."""

IMPLEMENTATION: Final = Members(
    {"name": TEXT, "version": TEXT},
    {
        "title": TEXT,
        "description": TEXT,
        "websiteUrl": TEXT,
        "icons": Items(Members({"src": TEXT}, {"mimeType": TEXT, "sizes": Items(TEXT)})),
    },
)
"""What a client or a server says of itself (schema, `Implementation`)."""

LOG_LEVEL: Final = OneOf(LOG_LEVELS)

TASK: Final = Members({"taskId": TEXT}, {"inputResponses": Values(OBJECT)})
"""The parameters of requests about a task, which a server checks that has tasks."""

_ROUND_TRIP: Final = {"inputResponses": Values(OBJECT), "requestState": TEXT}
_PAGE: Final = Members(optional={"cursor": TEXT})
_URI: Final = Members({"uri": TEXT})
_COMPLETION: Final = Members(
    {
        "ref": Tagged(
            "type",
            {
                "ref/prompt": Members({"name": TEXT}, {"title": TEXT}),
                "ref/resource": Members({"uri": TEXT}),
            },
        ),
        "argument": Members({"name": TEXT, "value": TEXT}),
    },
    {"context": Members(optional={"arguments": Values(TEXT)})},
)
_FILTER: Final = Members(
    optional={
        "toolsListChanged": FLAG,
        "promptsListChanged": FLAG,
        "resourcesListChanged": FLAG,
        "resourceSubscriptions": Items(TEXT),
    }
)

FIRST_WITH_TASKS: Final = "2025-11-25"
"""The one legacy revision that has tasks, without an extension."""

_WITH_TASKS: Final = (FIRST_WITH_TASKS, *MODERN_PROTOCOL_VERSIONS)
_METHODS: Final = (
    Method("tools/call", Members({"name": TEXT}, {"arguments": OBJECT}), may_ask=True, name_parameter="name"),
    Method("tools/list", _PAGE, is_cacheable=True),
    Method("resources/list", _PAGE, is_cacheable=True),
    Method("resources/templates/list", _PAGE, is_cacheable=True),
    Method("resources/read", _URI, is_cacheable=True, may_ask=True, name_parameter="uri"),
    Method("prompts/list", _PAGE, is_cacheable=True),
    Method(
        "prompts/get",
        Members({"name": TEXT}, {"arguments": Values(TEXT)}),
        may_ask=True,
        name_parameter="name",
    ),
    Method("completion/complete", _COMPLETION),
    Method(
        "initialize",
        Members({"protocolVersion": TEXT, "capabilities": CAPABILITIES, "clientInfo": IMPLEMENTATION}),
        HANDSHAKE_PROTOCOL_VERSIONS,
    ),
    Method("ping", revisions=HANDSHAKE_PROTOCOL_VERSIONS),
    Method("logging/setLevel", Members({"level": LOG_LEVEL}), HANDSHAKE_PROTOCOL_VERSIONS),
    Method("resources/subscribe", _URI, HANDSHAKE_PROTOCOL_VERSIONS),
    Method("resources/unsubscribe", _URI, HANDSHAKE_PROTOCOL_VERSIONS),
    Method("server/discover", revisions=MODERN_PROTOCOL_VERSIONS, is_cacheable=True),
    Method("tasks/get", revisions=_WITH_TASKS, name_parameter="taskId"),
    Method("tasks/update", revisions=MODERN_PROTOCOL_VERSIONS, name_parameter="taskId"),
    Method("tasks/cancel", revisions=_WITH_TASKS, name_parameter="taskId"),
    Method("tasks/result", revisions=(FIRST_WITH_TASKS,)),
    Method("subscriptions/listen", Members({"notifications": _FILTER}), MODERN_PROTOCOL_VERSIONS),
)

_CANCELLED: Final = Members(optional={"requestId": ID, "reason": TEXT})
_PROGRESS: Final = Members({"progressToken": ID, "progress": NUMBER}, {"total": NUMBER, "message": TEXT})
_NOTIFICATIONS: Final = (
    Method("notifications/cancelled", _CANCELLED, HANDSHAKE_PROTOCOL_VERSIONS),
    Method("notifications/cancelled", Members({"requestId": ID}, {"reason": TEXT}), MODERN_PROTOCOL_VERSIONS),
    Method("notifications/initialized", revisions=HANDSHAKE_PROTOCOL_VERSIONS),
    Method("notifications/progress", _PROGRESS, HANDSHAKE_PROTOCOL_VERSIONS),
    Method("notifications/roots/list_changed", revisions=HANDSHAKE_PROTOCOL_VERSIONS),
)


def _by_revision(methods: tuple[Method, ...]) -> Mapping[str, Mapping[str, Method]]:
    return {
        revision: {each.name: each.in_revision(revision) for each in methods if revision in each.revisions}
        for revision in KNOWN_PROTOCOL_VERSIONS
    }


REQUESTS: Final = _by_revision(_METHODS)
"""What clients may request, by revision and method."""

NOTIFICATIONS: Final = _by_revision(_NOTIFICATIONS)
"""What clients may notify of, by revision and method."""

REQUEST_METHODS: Final = frozenset(each.name for each in _METHODS)
"""The requests that some revision has; all others are a program's own."""

EXTENSION_METHODS: Final = frozenset(each.name for each in _METHODS if each.name.startswith("tasks/"))
"""Those of them that an extension has (`io.modelcontextprotocol/tasks`)."""

NOTIFICATION_METHODS: Final = frozenset(each.name for each in _NOTIFICATIONS)
"""The notifications that some revision has."""

MAY_ASK: Final = frozenset(each.name for each in _METHODS if each.may_ask)
"""The requests whose answer may ask the client for something (2026-07-28)."""

CACHEABLE_METHODS: Final = frozenset(each.name for each in _METHODS if each.is_cacheable)
"""Methods whose modern results say how long they may be kept (2026-07-28, server/utilities/caching)."""

NAME_PARAMETERS: Final[Mapping[str, str]] = {
    each.name: each.name_parameter for each in _METHODS if each.name_parameter is not None
}
"""Methods, and which parameter of each the header `Mcp-Name` repeats (2026-07-28, basic/transports)."""
