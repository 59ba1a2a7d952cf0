"""`MetaCheck`: refuses requests whose `_meta` is malformed, where no `ServerMachine` has looked at them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from mcp_toolset.protocol.json_rpc import INVALID_PARAMS, MCPError
from mcp_toolset.protocol.methods import LOG_LEVELS
from mcp_toolset.protocol.revisions import (
    CLIENT_CAPABILITIES_META_KEY,
    CLIENT_INFO_META_KEY,
    LOG_LEVEL_META_KEY,
    is_modern,
)


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
