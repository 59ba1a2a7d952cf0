"""Revisions of the protocol, shapes of JSON, and `REQUESTS`: the methods of each revision.

`ServerMachine` refuses by it what a revision does not have, and parameters that are malformed. A method that
no revision has, such as `vendor/method`, is not in the table: it passes unread to its handler.

    REQUESTS["2026-07-28"]["tools/call"].params.fault({"name": 5})    # "name must be a string"
    NAME_PARAMETERS["resources/read"]                                 # "uri": the header Mcp-Name repeats it

A new revision is a line in the tuple of its era, and its new methods (schema, `ClientRequest`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType, NoneType
from typing import Any, Final, TypeAlias

from mcp_toolset._records import dataclass, replace

HANDSHAKE_PROTOCOL_VERSIONS: Final = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
"""The revisions of the legacy era, the oldest first."""

MODERN_PROTOCOL_VERSIONS: Final = ("2026-07-28",)
"""The revisions of the modern era, the oldest first."""

KNOWN_PROTOCOL_VERSIONS: Final = (*HANDSHAKE_PROTOCOL_VERSIONS, *MODERN_PROTOCOL_VERSIONS)
LATEST_HANDSHAKE_VERSION: Final = HANDSHAKE_PROTOCOL_VERSIONS[-1]
LATEST_MODERN_VERSION: Final = MODERN_PROTOCOL_VERSIONS[-1]

PROTOCOL_VERSION_META_KEY: Final = "io.modelcontextprotocol/protocolVersion"
CLIENT_INFO_META_KEY: Final = "io.modelcontextprotocol/clientInfo"
CLIENT_CAPABILITIES_META_KEY: Final = "io.modelcontextprotocol/clientCapabilities"
LOG_LEVEL_META_KEY: Final = "io.modelcontextprotocol/logLevel"
SERVER_INFO_META_KEY: Final = "io.modelcontextprotocol/serverInfo"
SUBSCRIPTION_ID_META_KEY: Final = "io.modelcontextprotocol/subscriptionId"


def is_modern(version: str | None) -> bool:
    return version in MODERN_PROTOCOL_VERSIONS


def is_version_at_least(version: str, minimum: str) -> bool:
    """True if a revision is known and not older than another; of one that is not known, `False`."""
    if version not in KNOWN_PROTOCOL_VERSIONS:
        return False
    return KNOWN_PROTOCOL_VERSIONS.index(version) >= KNOWN_PROTOCOL_VERSIONS.index(minimum)


class Shape:
    """The shape of a JSON value: its types, and a check of a value whose type is right."""

    __slots__ = ("_check", "is_plain", "kinds", "noun")

    def __init__(
        self, noun: str, kinds: tuple[type, ...], check: Callable[[Any, str], str | None] | None = None
    ) -> None:
        self.noun = noun
        self.kinds = kinds
        self._check = check
        self.is_plain = check is None  # only the type counts

    def fault(self, value: Any, at: str = "") -> str | None:
        """The fault of a value whose type is right; `at` names its place."""
        return None if self._check is None else self._check(value, at)


TEXT: Final = Shape("a string", (str,))
FLAG: Final = Shape("a boolean", (bool,))
NUMBER: Final = Shape("a number", (int, float))
ID: Final = Shape("a string or an integer", (str, int))
OBJECT: Final = Shape("an object", (dict,))


def one_of(*texts: str) -> Shape:
    noun = f"one of {', '.join(texts)}"
    return Shape(noun, (str,), lambda value, at: None if value in texts else f"{at} must be {noun}")


def list_of(each: Shape) -> Shape:
    def fault(value: list[Any], at: str) -> str | None:
        return _first_fault(each, enumerate(value), at)

    return Shape("a list", (list,), fault)


def one_or_more(each: Shape) -> Shape:
    """An object, or a list of such objects."""
    many = list_of(each)
    return Shape(
        "an object or a list",
        (dict, list),
        lambda value, at: (many if isinstance(value, list) else each).fault(value, at),
    )


def map_of(each: Shape) -> Shape:
    """An object with members of any name, each of which has the same shape."""
    return Shape("an object", (dict,), lambda value, at: _first_fault(each, value.items(), at))


def tagged_union(tag: str, shapes: Mapping[str, Shape]) -> Shape:
    """An object whose member `tag` says which shape it has."""

    def fault(value: Any, at: str) -> str | None:
        named = value.get(tag)
        shape = shapes.get(named) if isinstance(named, str) else None
        if shape is None:
            return f"{at}.{tag} must be one of {', '.join(shapes)}"
        return shape.fault(value, at)

    return Shape("an object", (dict,), fault)


_Row: TypeAlias = tuple[str, bool, tuple[type, ...], Shape, "Shape | None"]
"""Name, whether it is required, types, shape, and the shape once more if the types alone do not decide."""


_NO_MEMBERS: Final[Mapping[str, Shape]] = MappingProxyType({})


class Members(Shape):
    """An object with members that are named."""

    __slots__ = ("_rows", "optional", "required")

    def __init__(
        self, required: Mapping[str, Shape] = _NO_MEMBERS, optional: Mapping[str, Shape] = _NO_MEMBERS
    ) -> None:
        super().__init__("an object", (dict,))
        self.is_plain = False
        self.required = required
        self.optional = optional  # members that may be absent, or null
        self._rows: tuple[_Row, ...] = (
            *(_row(name, shape, required=True) for name, shape in required.items()),
            *(_row(name, shape, required=False) for name, shape in optional.items()),
        )

    def fault(self, value: Any, at: str = "") -> str | None:
        """The fault of the members of an object; `None` if there is none."""
        for name, required, kinds, shape, nested in self._rows:
            if name in value:
                member = value[name]
                if type(member) not in kinds and not _is_of(member, kinds):
                    return f"{_place(at, name)} must be {shape.noun}"
                if nested is not None and member is not None:
                    found = nested.fault(member, _place(at, name))
                    if found is not None:
                        return found
            elif required:
                return f"{_place(at, name)} is missing"
        return None

    def and_optional(self, **members: Shape) -> Members:
        return Members(self.required, {**self.optional, **members})


def _row(name: str, shape: Shape, *, required: bool) -> _Row:
    kinds = shape.kinds if required else (*shape.kinds, NoneType)
    return name, required, kinds, shape, None if shape.is_plain else shape


def _is_of(value: object, kinds: tuple[type, ...]) -> bool:
    return isinstance(value, kinds) and not isinstance(value, bool)


def _place(at: str, name: object) -> str:
    return f"{at}.{name}" if at else str(name)


def _first_fault(shape: Shape, named: Iterable[tuple[object, Any]], at: str) -> str | None:
    for name, value in named:
        if type(value) not in shape.kinds and not _is_of(value, shape.kinds):
            return f"{_place(at, name)} must be {shape.noun}"
        found = shape.fault(value, _place(at, name))
        if found is not None:
            return found
    return None


LOG_LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
"""Severities of log messages, the least first (server/utilities/logging)."""


@dataclass(frozen=True, slots=True)
class Method:
    """A method that clients may call.

    Attributes:
        is_cacheable: True if its results say how long they may be kept (`ttlMs`, `cacheScope`).
        may_ask: True if its result may be `input_required`, and its parameters repeat what was answered.
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
        "experimental": map_of(OBJECT),
        "extensions": map_of(OBJECT),
        "tasks": OBJECT,
    }
)
"""The capabilities of a client: in the handshake, or in the envelope of each request."""

IMPLEMENTATION: Final = Members(
    {"name": TEXT, "version": TEXT},
    {
        "title": TEXT,
        "description": TEXT,
        "websiteUrl": TEXT,
        "icons": list_of(Members({"src": TEXT}, {"mimeType": TEXT, "sizes": list_of(TEXT)})),
    },
)
"""The description of a client or a server by itself (schema, `Implementation`)."""

LOG_LEVEL: Final = one_of(*LOG_LEVELS)

TASK: Final = Members({"taskId": TEXT}, {"inputResponses": map_of(OBJECT)})
"""The parameters of requests about a task, which a server checks that has tasks."""

_ROUND_TRIP: Final = {"inputResponses": map_of(OBJECT), "requestState": TEXT}
_PAGE: Final = Members(optional={"cursor": TEXT})
_URI: Final = Members({"uri": TEXT})
_COMPLETION: Final = Members(
    {
        "ref": tagged_union(
            "type",
            {"ref/prompt": Members({"name": TEXT}, {"title": TEXT}), "ref/resource": Members({"uri": TEXT})},
        ),
        "argument": Members({"name": TEXT, "value": TEXT}),
    },
    {"context": Members(optional={"arguments": map_of(TEXT)})},
)
_FILTER: Final = Members(
    optional={
        "toolsListChanged": FLAG,
        "promptsListChanged": FLAG,
        "resourcesListChanged": FLAG,
        "resourceSubscriptions": list_of(TEXT),
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
        Members({"name": TEXT}, {"arguments": map_of(TEXT)}),
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
"""The requests that clients may send, by revision and method."""

NOTIFICATIONS: Final = _by_revision(_NOTIFICATIONS)
"""The notifications that clients may send, by revision and method."""

REQUEST_METHODS: Final = frozenset(each.name for each in _METHODS)
"""The requests that some revision has; all others are a program's own."""

EXTENSION_METHODS: Final = frozenset(each.name for each in _METHODS if each.name.startswith("tasks/"))
"""Those of them that an extension has (`io.modelcontextprotocol/tasks`)."""

NOTIFICATION_METHODS: Final = frozenset(each.name for each in _NOTIFICATIONS)
"""The notifications that some revision has."""

_OF_MCP: Final = frozenset(
    (
        *("initialize", "ping", "server", "tools", "resources", "prompts", "completion", "logging"),
        *("subscriptions", "tasks", "notifications", "roots", "sampling", "elicitation", ""),
    )
)
"""The first parts of the names of MCP's methods."""

_NOTES_OF_MCP: Final = _OF_MCP | {"cancelled", "initialized", "message", "progress"}


def is_of_mcp(method: str, *, notification: bool = False) -> bool:
    """True for a name that MCP has or keeps for itself, so that it is no method of an extension."""
    # Names that differ in case alone would be taken for each other.
    name = method.lower()
    if name.startswith(("rpc.", "io.modelcontextprotocol/", "notifications/io.modelcontextprotocol/")):
        return True
    if notification:
        return name.removeprefix("notifications/").partition("/")[0] in _NOTES_OF_MCP
    return name.partition("/")[0] in _OF_MCP


MAY_ASK: Final = frozenset(each.name for each in _METHODS if each.may_ask)
"""The requests whose answer may ask the client for something (2026-07-28)."""

CACHEABLE_METHODS: Final = frozenset(each.name for each in _METHODS if each.is_cacheable)
"""Methods whose modern results say how long they may be kept (2026-07-28, server/utilities/caching)."""

NAME_PARAMETERS: Final[Mapping[str, str]] = {
    each.name: each.name_parameter for each in _METHODS if each.name_parameter is not None
}
"""Methods, and which parameter of each the header `Mcp-Name` repeats (2026-07-28, basic/transports)."""
