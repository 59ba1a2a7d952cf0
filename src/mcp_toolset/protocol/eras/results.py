"""Results in the envelope of the caller's era, and without what clients of its revision cannot read.

`result_for` for tool results, `list_for` for lists of tools, `relayed` for all other answers of upstreams.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

from mcp_toolset.protocol.encoded_answers import carried
from mcp_toolset.protocol.eras.meta import own_meta
from mcp_toolset.protocol.revisions import is_modern

_CONTENT_SINCE: Final[Mapping[str, str]] = {"audio": "2025-03-26", "resource_link": "2025-06-18"}
"""The revision that brought a kind of content, for those that were not in the first one."""

_ALL_CONTENT: Final = max(_CONTENT_SINCE.values())
_MODERN_ENVELOPE: Final = frozenset({"resultType", "ttlMs", "cacheScope"})


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
