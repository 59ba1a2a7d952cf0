"""`ServerMachine`: the served side of one client's connection; it decides about each message when it comes.

A door (stdio, SSE, an HTTP session, in process) has one machine for each client and asks it about every
request and notification **in the order in which they come**, before anything is started for them:

    machine = ServerMachine()                           # the first request decides the era
    envelope = machine.receive_request(method, params)  # or MCPError: the answer; nothing is to be started
    envelope.protocol_version, envelope.client_capabilities, envelope.is_modern

    ServerMachine("legacy")          # of an HTTP session: the transport tells the era
    ServerMachine("modern")          # of an endpoint: one will do for the modern POSTs of all clients
        .receive_request(method, params, headers)       # names in lower case; they agree with the body

So a `tools/list` that a client sends right behind `initialize` is accepted, and one sent right before it
refused, however long the handler of either takes. A refused request leaves the machine unchanged, but for
the era, which the first request decides whatever comes of it (2025-11-25, basic/lifecycle; 2026-07-28,
basic/versioning).
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, Final, Literal, TypeAlias, cast

from mcp_toolset._records import dataclass
from mcp_toolset.protocol import json_rpc
from mcp_toolset.protocol.methods import (
    CAPABILITIES,
    CLIENT_CAPABILITIES_META_KEY,
    CLIENT_INFO_META_KEY,
    HANDSHAKE_PROTOCOL_VERSIONS,
    IMPLEMENTATION,
    LATEST_HANDSHAKE_VERSION,
    LATEST_MODERN_VERSION,
    LOG_LEVEL,
    LOG_LEVEL_META_KEY,
    MODERN_PROTOCOL_VERSIONS,
    NAME_PARAMETERS,
    NOTIFICATION_METHODS,
    NOTIFICATIONS,
    PROTOCOL_VERSION_META_KEY,
    REQUEST_METHODS,
    REQUESTS,
    TEXT,
    Members,
    Method,
    is_modern,
)

ANNOTATION: Final = "x-mcp-header"

Path = tuple[str, ...]
"""Names of properties, from the root of a schema."""

_TOKEN: Final = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_KINDS: Final = frozenset(("string", "integer", "boolean"))
_SCHEMA: Final = frozenset(
    (
        "items",
        "contains",
        "unevaluatedItems",
        "additionalProperties",
        "propertyNames",
        "unevaluatedProperties",
        "not",
        "if",
        "then",
        "else",
        "contentSchema",
    )
)
_SCHEMAS: Final = frozenset(("allOf", "anyOf", "oneOf", "prefixItems"))
_NAMED_SCHEMAS: Final = frozenset(("patternProperties", "dependentSchemas", "$defs", "definitions"))


def header_map(schema: Any) -> dict[Path, str]:
    """The tokens of the annotations of an input schema, by the path of the argument; see `header_fault`."""
    return {path: token for path, token, _ in annotated_arguments(schema)}


def annotated_arguments(schema: Any) -> Iterator[tuple[Path, str, dict[str, Any]]]:
    """The annotated arguments of an input schema: path, token, and the schema of the argument."""
    for path, part in _positions(schema):
        token = part.get(ANNOTATION)
        if path and isinstance(token, str):
            yield path, token, part


def header_fault(schema: Any) -> str | None:
    """The fault of the annotations of an input schema; `None` if there is none."""
    seen: dict[str, str] = {}
    for path, part in _positions(schema):
        if ANNOTATION not in part:
            continue
        if not path:
            return f"{ANNOTATION} found at a schema position not reachable via a pure `properties` chain"
        where = ".".join(path)
        fault = _annotation_fault(part[ANNOTATION], part.get("type"))
        if fault is not None:
            return f"property {where!r}: {ANNOTATION} {fault}"
        token: str = part[ANNOTATION]
        other = seen.get(token.lower())
        if other is not None:
            return f"{ANNOTATION} {token!r} on property {where!r} duplicates property {other!r}"
        seen[token.lower()] = where
    return None


def _annotation_fault(token: object, kind: object) -> str | None:
    # The value is not shown before it is known to be text: Python writes no integer of thousands of digits.
    if not isinstance(token, str):
        return f"must be a string, not {type(token).__name__}"
    if not re.fullmatch(_TOKEN, token):
        return f"{token!r} is not an RFC 9110 token"
    if not isinstance(kind, str):
        said = f"the type keyword is {type(kind).__name__}, not a string"
    elif kind not in _KINDS:
        said = f"got {kind!r}"
    else:
        return None
    return f"is only permitted on integer/string/boolean properties ({said})"


def _positions(root: Any) -> Iterator[tuple[Path | None, dict[str, Any]]]:
    """Every schema in a schema, with its path if `properties` alone lead to it.

    Data (`default`, `examples`, `const`, `enum`) is no schema, and `$ref` is not followed: the walk ends.
    """
    stack: list[tuple[Path | None, Any]] = [((), root)]
    while stack:
        path, node = stack.pop()
        if not isinstance(node, dict):
            continue
        part = cast("dict[str, Any]", node)
        yield path, part
        for keyword, value in part.items():
            if keyword == "properties" and isinstance(value, dict):
                named = cast("dict[str, Any]", value).items()
                stack.extend((None if path is None else (*path, name), below) for name, below in named)
            elif keyword in _SCHEMA:
                stack.append((None, value))
            elif keyword in _SCHEMAS and isinstance(value, list):
                stack.extend((None, below) for below in cast("list[Any]", value))
            elif keyword in _NAMED_SCHEMAS and isinstance(value, dict):
                stack.extend((None, below) for below in cast("dict[str, Any]", value).values())


VERSION_HEADER: Final = "mcp-protocol-version"
METHOD_HEADER: Final = "mcp-method"
NAME_HEADER: Final = "mcp-name"
PARAM_PREFIX: Final = "Mcp-Param-"

SESSION: Final = b"mcp-session-id"
"""The header that names a legacy session over HTTP."""

_ROUTING: Final = frozenset((VERSION_HEADER, METHOD_HEADER, NAME_HEADER))
_OPENING: Final = "=?base64?"
_CLOSING: Final = "?="


def encode_header_value(value: str) -> str:
    """A text as the value of a header: as it is if it survives the way, else `=?base64?…?=`."""
    if value.isascii() and value.isprintable() and value == value.strip() and _payload(value) is None:
        return value
    return f"{_OPENING}{base64.b64encode(value.encode()).decode('ascii')}{_CLOSING}"


def decode_header_value(value: str | None) -> str | None:
    """The text that a header's value stands for; `None` for none, and for base64 that is malformed."""
    payload = None if value is None or value[:1] != "=" else _payload(value)
    if payload is None:
        return value
    try:
        decoded = base64.b64decode(payload, validate=True)
        # Two ways to write one value would let an intermediary read another one than the server.
        return decoded.decode() if base64.b64encode(decoded).decode("ascii") == payload else None
    # What is no base64, or no text.
    except ValueError:
        return None


def _payload(value: str) -> str | None:
    """The base64 in a header's value, if it is marked as such."""
    payload = value[len(_OPENING) : -len(_CLOSING)]
    return payload if value == f"{_OPENING}{payload}{_CLOSING}" and "\n" not in payload else None


def routing_headers(
    version: str, method: str, params: Mapping[str, Any], header_map: Mapping[tuple[str, ...], str]
) -> dict[str, str]:
    made = {VERSION_HEADER: version}
    if not is_modern(version):
        return made
    made[METHOD_HEADER] = method
    name = params.get(NAME_PARAMETERS[method]) if method in NAME_PARAMETERS else None
    if isinstance(name, str):
        made[NAME_HEADER] = encode_header_value(name)
    if header_map:
        made.update(param_headers(header_map, params.get("arguments") or {}))
    return made


def param_headers(header_map: Mapping[tuple[str, ...], str], arguments: Mapping[str, Any]) -> dict[str, str]:
    """The headers `Mcp-Param-…` of a call; an argument that is absent, null or no scalar has none."""
    made: dict[str, str] = {}
    for path, token in header_map.items():
        written = _written(_argument(arguments, path))
        if written is not None:
            made[PARAM_PREFIX + token] = encode_header_value(written)
    return made


def check_routing_once(names: Iterable[str]) -> None:
    """Refuse a request that has a routing header twice: its readers may disagree about which one counts."""
    seen: set[str] = set()
    for name in map(str.lower, names):
        if name in _ROUTING and name in seen:
            raise _mismatch(f"{name} header appears more than once")
        seen.add(name)


def check_routing(
    version: object, method: str, params: Mapping[str, Any], headers: Mapping[str, str]
) -> None:
    """Compare the routing headers of a request with its body."""
    said = headers.get(VERSION_HEADER)
    # A null in the body is not to agree with a header that is missing.
    if said is None or said != version:
        raise _mismatch(f"{VERSION_HEADER} header does not match the request envelope's protocol version")
    if headers.get(METHOD_HEADER) != method:
        raise _mismatch(f"{METHOD_HEADER} header does not match the request body's method")
    if method in NAME_PARAMETERS:
        key = NAME_PARAMETERS[method]
        name = params.get(key)
        if name is not None and decode_header_value(headers.get(NAME_HEADER)) != name:
            raise _mismatch(f"{NAME_HEADER} header does not match the request body's {key!r} parameter")


def check_param_headers(
    schema: Any, arguments: Mapping[str, Any], headers: Iterable[tuple[str, str]]
) -> None:
    """Compare the headers `Mcp-Param-…` of a call with its arguments.

    Each annotated argument and its header are present together, and equal, or absent together; null counts as
    absent. A schema with malformed annotations checks nothing: clients leave such a tool out.
    """
    if header_fault(schema) is not None:
        return
    said: dict[str, list[str]] = {}
    for name, value in headers:
        said.setdefault(name.lower(), []).append(value)
    for path, token, annotated in annotated_arguments(schema):
        header = PARAM_PREFIX + token
        values = said.get(header.lower(), [])
        if len(values) > 1:
            raise _mismatch(f"{header} header appears more than once")
        argument = f"the request body's {'.'.join(path)!r} argument"
        value = _argument(arguments, path)
        fault = _param_fault(value, values[0] if values else None, annotated.get("type"), argument)
        if fault is not None:
            raise _mismatch(f"{header} header {fault}")


def _param_fault(value: Any, said: str | None, kind: object, argument: str) -> str | None:
    """The fault of a header, if anything, beside the value of its argument."""
    written = _written(value)
    if value is None:
        return None if said is None else f"is present but {argument} is absent"
    if said is None:
        return None if written is None else f"is missing but {argument} is present"
    if written is None:
        return f"does not match {argument}"
    decoded = decode_header_value(said)
    if decoded is None:
        return "carries a malformed base64 sentinel value"
    return None if _agrees(decoded, written, value, kind) else f"does not match {argument}"


def _agrees(decoded: str, written: str, value: Any, kind: object) -> bool:
    """True if a header says what an argument does; integers are compared as numbers, `42` with `42.0`."""
    number = re.fullmatch(r"(-?[0-9]+)(\.0+)?", decoded) if kind == "integer" else None
    if number is None or not _is_whole(value):
        return decoded == written
    try:
        return int(number[1]) == int(value)
    # Python reads no number of thousands of digits.
    except ValueError:
        return False


def _is_whole(value: Any) -> bool:
    if isinstance(value, bool):
        return False
    return isinstance(value, int) or (isinstance(value, float) and value.is_integer())


def _argument(arguments: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    node: Any = arguments
    for key in path:
        if not isinstance(node, Mapping):
            return None
        node = cast("Mapping[str, Any]", node).get(key)
    return node


def _written(value: Any) -> str | None:
    """A scalar as it stands in a header; `None` for what has no such form."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str | int | float):
        return None
    try:
        return str(value)
    # Python writes no integer of thousands of digits.
    except ValueError:
        return None


def _mismatch(message: str) -> json_rpc.MCPError:
    return json_rpc.MCPError(json_rpc.HEADER_MISMATCH, message)


Kind: TypeAlias = Literal["request", "notification", "answer", "garbage"]
"""The kind of a decoded message."""

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
    """The client of a request, from its own `_meta`, or once from the handshake.

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
    """The kind of a decoded message; a batch is garbage, as is a request whose id is no string or integer.

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


def id_of(message: object) -> json_rpc.RequestId | None:
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
        raise json_rpc.MCPError(
            json_rpc.INVALID_PARAMS,
            f"params._meta must be an object carrying the required {keys} envelope keys",
        )
    meta = cast("Meta", raw)
    if missing := [key for key in _REQUIRED if key not in meta]:
        raise json_rpc.MCPError(
            json_rpc.INVALID_PARAMS,
            f"params._meta is missing the required envelope key(s): {', '.join(missing)}",
        )
    version = meta[PROTOCOL_VERSION_META_KEY]
    if headers is not None:
        check_routing(version, method, params or {}, headers)
    if not isinstance(version, str):
        raise json_rpc.MCPError(
            json_rpc.INVALID_PARAMS, "the protocol-version envelope value must be a string"
        )
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


def malformed(fault: str) -> json_rpc.MCPError:
    return json_rpc.MCPError(json_rpc.INVALID_PARAMS, f"Invalid request parameters: {fault}")


def unsupported_version(
    requested: object, served: Sequence[str] = MODERN_PROTOCOL_VERSIONS
) -> json_rpc.MCPError:
    """The error for a revision that is not served; it names those that are."""
    data: dict[str, Any] = {"supported": list(served)}
    if isinstance(requested, str):
        data["requested"] = requested
    return json_rpc.MCPError(json_rpc.UNSUPPORTED_PROTOCOL_VERSION, "Unsupported protocol version", data)


Era: TypeAlias = Literal["legacy", "modern"]

INITIALIZE: Final = "initialize"
INITIALIZED: Final = "notifications/initialized"
MAX_CLIENT: Final = 128 * 1024
"""Bytes that a client may say about itself, as `held_by` counts them."""

_ENVELOPE_KEYS: Final = (
    PROTOCOL_VERSION_META_KEY,
    CLIENT_CAPABILITIES_META_KEY,
    CLIENT_INFO_META_KEY,
    LOG_LEVEL_META_KEY,
)
_NOTHING: Final[Mapping[str, Any]] = {}


def negotiated_version(requested: str) -> str:
    """The revision that a handshake agrees upon: the one asked for, else the newest of the legacy era."""
    return requested if requested in HANDSHAKE_PROTOCOL_VERSIONS else LATEST_HANDSHAKE_VERSION


class ServerMachine:
    """The protocol state of one client: what it has said, and what it may say next.

    Attributes:
        era: `None` before the first request.
        envelope: The client's description of itself: in the handshake, or with the last modern request.
        initialize_accepted: True if a handshake has come, or a client that sends none says that it is done;
            legacy requests other than `ping` are refused before.
        initialized: True if the client has said that its side of the handshake is done.
    """

    __slots__ = (
        "_era_is_given",
        "_methods",
        "_said",
        "envelope",
        "era",
        "initialize_accepted",
        "initialized",
    )

    def __init__(
        self,
        era: Era | None = None,
        *,
        version: str = LATEST_HANDSHAKE_VERSION,
        initialize_accepted: bool = False,
    ) -> None:
        self.era: Era | None = era
        self._know(Envelope(version))
        self.initialize_accepted = initialize_accepted
        self.initialized = initialize_accepted
        self._era_is_given = era is not None
        self._said: Mapping[str, Any] | None = None

    def receive_request(
        self, method: str, params: Mapping[str, Any] | None = None, headers: Mapping[str, str] | None = None
    ) -> Envelope:
        """Decide about a request that has come."""
        params = params or _NOTHING
        meta: Any = params["_meta"] if "_meta" in params else None
        if self.era is None:
            self.era = "modern" if method != INITIALIZE and has_envelope(params) else "legacy"
        if self.era == "modern":
            # A client says the same of itself in each request: it is looked at when that has changed.
            if method == INITIALIZE or self._said is None or _has_changed(meta, self._said):
                return self._receive_envelope(method, params, headers)
            if headers is not None:
                check_routing(self.envelope.protocol_version, method, params, headers)
        elif not self.initialize_accepted or method == INITIALIZE:
            return self._receive_early(method, params, meta)
        elif meta is not None and not self._era_is_given and has_envelope(params):
            raise _no_envelope()
        _check(method, params, meta, self._methods)
        return self.envelope

    def receive_notification(self, method: str, params: Mapping[str, Any] | None = None) -> bool:
        """True if a notification that has come is to be handled; a malformed or early one is dropped."""
        params = params or {}
        version = LATEST_MODERN_VERSION if self.era == "modern" else self.envelope.protocol_version
        if method in NOTIFICATION_METHODS:
            known = NOTIFICATIONS[version].get(method)
            if known is None or known.params.fault(params) is not None:
                return False
            if not (params.get("_meta") is None or isinstance(params["_meta"], Mapping)):
                return False
        if method == INITIALIZED:
            self.initialized = self.initialize_accepted = True
        return self.era == "modern" or self.initialize_accepted

    def _receive_early(self, method: str, params: Mapping[str, Any], meta: Any) -> Envelope:
        if method == INITIALIZE:
            _check(method, params, meta, self._methods)
            _check_size(params["clientInfo"], params["capabilities"])
            version = negotiated_version(params["protocolVersion"])
            self._know(Envelope(version, params["clientInfo"], params["capabilities"]))
            self.initialize_accepted = True
        elif not self._era_is_given and has_envelope(params):
            raise _no_envelope()
        elif method not in self._methods:
            raise _not_found(method)
        elif method != "ping":
            raise json_rpc.MCPError(
                json_rpc.INVALID_PARAMS, "Invalid request parameters: initialize first", ""
            )
        else:
            _check(method, params, meta, self._methods)
        return self.envelope

    def _receive_envelope(
        self, method: str, params: Mapping[str, Any], headers: Mapping[str, str] | None
    ) -> Envelope:
        """Decide about a modern request whose envelope is not that of the last one."""
        if method == INITIALIZE and not self._era_is_given:
            served = unsupported_version(params.get("protocolVersion")).data
            raise json_rpc.MCPError(
                json_rpc.UNSUPPORTED_PROTOCOL_VERSION,
                "this connection speaks 2026-07-28 and takes no handshake",
                served,
            )
        envelope = read_envelope(method, params, headers)
        meta, methods = cast("dict[str, Any]", params["_meta"]), REQUESTS[envelope.protocol_version]
        if method in REQUEST_METHODS and method not in methods:
            raise _not_found(method)
        check_envelope(meta)
        _check(method, params, meta, methods)
        if headers is None:
            # The endpoint of modern POSTs keeps that of one client alone.
            _check_size(envelope.client_info, envelope.client_capabilities)
        self._know(envelope)
        self._said = {key: meta[key] for key in _ENVELOPE_KEYS if key in meta}
        return envelope

    def _know(self, envelope: Envelope) -> None:
        self.envelope, self._methods = envelope, REQUESTS[envelope.protocol_version]


def _has_changed(meta: Any, said: Mapping[str, Any]) -> bool:
    if type(meta) is not dict:
        return True
    for key in _ENVELOPE_KEYS:
        if key in meta:
            if key not in said or meta[key] != said[key]:
                return True
        elif key in said:
            return True
    return False


def _check(
    method: str, params: Mapping[str, Any], meta: dict[str, Any] | None, methods: Mapping[str, Method]
) -> None:
    """Refuse malformed parameters, and a method that the protocol has, but not in this revision."""
    is_known = method in methods
    if not is_known and method in REQUEST_METHODS:
        raise _not_found(method)
    if meta is not None and (
        type(meta) is not dict or ("progressToken" in meta and type(meta["progressToken"]) is not int)
    ):
        check_meta(params)
    if is_known:
        fault = methods[method].params.fault(params)
        if fault is not None:
            raise malformed(fault)


def _check_size(*said: object) -> None:
    if json_rpc.held_by(json.dumps(said, separators=(",", ":")).encode()) > MAX_CLIENT:
        told = "clientInfo and capabilities are too long to be kept; send shorter ones"
        raise json_rpc.MCPError(json_rpc.INVALID_PARAMS, f"Invalid request parameters: {told}", "")


def _not_found(method: str) -> json_rpc.MCPError:
    return json_rpc.MCPError(json_rpc.METHOD_NOT_FOUND, "Method not found", method)


def _no_envelope() -> json_rpc.MCPError:
    return json_rpc.MCPError(
        json_rpc.INVALID_REQUEST,
        "the first request of this connection had no envelope: requests with the one of 2026-07-28 are not "
        "accepted on it",
    )
