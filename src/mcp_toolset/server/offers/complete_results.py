"""Answers with every field that a server has put into them, checked against the client's revision.

The SDK's models keep what their revision knows and leave out the rest. A server may say more than that in
an entry of a list, in a content or in a result, and its clients are to see it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, cast

from mcp_types.methods import serialize_server_result
from pydantic import ValidationError

from mcp_toolset.protocol.eras import is_modern
from mcp_toolset.protocol.errors import INVALID_RESULT
from mcp_toolset.protocol.json_rpc import MCPError

_log = logging.getLogger("mcp_toolset.server")


def whole_answer(
    method: str, version: str, answer: dict[str, Any], stamp: Mapping[str, Any]
) -> dict[str, Any]:
    """An answer as the revision has it, with what the revision does not know, and a modern server's stamp.

    Raises:
        MCPError: it is none that the revision allows.
    """
    try:
        known = serialize_server_result(method, version, answer)
    except ValidationError as fault:
        _log.error("the answer to %s is invalid: %s", method, fault)
        raise MCPError.from_error_data(INVALID_RESULT) from None
    whole = restored(known, answer)
    if is_modern(version):
        whole["_meta"] = {**(whole.get("_meta") or {}), **stamp}
    return whole


def restored(known: Any, given: Any) -> Any:
    """`known` with the fields of `given` that it lacks; one that was null counts as left out."""
    if isinstance(known, dict) and isinstance(given, Mapping):
        ours, theirs = cast("dict[str, Any]", known), cast("Mapping[str, Any]", given)
        lost = {key: value for key, value in theirs.items() if key not in ours and value is not None}
        return {**{key: restored(value, theirs.get(key)) for key, value in ours.items()}, **lost}
    if isinstance(known, list) and isinstance(given, list):
        left, right = cast("list[Any]", known), cast("list[Any]", given)
        if len(left) == len(right):
            return [restored(one, other) for one, other in zip(left, right, strict=True)]
    return cast("Any", known)
