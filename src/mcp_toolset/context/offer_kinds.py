"""The lists of a server beside its tools, and the contract of their sources, mounted or local."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, Final

from mcp_toolset._records import dataclass
from mcp_toolset.protocol import methods
from mcp_toolset.protocol.eras import CacheHint
from mcp_toolset.tools.call import ToolContext
from mcp_toolset.tools.result import CONTENT_FIELDS, SAMPLED_FIELDS
from mcp_toolset.tools.source import ToolSource

if TYPE_CHECKING:
    from mcp_toolset.catalog.registry.kept_catalog import KeptCatalog
    from mcp_toolset.context.connection import PendingLogin, ServedClient
    from mcp_toolset.shared.state import SharedState
    from mcp_toolset.tools.definition import ToolDefinition
    from mcp_toolset.tools.view import ToolBinding


Takes = Callable[[str, Collection[str]], bool]
"""True for a method of extensions, of those with these identifiers."""

_INTEGER: Final = methods.Shape("an integer", (int,))
_META: Final[Mapping[str, methods.Shape]] = {"_meta": methods.OBJECT}
_ROLE: Final = methods.one_of("user", "assistant")
_ICON: Final = methods.Members(
    {"src": methods.TEXT},
    {"mimeType": methods.TEXT, "sizes": methods.list_of(methods.TEXT), "theme": methods.TEXT},
)
_ANNOTATIONS: Final = methods.Members(
    {}, {"audience": methods.list_of(_ROLE), "lastModified": methods.TEXT, "priority": methods.NUMBER}
)
_SHOWN: Final[Mapping[str, methods.Shape]] = {
    **_META,
    "title": methods.TEXT,
    "description": methods.TEXT,
    "icons": methods.list_of(_ICON),
}
_THING: Final[Mapping[str, methods.Shape]] = {**_SHOWN, "annotations": _ANNOTATIONS, "mimeType": methods.TEXT}
RESOURCE: Final = methods.Members({"name": methods.TEXT, "uri": methods.TEXT}, {**_THING, "size": _INTEGER})
TEMPLATE: Final = methods.Members({"name": methods.TEXT, "uriTemplate": methods.TEXT}, _THING)
_ARGUMENT: Final = methods.Members(
    {"name": methods.TEXT}, {"title": methods.TEXT, "description": methods.TEXT, "required": methods.FLAG}
)
PROMPT: Final = methods.Members({"name": methods.TEXT}, {**_SHOWN, "arguments": methods.list_of(_ARGUMENT)})


_TEXT_CONTENTS: Final = methods.Members(
    {"uri": methods.TEXT, "text": methods.TEXT}, {**_META, "mimeType": methods.TEXT}
)
_BLOB_CONTENTS: Final = methods.Members(
    {"uri": methods.TEXT, "blob": methods.TEXT}, {**_META, "mimeType": methods.TEXT}
)
_CONTENTS: Final = methods.Shape(
    "an object",
    (dict,),
    lambda value, at: (_BLOB_CONTENTS if value.get("text") is None else _TEXT_CONTENTS).fault(value, at),
)
_TEXTS: Final = methods.list_of(methods.TEXT)
_FIELD: Final = methods.Shape(
    "a text, a number, a boolean or a list of texts",
    (str, int, float, bool, list, type(None)),
    lambda value, at: _TEXTS.fault(value, at) if isinstance(value, list) else None,
)
_NOTED: Final[Mapping[str, methods.Shape]] = {**_META, "annotations": _ANNOTATIONS}
_BLOCKS: Final = {
    kind: methods.Members(dict.fromkeys(fields, methods.TEXT), _NOTED)
    for kind, fields in CONTENT_FIELDS.items()
}
_BLOCK: Final = methods.tagged_union(
    "type",
    {**_BLOCKS, "resource_link": RESOURCE, "resource": methods.Members({"resource": _CONTENTS}, _NOTED)},
)
_SAMPLE: Final = methods.tagged_union(
    "type",
    {
        **{kind: _BLOCKS[kind] for kind in SAMPLED_FIELDS},
        "tool_use": methods.Members(
            {"id": methods.TEXT, "name": methods.TEXT, "input": methods.OBJECT}, _META
        ),
        "tool_result": methods.Members(
            {"toolUseId": methods.TEXT, "content": methods.list_of(_BLOCK)},
            {**_META, "isError": methods.FLAG},
        ),
    },
)
_MESSAGE: Final = methods.Members({"role": _ROLE, "content": _BLOCK})
_COMPLETION: Final = methods.Members(
    {"values": methods.list_of(methods.TEXT)}, {"total": _INTEGER, "hasMore": methods.FLAG}
)
_PAGE: Final[Mapping[str, methods.Shape]] = {**_META, "nextCursor": methods.TEXT}

_RESULTS: Final[Mapping[str, methods.Members]] = {
    "resources/list": methods.Members({"resources": methods.list_of(RESOURCE)}, _PAGE),
    "resources/templates/list": methods.Members({"resourceTemplates": methods.list_of(TEMPLATE)}, _PAGE),
    "prompts/list": methods.Members({"prompts": methods.list_of(PROMPT)}, _PAGE),
    "resources/read": methods.Members({"contents": methods.list_of(_CONTENTS)}, _META),
    "prompts/get": methods.Members(
        {"messages": methods.list_of(_MESSAGE)}, {**_META, "description": methods.TEXT}
    ),
    "completion/complete": methods.Members({"completion": _COMPLETION}, _META),
}
_QUESTION: Final = methods.Members({"method": methods.TEXT}, {"params": methods.OBJECT})
_INPUT_REQUIRED: Final = methods.Members(
    {}, {**_META, "inputRequests": methods.map_of(_QUESTION), "requestState": methods.TEXT}
)
_HINT: Final = methods.Members({"ttlMs": _INTEGER, "cacheScope": methods.one_of("private", "public")})

_ANSWERS: Final[Mapping[str, methods.Members]] = {
    "elicitation/create": methods.Members(
        {"action": methods.one_of("accept", "cancel", "decline")},
        {**_META, "content": methods.map_of(_FIELD)},
    ),
    "sampling/createMessage": methods.Members(
        {"role": _ROLE, "model": methods.TEXT, "content": methods.one_or_more(_SAMPLE)},
        {**_META, "stopReason": methods.TEXT},
    ),
    "roots/list": methods.Members(
        {"roots": methods.list_of(methods.Members({"uri": methods.TEXT}, {**_META, "name": methods.TEXT}))},
        _META,
    ),
}
_ANY: Final = methods.Members({}, _META)


def result_fault(method: str, result: Mapping[str, Any], *, modern: bool) -> str | None:
    if modern and result.get("resultType") == "input_required":
        return _INPUT_REQUIRED.fault(result)
    if modern and method in methods.CACHEABLE_METHODS:
        fault = _HINT.fault(result)
        if fault is not None:
            return fault
    return _RESULTS.get(method, _ANY).fault(result)


def answer_fault(method: str, answer: Mapping[str, Any]) -> str | None:
    return _ANSWERS.get(method, _ANY).fault(answer)


Wire = Mapping[str, Any]
Ending = Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of listed thing: method, keys of list and entry, shape of an entry, capability to declare."""

    method: str
    key: str
    identity: str
    shape: methods.Members = field(compare=False)
    capability: str


RESOURCES: Final = Kind("resources/list", "resources", "uri", RESOURCE, "resources")
TEMPLATES: Final = Kind("resources/templates/list", "resourceTemplates", "uriTemplate", TEMPLATE, "resources")
PROMPTS: Final = Kind("prompts/list", "prompts", "name", PROMPT, "prompts")
KINDS: Final = (RESOURCES, TEMPLATES, PROMPTS)


@dataclass(frozen=True, slots=True)
class ListChange:
    """A list that has changed for some clients only."""

    capability: str  # what the list is of: `tools`, `resources` or `prompts`
    client_key: str  # the key of the one client whose session lists it; empty for a session of several
    is_for: Callable[[ServedClient], bool]  # true for a client that sees it


class Offers(ABC):
    """Resources, prompts and completions of one source; by default the same for all clients."""

    @abstractmethod
    def declares(self, capability: str, feature: str = "") -> bool:
        """True if it has a capability, and in it a feature such as `subscribe`."""

    def extensions(self) -> Mapping[str, Any]:
        """Its `experimental` and `extensions`, without those that the bridge takes part in."""
        return {}

    def may_declare(self) -> bool:
        return False

    async def learned(self, context: ToolContext, *, log_in: bool) -> bool:
        """Learn its lists for a caller, who may be asked to log in; true if that was to be done."""
        return False

    @property
    def known(self) -> bool:
        """True once it is known what the source offers, from this run or the last."""
        return True

    @abstractmethod
    async def listed(self, kind: Kind) -> Sequence[Wire]:
        """The entries of a kind as they are now."""

    @abstractmethod
    def hint(self, kind: Kind) -> CacheHint:
        """The cache hint of that list."""

    @abstractmethod
    def meta(self, kind: Kind) -> Wire:
        """The `_meta` of that list."""

    @abstractmethod
    async def read(self, uri: str, context: ToolContext) -> Wire:
        """The answer to `resources/read`; `LookupError` if the source is local and has none such."""

    @abstractmethod
    async def prompt(self, name: str, arguments: Mapping[str, str], context: ToolContext) -> Wire:
        """The answer to `prompts/get`; `LookupError` if the source is local and has none such."""

    @abstractmethod
    async def complete(self, params: Mapping[str, Any], context: ToolContext) -> Wire:
        """The answer to `completion/complete`."""

    async def ask(self, method: str, params: Mapping[str, Any], context: ToolContext) -> Wire:
        """The answer to a request of a method that no revision has."""
        raise LookupError("Method not found")

    async def tell(self, method: str, params: Mapping[str, Any], context: ToolContext) -> None:
        """Send a notification of a caller on, of a method that no revision has."""
        return None

    @abstractmethod
    async def watch(self, uri: str, updated: Callable[[], None], context: ToolContext) -> Ending:
        """Call `updated` whenever the resource has changed for a caller; returns what ends that."""

    async def look(self, kind: Kind, context: ToolContext) -> None:
        """List again for a caller what nothing tells of a change of."""
        return None

    def listed_to(self, kind: Kind, context: ToolContext) -> Sequence[Wire] | None:
        """The entries that a caller sees in place of those of `listed`; `None` if it sees the same."""
        return None

    def tells_itself(self, client: ServedClient) -> bool:
        """True if a client has a session of its own with the source, which tells it of changes."""
        return False

    def listed_to_some(self, kind: Kind) -> Sequence[Wire]:
        """All entries that only some callers see."""
        return ()

    def said(self) -> frozenset[str]:
        """Of `tools`, `resources`, `prompts`: the lists that it said to have changed; told once."""
        return frozenset()

    def list_news(self) -> Sequence[ListChange]:
        """The lists of single clients that have changed since this was asked last."""
        return ()


class MountedSource(ToolSource):
    """A mounted server, as the server that serves it and its extensions know it.

    Lists, instructions and words about itself are those of this run or the last; names of tools are its own.
    `snapshot` is the same object for as long as the tools have not changed, `keep_key` the key of its lists
    from one run to the next. `passed` makes a tool of an unlisted name that it `admits`: one that it neither
    lists nor has set aside.
    """

    kept: Callable[[], KeptCatalog | None]  # `None` while it is not ready
    list_hint: Callable[[], CacheHint | None]  # from now on; `None` if it has no part in the list
    hidden_from: Callable[[ToolContext], frozenset[str]]  # tools that other clients are listed
    unknown_to: Callable[[ToolContext], bool]  # true while the list for such clients is unknown
    known_to: Callable[[ToolContext], Coroutine[Any, Any, None]]  # waits a little for that
    login_of: Callable[[str], PendingLogin | None]  # by its ticket, or the `state` of its request
    watch_logins: Callable[[Callable[[dict[str, Any]], None]], Callable[[], None]]
    share: Callable[[SharedState], None]  # before it is opened
    # Tells it of these extensions of clients, each in a table of `EXTENSION_TABLES`, and carries them.
    carry: Callable[[Mapping[str, str], Takes], None]

    @property
    def known(self) -> bool: ...  # true once its lists are known
    @property
    def snapshot(self) -> object: ...
    @property
    def offers(self) -> Offers: ...
    @property
    def instructions(self) -> str: ...
    def server_info(self) -> dict[str, Any]: ...  # empty while it is unknown
    def listed(self, tool: str) -> ToolDefinition | None: ...  # as the server lists it now
    def list_meta(self) -> Mapping[str, Any]: ...
    @property
    def is_personal(self) -> bool: ...  # true if each caller has a connection with its own lists
    @property
    def keep_key(self) -> str | None: ...
    async def remember(self, kept: KeptCatalog) -> None: ...  # serve it until it has listed
    def admits(self, name: str) -> bool: ...
    def passed(self, name: str) -> ToolBinding | None: ...
