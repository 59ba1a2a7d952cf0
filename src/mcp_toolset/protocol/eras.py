"""The differences of the eras in messages: `_meta`, results, cache hints; and answers as bytes.

*Legacy* means revisions up to 2025-11-25 (a handshake and sessions); *modern* means 2026-07-28 (every request
carries its own envelope in `_meta`; 2026-07-28, basic, "`_meta`"). `result_for` makes results of tools,
`list_for` lists of tools, `relayed` all other answers of upstreams, without what older clients cannot read.
`Encoded` and `Verbatim` keep long texts as bytes on their way.
"""

from __future__ import annotations

import logging
import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, cast, get_args

from mcp_toolset._records import dataclass
from mcp_toolset.errors import DefinitionError
from mcp_toolset.protocol import methods
from mcp_toolset.protocol.json_rpc import UNWRITTEN, ErrorData, RequestId, json_of

Scope = Literal["public", "private"]
LONGEST: Final = 2**53 - 1
"""Milliseconds; what every JSON reader takes for an exact integer."""


@dataclass(frozen=True, slots=True)
class CacheHint:
    """The time for which an answer may be kept, and the caches that may keep it.

    Attributes:
        ttl_ms: Milliseconds; with 0 a client must ask again each time.
        scope: `public` if one client's answer may be shown to another.

    Raises:
        DefinitionError: the time is no whole number from 0 to `LONGEST`, or there is no such scope.
    """

    ttl_ms: int = 0
    scope: Scope = "private"

    def __post_init__(self) -> None:
        if type(self.ttl_ms) is not int or not 0 <= self.ttl_ms <= LONGEST:
            raise DefinitionError(f"ttl_ms is a whole number of milliseconds from 0, not {self.ttl_ms!r}")
        if self.scope not in get_args(Scope):
            raise DefinitionError(f"the scope of a cache hint is public or private, not {self.scope!r}")

    @classmethod
    def of(cls, wire: Mapping[str, Any]) -> CacheHint:
        """The hint of an answer; for a missing or invalid key the strictest value counts."""
        ttl: object = wire.get("ttlMs")
        usable = isinstance(ttl, int) and not isinstance(ttl, bool) and ttl > 0
        return cls(
            min(ttl, LONGEST) if usable and isinstance(ttl, int) else 0,
            "public" if wire.get("cacheScope") == "public" else "private",
        )

    def aged(self, seconds: float) -> CacheHint:
        """The hint for a client that gets the answer some seconds later."""
        left = self.ttl_ms - seconds * 1000
        return CacheHint(int(left) if left > 0 else 0, self.scope)

    def in_seconds(self) -> CacheHint:
        """The hint rounded down to whole seconds, so that equal answers within a second are identical."""
        if not self.ttl_ms % 1000:
            return self
        return CacheHint(self.ttl_ms - self.ttl_ms % 1000, self.scope)

    def to_wire(self) -> dict[str, Any]:
        """The two keys of an answer."""
        return {"ttlMs": self.ttl_ms, "cacheScope": self.scope}


STRICTEST: Final = CacheHint()


def strictest(hints: Iterable[CacheHint]) -> CacheHint:
    """The hint for an answer made of several: the shortest time, and private if one of them is."""
    parts = list(hints)
    if not parts:
        return STRICTEST
    private = any(part.scope == "private" for part in parts)
    return CacheHint(min(part.ttl_ms for part in parts), "private" if private else "public")


LONG: Final = 256 * 1024
"""Characters from which on a text is worth it."""

_DIGITS: Final = 9

_TEXTS: Final = ("text", "data", "blob")
_log = logging.getLogger("mcp_toolset.wire")


class Encoded(dict[str, Any]):
    """A result that is in JSON form already; as a dictionary it is the same result."""

    __slots__ = ("json",)

    def __init__(self, result: Mapping[str, Any], json: bytes) -> None:
        super().__init__(result)
        self.json = json


class Verbatim(dict[str, Any]):
    """A result, and those of its texts that are in JSON what they are."""

    __slots__ = ("texts",)

    def __init__(self, result: Mapping[str, Any], texts: Sequence[str]) -> None:
        super().__init__(result)
        self.texts = texts


def with_tools(listed: Encoded, more: Sequence[Mapping[str, Any]]) -> Encoded:
    """A list of tools as legacy clients get it, with more at its end; the rest is not written again."""
    tools: list[Any] = listed["tools"]
    added = json_of(more)[1:-1]
    json = b"%b%b%b]}" % (listed.json[:-2], b"," if tools and more else b"", added)
    return Encoded({**listed, "tools": [*tools, *more]}, json)


def noted(message: dict[str, Any], line: bytes) -> dict[str, Any]:
    """The message that was read from a line; long texts of its result are noted if they stand there as is."""
    if len(line) < LONG or b"\\" in line:
        return message
    result: object = message.get("result")
    if type(result) is dict:
        found = cast("dict[str, Any]", result)
        texts = [text for block, key in _places(found) if len(text := block[key]) >= LONG]
        if texts:
            message["result"] = Verbatim(found, texts)
    return message


def carried(before: Mapping[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """`after`, which was made of `before` and may still have its texts."""
    return Verbatim(after, before.texts) if type(before) is Verbatim else after


def answer_line(number: RequestId | None, result: dict[str, Any] | None, fault: ErrorData | None) -> bytes:
    """The answer to a request: its result, or the fault if there is one."""
    return b"".join(answer_parts(number, result, fault))


def answer_parts(
    number: RequestId | None, result: dict[str, Any] | None, fault: ErrorData | None
) -> list[bytes]:
    """`answer_line` in parts, so that long texts need not be copied to where the rest of it is."""
    if fault is not None:
        return [json_of({"jsonrpc": "2.0", "id": number, "error": fault.to_wire()})]
    if type(result) is Encoded:
        return [b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (json_of(number), result.json)]
    if type(result) is Verbatim:
        return _spliced(number, result)
    return [json_of({"jsonrpc": "2.0", "id": number, "result": result})]


def surely_parts(
    number: RequestId | None, result: dict[str, Any] | None, fault: ErrorData | None
) -> list[bytes]:
    """`answer_parts`, and an error in place of a result that has no JSON form."""
    try:
        return answer_parts(number, result, fault)
    except ValueError as raised:
        _log.warning("an answer was not sent, as no JSON can carry it: %s", raised)
        return answer_parts(number, None, UNWRITTEN)


def _spliced(number: RequestId | None, result: Verbatim) -> list[bytes]:
    known = {id(text) for text in result.texts}
    # The author of a result cannot know what stands for its texts.
    mark = secrets.token_hex(16)
    texts: list[str] = []

    def stand_in(text: str) -> str:
        if id(text) not in known:
            return text
        texts.append(text)
        return f"{mark}{len(texts) - 1:0{_DIGITS}}"

    message = {"jsonrpc": "2.0", "id": number, "result": _with(result, stand_in)}
    parts = re.split(rb"%b(\d{%d})" % (mark.encode(), _DIGITS), json_of(message))
    # Between each two parts stands which text is between them.
    parts[1::2] = [texts[int(place)].encode() for place in parts[1::2]]
    return parts


def _places(result: Mapping[str, Any]) -> Iterator[tuple[dict[str, Any], str]]:
    """Places of texts in a result: in its blocks, and in the resources that these hold."""
    content: object = result.get("content")
    for block in cast("list[object]", content) if type(content) is list else ():
        if type(block) is not dict:
            continue
        fields = cast("dict[str, Any]", block)
        for name, value in fields.items():
            if name == "resource" and type(value) is dict:
                held = cast("dict[str, Any]", value)
                yield from ((held, key) for key, text in held.items() if _is_text(key, text))
            elif _is_text(name, value):
                yield fields, name


def _is_text(key: str, value: object) -> bool:
    return key in _TEXTS and type(value) is str


def _with(result: Mapping[str, Any], stand_in: Callable[[str], str]) -> dict[str, Any]:
    """A copy of the result, as deep as its texts are, with other texts."""
    copied, content = dict(result), result.get("content")
    if type(content) is list:
        copied["content"] = [_copied(block) for block in cast("list[Any]", content)]
    for place, key in _places(copied):
        place[key] = stand_in(place[key])
    return copied


def _copied(block: Any) -> Any:
    if type(block) is not dict:
        return block
    copied = dict(cast("dict[str, Any]", block))
    resource: object = copied.get("resource")
    if type(resource) is dict:
        copied["resource"] = dict(cast("dict[str, Any]", resource))
    return copied


_HOP_BY_HOP: Final = frozenset(
    {
        methods.PROTOCOL_VERSION_META_KEY,
        methods.CLIENT_INFO_META_KEY,
        methods.CLIENT_CAPABILITIES_META_KEY,
        methods.LOG_LEVEL_META_KEY,
        "progressToken",
    }
)
"""Keys of `_meta` that belong to one connection and are never copied to the next."""

ROUND_TRIP: Final = frozenset(("inputResponses", "requestState"))
"""Parameters with which a modern client repeats a call that needed input."""


def forwarded_meta(meta: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a caller's `_meta` that goes on to an upstream: trace context and custom keys."""
    if not meta:
        return {}
    return {
        key: value
        for key, value in meta.items()
        # A server may send thousands of names; next to none of them can be reserved.
        if key not in _HOP_BY_HOP
        and not (("mcp" in key or "modelcontextprotocol" in key) and is_reserved(key))
    }


def meta_of(params: Mapping[str, Any]) -> Mapping[str, Any]:
    meta = params.get("_meta")
    return cast("Mapping[str, Any]", meta) if isinstance(meta, Mapping) else {}


def is_reserved(key: str) -> bool:
    """True if a key of `_meta` is the protocol's or an extension's own, by its prefix (basic, "_meta").

    What such keys say was agreed upon by the two ends of one connection.
    """
    prefix, slash, _ = key.partition("/")
    labels = prefix.split(".")
    return bool(slash) and len(labels) > 1 and labels[1] in ("modelcontextprotocol", "mcp")


def modern_envelope(version: str, client: Mapping[str, Any], meta: Mapping[str, Any]) -> dict[str, Any]:
    """The envelope of a modern request on behalf of a caller with this `_meta`.

    The caller's own capabilities go on, so that an upstream never asks for what the caller cannot
    do (basic/versioning, "Capabilities").
    """
    envelope: dict[str, Any] = {
        methods.PROTOCOL_VERSION_META_KEY: version,
        methods.CLIENT_INFO_META_KEY: dict(client),
        methods.CLIENT_CAPABILITIES_META_KEY: meta.get(methods.CLIENT_CAPABILITIES_META_KEY, {}),
    }
    if methods.LOG_LEVEL_META_KEY in meta:
        envelope[methods.LOG_LEVEL_META_KEY] = meta[methods.LOG_LEVEL_META_KEY]
    return envelope


def round_trip(params: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters with which a modern client repeats a call that needed input; passed on verbatim."""
    if ROUND_TRIP.isdisjoint(params):
        return {}
    return {key: params[key] for key in params if key in ROUND_TRIP}


_OWN: Final = "mcp-toolset/"
"""Begins the keys of a result's `_meta` in which this bridge says what it has decided, done and found."""


_PARTS: Final = frozenset(
    {"content", "contents", "messages", "prompts", "resource", "resources", "resourceTemplates", "tools"}
)
"""Keys of the parts of a result that have their own `_meta`; `structuredContent` is data."""

_SAYING: Final = _PARTS | {"_meta"}


def drop_own(result: dict[str, Any], depth: int = 3) -> None:
    """Take out of a mounted server's result, and of its parts, what only the bridge says."""
    meta: Any = result.get("_meta")
    said: object = meta
    for key in meta if isinstance(said, dict) else ():
        if key.startswith(_OWN):
            result["_meta"] = {key: value for key, value in meta.items() if not key.startswith(_OWN)}
            break
    if not depth:
        return
    for key, part in result.items():
        if key in _PARTS:
            several: object = part
            for each in part if isinstance(several, list) else (part,):
                found: object = each
                if isinstance(found, dict) and not _SAYING.isdisjoint(each):
                    drop_own(each, depth - 1)


def final_result(result: Mapping[str, Any]) -> dict[str, Any]:
    """A result that cannot ask, as one of a legacy server or of a task, without what would ask clients."""
    return {key: value for key, value in result.items() if key not in _ROUND_TRIP}


def own_meta(meta: object) -> dict[str, Any]:
    """The `_meta` of a result without the upstream's stamp: the caller talks to this server."""
    if not isinstance(meta, dict):
        return {}
    own = cast("dict[str, Any]", meta).copy()
    own.pop(methods.SERVER_INFO_META_KEY, None)
    return own


def joint_meta(parts: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    joint: dict[str, Any] = {}
    for part in parts:
        for key, value in part.items():
            joint.setdefault(key, value)
    return joint


def wants_log(wanted: str | None, level: object) -> bool:
    """True if a log message is severe enough for a client; one that has not said takes all."""
    if wanted is None:
        return True
    known = wanted in methods.LOG_LEVELS and level in methods.LOG_LEVELS
    return known and methods.LOG_LEVELS.index(cast("str", level)) >= methods.LOG_LEVELS.index(wanted)


_CONTENT_SINCE: Final[Mapping[str, str]] = {"audio": "2025-03-26", "resource_link": "2025-06-18"}
"""The revision that brought a kind of content, for those that were not in the first one."""

_ALL_CONTENT: Final = max(_CONTENT_SINCE.values())
_MODERN_ENVELOPE: Final = frozenset({"resultType", "ttlMs", "cacheScope"})

_ROUND_TRIP: Final = frozenset({"resultType", "inputRequests", "requestState", "inputResponses"})


def result_for(result: Mapping[str, Any], *, version: str, stamp: Mapping[str, Any]) -> dict[str, Any]:
    """A tool result in the envelope of the caller's era.

    Legacy clients fail a call whose structured content is not an object, so it is left out for them;
    its text stays.
    """
    meta = own_meta(result["_meta"]) if "_meta" in result else {}
    if version in methods.MODERN_PROTOCOL_VERSIONS:
        return carried(result, {"resultType": "complete", **result, "_meta": {**meta, **stamp}})
    lowered = {**result}
    for key in _MODERN_ENVELOPE:
        lowered.pop(key, None)
    if meta:
        lowered["_meta"] = meta
    else:
        lowered.pop("_meta", None)
    if "structuredContent" in lowered and not isinstance(lowered["structuredContent"], dict):
        del lowered["structuredContent"]
    if version < _ALL_CONTENT and isinstance(content := lowered.get("content"), list):
        lowered["content"] = [lowered_block(block, version) for block in cast("list[Any]", content)]
    return Verbatim(lowered, result.texts) if type(result) is Verbatim else lowered


def relayed(result: Mapping[str, Any], *, version: str) -> dict[str, Any]:
    """An upstream's answer other than a tool result in the envelope of the caller's era."""
    kept = {key: value for key, value in result.items() if key not in _MODERN_ENVELOPE}
    if methods.is_modern(version):
        kept = {"resultType": "complete", **result}
    elif version < _ALL_CONTENT and isinstance(messages := kept.get("messages"), list):
        said = cast("list[Mapping[str, Any]]", messages)
        kept["messages"] = [{**one, "content": lowered_block(one.get("content"), version)} for one in said]
    meta = own_meta(kept.pop("_meta", None))
    return {**kept, "_meta": meta} if meta else kept


def lowered_block(block: Any, version: str) -> Any:
    """A content block as a client of a revision can read it: a kind that it does not know is told in words.

    A client that checks what it gets fails the whole result for one block of a kind that came later.
    """
    wire: Mapping[str, Any] = cast("Mapping[str, Any]", block) if isinstance(block, Mapping) else {}
    kind = str(wire.get("type"))
    if version >= _CONTENT_SINCE.get(kind, ""):
        return cast("Any", block)
    if kind == "resource_link":
        told = f"{wire.get('title') or wire.get('name')}: {wire.get('uri')}"
    else:
        told = f"[{wire.get('mimeType')}: not known to this client's revision of the protocol]"
    return {"type": "text", "text": told}


def list_for(
    tools: Iterable[dict[str, Any]], *, modern: bool, stamp: Mapping[str, Any], hint: Mapping[str, Any]
) -> dict[str, Any]:
    """A `tools/list` answer in the envelope of the caller's era; only the modern one has cache hints."""
    if modern:
        return {
            "resultType": "complete",
            "tools": [without_task_support(tool) for tool in tools],
            **hint,
            "_meta": dict(stamp),
        }
    listed = {"tools": [lowered_tool(tool) for tool in tools]}
    return {**listed, "_meta": dict(stamp)} if stamp else listed


def _with_optional_tasks(tool: dict[str, Any]) -> dict[str, Any]:
    """A tool that a legacy client may call as a task, or may call and wait, whatever its server says."""
    execution = tool.get("execution")
    if not isinstance(execution, dict) or cast("Any", execution).get("taskSupport") != "required":
        return tool
    return {**tool, "execution": {**cast("dict[str, Any]", execution), "taskSupport": "optional"}}


def without_task_support(tool: dict[str, Any]) -> dict[str, Any]:
    """A tool without `execution.taskSupport`, which 2026-07-28 does not have: there the server decides."""
    execution = tool.get("execution")
    if not isinstance(execution, dict) or "taskSupport" not in execution:
        return tool
    kept = {key: value for key, value in cast("dict[str, Any]", execution).items() if key != "taskSupport"}
    rest = {key: value for key, value in tool.items() if key != "execution"}
    return {**rest, "execution": kept} if kept else rest


def lowered_tool(tool: dict[str, Any]) -> dict[str, Any]:
    """A tool as legacy clients can read it: an output schema that is no object schema is left out."""
    tool = _with_optional_tasks(tool)
    output = tool.get("outputSchema")
    if output is None or output.get("type") == "object":
        return tool
    return {key: value for key, value in tool.items() if key != "outputSchema"}
