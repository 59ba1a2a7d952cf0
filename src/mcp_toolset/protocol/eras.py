"""MCP's wire forms and ours: what the two protocol eras do differently, as plain dictionaries.

*Legacy* means revisions up to 2025-11-25 (a handshake and sessions); *modern* means 2026-07-28 (every
request carries its own envelope in `_meta`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

from mcp_toolset.protocol.encoded_answers import carried
from mcp_toolset.protocol.json_rpc import INVALID_PARAMS, MCPError
from mcp_toolset.protocol.revisions import (
    CLIENT_CAPABILITIES_META_KEY,
    CLIENT_INFO_META_KEY,
    LOG_LEVEL_META_KEY,
    MODERN_PROTOCOL_VERSIONS,
    PROTOCOL_VERSION_META_KEY,
    SERVER_INFO_META_KEY,
)

SESSION: Final = b"mcp-session-id"
"""The header that names a legacy session over HTTP."""

_HOP_BY_HOP: Final = frozenset(
    {
        PROTOCOL_VERSION_META_KEY,
        CLIENT_INFO_META_KEY,
        CLIENT_CAPABILITIES_META_KEY,
        LOG_LEVEL_META_KEY,
        "progressToken",
    }
)
"""Keys of `_meta` that belong to one connection and are never copied to the next."""

LOG_LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
"""Severities of log messages, the least first (server/utilities/logging)."""

_ROUND_TRIP: Final = ("inputResponses", "requestState")
_CONTENT_SINCE: Final[Mapping[str, str]] = {"audio": "2025-03-26", "resource_link": "2025-06-18"}
"""The revision that brought a kind of content, for those that were not in the first one."""

_ALL_CONTENT: Final = max(_CONTENT_SINCE.values())
_MODERN_ENVELOPE: Final = frozenset({"resultType", "ttlMs", "cacheScope"})


def wants_log(wanted: str | None, level: object) -> bool:
    """Whether a log message is severe enough for a client; one that has not said takes all."""
    if wanted is None:
        return True
    known = wanted in LOG_LEVELS and level in LOG_LEVELS
    return known and LOG_LEVELS.index(cast("str", level)) >= LOG_LEVELS.index(wanted)


def is_modern(version: str | None) -> bool:
    """Whether a protocol revision is of the modern era."""
    return version in MODERN_PROTOCOL_VERSIONS


class MetaCheck:
    """Refuses requests whose `_meta` is malformed, as the SDK's models would (basic, `_meta`).

    A client sends the same envelope with each request: it is looked at when it differs from the last one.
    """

    __slots__ = ("_passed",)

    def __init__(self) -> None:
        """Have seen no envelope."""
        self._passed: tuple[object, ...] = ()

    def check(self, params: Mapping[str, Any] | None, version: str | None) -> None:
        """Refuse a malformed one.

        Raises:
            MCPError: a member of it that the protocol knows has the wrong type.
        """
        meta: object = params.get("_meta") if params else None
        if meta is None:
            return
        if type(meta) is not dict:
            raise _malformed("is no object")
        fields = cast("dict[str, Any]", meta)
        if "progressToken" in fields and not isinstance(fields["progressToken"], str | int):
            raise _malformed("has a progressToken that is neither a string nor an integer")
        if is_modern(version):
            envelope = (*map(fields.get, _ENVELOPE, _ABSENT),)
            if envelope != self._passed:
                _check_envelope(fields)
                self._passed = envelope


_ENVELOPE: Final = (CLIENT_CAPABILITIES_META_KEY, CLIENT_INFO_META_KEY, LOG_LEVEL_META_KEY)
_ABSENT: Final = ((),) * len(_ENVELOPE)


def _check_envelope(meta: Mapping[str, Any]) -> None:
    capabilities: object = meta.get(CLIENT_CAPABILITIES_META_KEY, {})
    if not isinstance(capabilities, dict):
        raise _malformed(f"has a {CLIENT_CAPABILITIES_META_KEY} that is no object")
    for name, capability in cast("dict[str, Any]", capabilities).items():
        if not (capability is None or isinstance(capability, dict)):
            raise _malformed(f"has a capability {name!r} that is no object")
    info: object = meta.get(CLIENT_INFO_META_KEY)
    if not (info is None or _is_named(info)):
        raise _malformed(f"has a {CLIENT_INFO_META_KEY} without a name and a version")
    level: object = meta.get(LOG_LEVEL_META_KEY)
    if not (level is None or level in LOG_LEVELS):
        raise _malformed(f"has a {LOG_LEVEL_META_KEY} that is none of {', '.join(LOG_LEVELS)}")


def _is_named(info: object) -> bool:
    fields = cast("dict[str, Any]", info) if isinstance(info, dict) else {}
    return isinstance(fields.get("name"), str) and isinstance(fields.get("version"), str)


def _malformed(what: str) -> MCPError:
    return MCPError(INVALID_PARAMS, f"Invalid request parameters: _meta {what}")


def forwarded_meta(meta: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a caller's `_meta` that goes on to an upstream: trace context and custom keys."""
    return {key: value for key, value in meta.items() if key not in _HOP_BY_HOP and not is_reserved(key)}


def meta_of(params: Mapping[str, Any]) -> Mapping[str, Any]:
    """The `_meta` of a message's parameters, if it is an object."""
    meta = params.get("_meta")
    return cast("Mapping[str, Any]", meta) if isinstance(meta, Mapping) else {}


def is_reserved(key: str) -> bool:
    """Whether a key of `_meta` is the protocol's or an extension's own, by its prefix (basic, "_meta").

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
        PROTOCOL_VERSION_META_KEY: version,
        CLIENT_INFO_META_KEY: dict(client),
        CLIENT_CAPABILITIES_META_KEY: meta.get(CLIENT_CAPABILITIES_META_KEY, {}),
    }
    if LOG_LEVEL_META_KEY in meta:
        envelope[LOG_LEVEL_META_KEY] = meta[LOG_LEVEL_META_KEY]
    return envelope


def round_trip(params: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters with which a modern client repeats a call that needed input; passed on verbatim."""
    return {key: params[key] for key in _ROUND_TRIP if key in params}


def result_for(result: Mapping[str, Any], *, version: str, stamp: Mapping[str, Any]) -> dict[str, Any]:
    """A tool result in the envelope of the caller's era.

    Legacy clients fail a call whose structured content is not an object, so it is left out for them;
    its text stays.
    """
    meta = own_meta(result.get("_meta"))
    if is_modern(version):
        return carried(result, {"resultType": "complete", **result, "_meta": {**meta, **stamp}})
    lowered = {key: value for key, value in result.items() if key not in _MODERN_ENVELOPE}
    if meta:
        lowered["_meta"] = meta
    else:
        lowered.pop("_meta", None)
    if "structuredContent" in lowered and not isinstance(lowered["structuredContent"], dict):
        del lowered["structuredContent"]
    if version < _ALL_CONTENT and isinstance(content := lowered.get("content"), list):
        lowered["content"] = [lowered_block(block, version) for block in cast("list[Any]", content)]
    return carried(result, lowered)


def relayed(result: Mapping[str, Any], *, version: str) -> dict[str, Any]:
    """An upstream's answer other than a tool result in the envelope of the caller's era."""
    kept = {key: value for key, value in result.items() if key not in _MODERN_ENVELOPE}
    if is_modern(version):
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


def own_meta(meta: object) -> dict[str, Any]:
    """The `_meta` of a result without the upstream's stamp: the caller talks to this server."""
    if not isinstance(meta, dict):
        return {}
    return {key: value for key, value in cast("dict[str, Any]", meta).items() if key != SERVER_INFO_META_KEY}


def joint_meta(parts: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The `_meta` of a list of several servers: where two have one key, the first one's is kept."""
    joint: dict[str, Any] = {}
    for part in parts:
        for key, value in part.items():
            joint.setdefault(key, value)
    return joint


def list_for(
    tools: Iterable[dict[str, Any]], *, modern: bool, stamp: Mapping[str, Any], hint: Mapping[str, Any]
) -> dict[str, Any]:
    """A `tools/list` answer in the envelope of the caller's era; only the modern one has cache hints."""
    if modern:
        return {
            "resultType": "complete",
            "tools": list(tools),
            **hint,
            "_meta": dict(stamp),
        }
    listed = {"tools": [lowered_tool(tool) for tool in tools]}
    return {**listed, "_meta": dict(stamp)} if stamp else listed


def lowered_tool(tool: dict[str, Any]) -> dict[str, Any]:
    """A tool as legacy clients can read it: an output schema that is no object schema is left out."""
    output = tool.get("outputSchema")
    if output is None or output.get("type") == "object":
        return tool
    return {key: value for key, value in tool.items() if key != "outputSchema"}
