"""Answers with every field that a server has put into them, looked at for what the client's revision needs.

A server may say more than the protocol knows in an entry of a list, in a content or in a result, and its
clients are to see it. A member that is null counts as left out.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final, cast

from mcp_toolset.context.result_shapes import result_fault
from mcp_toolset.protocol.errors import INVALID_RESULT
from mcp_toolset.protocol.json_rpc import MCPError
from mcp_toolset.protocol.revisions import is_modern

_KNOWN: Final = frozenset(
    {
        "annotations",
        "arguments",
        "completion",
        "content",
        "contents",
        "icons",
        "messages",
        "prompts",
        "resource",
        "resources",
        "resourceTemplates",
    }
)
"""Members of which the protocol says what is in them; what it does not know is passed on as it is."""

_log = logging.getLogger("mcp_toolset.server")


def whole_answer(
    method: str, version: str, answer: dict[str, Any], stamp: Mapping[str, Any]
) -> dict[str, Any]:
    """An answer as the revision has it, with what the revision does not know, and a modern server's stamp.

    Raises:
        MCPError: it is none that the revision allows.
    """
    modern = is_modern(version)
    fault = result_fault(method, answer, modern=modern)
    if fault is not None:
        _log.error("the answer to %s is invalid: %s", method, fault)
        raise MCPError.from_error_data(INVALID_RESULT)
    whole = without_nulls(answer)
    if modern:
        whole["_meta"] = {**(whole.get("_meta") or {}), **stamp}
    return whole


def without_nulls(given: Mapping[str, Any]) -> dict[str, Any]:
    """A copy without the members that are null, as deep as the protocol knows the members."""
    return {key: _kept(key, value) for key, value in given.items() if value is not None}


def _kept(key: str, value: Any) -> Any:
    if key not in _KNOWN:
        return value
    if isinstance(value, Mapping):
        return without_nulls(cast("Mapping[str, Any]", value))
    if isinstance(value, list):
        return [_kept(key, each) for each in cast("list[Any]", value)]
    return value
