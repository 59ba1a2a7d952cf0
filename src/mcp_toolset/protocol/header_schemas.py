"""`x-mcp-header` in input schemas: `header_map` says which arguments of a tool travel in HTTP headers too.

A client makes headers of it, a server compares them (`http_headers`). An annotation stands on a string,
integer or boolean property that `properties` alone lead to, and names a header token that no other annotation
of the schema has (2026-07-28, basic/transports/streamable-http, "Custom Headers").
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final, cast

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
    """What is wrong with the annotations of an input schema; `None` if nothing is."""
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
