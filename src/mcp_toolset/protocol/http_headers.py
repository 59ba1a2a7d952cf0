"""The HTTP headers of modern requests: routing, values in base64, and arguments that travel in headers too.

A client sends what `routing_headers` makes. A server compares that with the body: `check_routing` (as
`ServerMachine` does when it is given headers), and `check_param_headers` for a tool whose schema says so. The
HTTP status of an answer by the code of its error is `json_rpc.MODERN_STATUSES`.

Names of headers that are looked up are in lower case, and values are text (2026-07-28,
basic/transports/streamable-http, "Request Headers", "Custom Headers", "Value Encoding").
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, cast

from mcp_toolset.protocol.json_rpc import HEADER_MISMATCH, MCPError
from mcp_toolset.protocol.methods import NAME_PARAMETERS, is_modern

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


def _mismatch(message: str) -> MCPError:
    return MCPError(HEADER_MISMATCH, message)
