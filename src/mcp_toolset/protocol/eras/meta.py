"""`_meta` on its way through the bridge: what of it goes on to the next connection, and what does not.

Requests: `forwarded_meta` of a caller, and the `modern_envelope` in its name. Results: `own_meta` of an
upstream, `joint_meta` of several (2026-07-28, basic, "`_meta`"). The log level of an envelope: `wants_log`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

from mcp_toolset.protocol.methods import LOG_LEVELS
from mcp_toolset.protocol.revisions import (
    CLIENT_CAPABILITIES_META_KEY,
    CLIENT_INFO_META_KEY,
    LOG_LEVEL_META_KEY,
    PROTOCOL_VERSION_META_KEY,
    SERVER_INFO_META_KEY,
)

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

_ROUND_TRIP: Final = ("inputResponses", "requestState")


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


def wants_log(wanted: str | None, level: object) -> bool:
    """Whether a log message is severe enough for a client; one that has not said takes all."""
    if wanted is None:
        return True
    known = wanted in LOG_LEVELS and level in LOG_LEVELS
    return known and LOG_LEVELS.index(cast("str", level)) >= LOG_LEVELS.index(wanted)
