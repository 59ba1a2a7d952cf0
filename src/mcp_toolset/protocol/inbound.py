"""What a message is, and what a modern request says of itself: `kind_of`, and the `Envelope` in its `_meta`.

A door asks `kind_of` of what it has decoded. `ServerMachine` reads the envelope of a modern request with
`read_envelope`, which refuses by the first rule that is broken, in this order (2026-07-28, basic, "`_meta`";
basic/transports/streamable-http, "Server Validation"):

1. `params._meta` is an object with protocol version and client capabilities, else -32602.
2. Over HTTP the routing headers say what the body says, else -32020.
3. The version is a string, else -32602, and is served, else -32022 with the versions that are.

Whether the method exists is asked after that, and then `check_envelope` looks at the types of its members.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, Final, Literal, TypeAlias, cast

from mcp_toolset._records import dataclass
from mcp_toolset.protocol.http_headers import check_routing
from mcp_toolset.protocol.json_rpc import INVALID_PARAMS, UNSUPPORTED_PROTOCOL_VERSION, MCPError, RequestId
from mcp_toolset.protocol.methods import (
    CAPABILITIES,
    CLIENT_CAPABILITIES_META_KEY,
    CLIENT_INFO_META_KEY,
    IMPLEMENTATION,
    LOG_LEVEL,
    LOG_LEVEL_META_KEY,
    MODERN_PROTOCOL_VERSIONS,
    PROTOCOL_VERSION_META_KEY,
    TEXT,
    Members,
    is_modern,
)

Kind: TypeAlias = Literal["request", "notification", "answer", "garbage"]
"""What a decoded message is."""

Meta: TypeAlias = Mapping[str, Any]

MAX_TOKEN: Final = 1024
"""Characters of a progress token, of which each report has a copy."""

_REQUIRED: Final = (PROTOCOL_VERSION_META_KEY, CLIENT_CAPABILITIES_META_KEY)
_ENVELOPE: Final = Members(
    {PROTOCOL_VERSION_META_KEY: TEXT, CLIENT_CAPABILITIES_META_KEY: CAPABILITIES},
    {CLIENT_INFO_META_KEY: IMPLEMENTATION, LOG_LEVEL_META_KEY: LOG_LEVEL},
)


@dataclass(frozen=True, slots=True)
class Envelope:
    """What is known of the client of a request: said in its own `_meta`, or once in the handshake.

    Attributes:
        client_info: `name`, `version` and more, as the client wrote it; `None` if it has not said.
        log_level: From which severity on it wants to hear of this request (modern); `None` if it does not.
    """

    protocol_version: str
    client_info: Mapping[str, Any] | None = None
    client_capabilities: Mapping[str, Any] = field(default_factory=dict[str, Any])
    log_level: str | None = None
    is_modern: bool = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "is_modern", is_modern(self.protocol_version))


def kind_of(message: object) -> Kind:
    """What a decoded message is; a batch is garbage, as is a request whose id is no string or integer.

    Members that a message of its kind does not have are ignored (JSON-RPC 2.0, sections 4 and 5).
    """
    if type(message) is not dict:
        return "garbage"
    fields = cast("dict[str, Any]", message)
    if fields.get("jsonrpc") != "2.0":
        return "garbage"
    method, has_id = fields.get("method"), type(fields.get("id")) in (int, str)
    if method is None:
        return "answer" if has_id and ("result" in fields or "error" in fields) else "garbage"
    params = fields.get("params")
    if type(method) is not str or not (params is None or type(params) is dict):
        return "garbage"
    if has_id:
        return "request"
    return "garbage" if "id" in fields else "notification"


def id_of(message: object) -> RequestId | None:
    """The id to refuse under what is no message but looks like a request; an answer is never answered."""
    if type(message) is not dict or "result" in message or "error" in message:
        return None
    number = cast("dict[str, Any]", message).get("id")
    return number if type(number) is int or type(number) is str else None


def has_envelope(params: Mapping[str, Any] | None) -> bool:
    """True if a request names its revision in `_meta`: only modern ones do."""
    meta = params.get("_meta") if params else None
    return isinstance(meta, Mapping) and PROTOCOL_VERSION_META_KEY in meta


def read_envelope(
    method: str,
    params: Mapping[str, Any] | None,
    headers: Mapping[str, str] | None = None,
    served: Sequence[str] = MODERN_PROTOCOL_VERSIONS,
) -> Envelope:
    """The envelope of a modern request; the types of what the client says are left to `check_envelope`."""
    raw: object = params.get("_meta") if params else None
    if not isinstance(raw, Mapping):
        keys = " and ".join(map(repr, _REQUIRED))
        raise MCPError(
            INVALID_PARAMS, f"params._meta must be an object carrying the required {keys} envelope keys"
        )
    meta = cast("Meta", raw)
    if missing := [key for key in _REQUIRED if key not in meta]:
        raise MCPError(
            INVALID_PARAMS, f"params._meta is missing the required envelope key(s): {', '.join(missing)}"
        )
    version = meta[PROTOCOL_VERSION_META_KEY]
    if headers is not None:
        check_routing(version, method, params or {}, headers)
    if not isinstance(version, str):
        raise MCPError(INVALID_PARAMS, "the protocol-version envelope value must be a string")
    if version not in served:
        raise unsupported_version(version, served)
    return Envelope(
        version,
        meta.get(CLIENT_INFO_META_KEY),
        meta[CLIENT_CAPABILITIES_META_KEY],
        meta.get(LOG_LEVEL_META_KEY),
    )


def check_envelope(meta: Meta) -> None:
    """Look at the types of what a client says in the envelope of a request."""
    fault = _ENVELOPE.fault(meta, "_meta")
    if fault is not None:
        raise malformed(fault)


def check_meta(params: Mapping[str, Any]) -> Meta | None:
    """The `_meta` of a request, whose members outside the envelope are looked at (basic, "`_meta`")."""
    meta = params.get("_meta")
    if meta is None:
        return None
    if not isinstance(meta, Mapping):
        raise malformed("_meta must be an object")
    known = cast("Meta", meta)
    token = known.get("progressToken", 0)
    if not isinstance(token, str | int):
        raise malformed("_meta.progressToken must be a string or an integer")
    if isinstance(token, str) and len(token) > MAX_TOKEN:
        raise malformed(f"_meta.progressToken is repeated in each report; it may have {MAX_TOKEN} characters")
    return known


def malformed(fault: str) -> MCPError:
    return MCPError(INVALID_PARAMS, f"Invalid request parameters: {fault}")


def unsupported_version(requested: object, served: Sequence[str] = MODERN_PROTOCOL_VERSIONS) -> MCPError:
    """The error for a revision that is not served; it names those that are."""
    data: dict[str, Any] = {"supported": list(served)}
    if isinstance(requested, str):
        data["requested"] = requested
    return MCPError(UNSUPPORTED_PROTOCOL_VERSION, "Unsupported protocol version", data)
