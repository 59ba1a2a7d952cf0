"""`CatalogEntry`: a tool in the catalog, with the texts that a search reads.

Schemas come from strangers: parts with an unexpected shape are ignored, never an error.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import cached_property
from hashlib import blake2b
from itertools import islice
from typing import Any, TypeGuard, cast

from mcp_toolset._records import dataclass
from mcp_toolset.tools.call import ToolContext
from mcp_toolset.tools.definition import ToolDefinition
from mcp_toolset.tools.hidden_text import cleaned

DESCRIPTION_LINE = 160  # characters
_SIGNATURE = 400  # characters of the parameters in a signature
_TYPE = 60  # characters of a type in it
_NESTING = 3  # levels of a schema that are read
_PARAMETERS = 200  # parameters, and alternatives of a type, that are read
_CHOICES = 5  # values of an `enum` that are named

_JOINER = "\u200d"
_WRITTEN = json.JSONEncoder(default=repr, check_circular=False)


@dataclass(frozen=True)
class CatalogEntry:
    """One tool of a catalog.

    Attributes:
        definition: The tool's definition.
        public_name: Its public name; unique within a catalog.
        server: The source it comes from; `None` for a local tool.
        tags: More words to find it by.
        tool_id: An id that stays when the public name changes, if there is one.
    """

    definition: ToolDefinition
    public_name: str
    server: str | None = None
    tags: tuple[str, ...] = ()
    tool_id: str | None = None

    @property
    def id(self) -> str:
        """The id in a hit: `tool_id`, or else the public name."""
        return self.tool_id or self.public_name

    @property
    def own_name(self) -> str:
        """The tool's own name, before any prefix."""
        return self.definition.name

    def same_content(self, other: CatalogEntry) -> bool:
        """True if everything that is shown or searched is the same; definitions are compared by digest."""
        ours = (self.public_name, self.server, self.tags, self.tool_id)
        theirs = (other.public_name, other.server, other.tags, other.tool_id)
        return ours == theirs and self.definition.digest == other.definition.digest

    def texts(self) -> Iterator[str]:
        """All texts that are shown or searched."""
        tool = self.definition
        yield from filter(None, (self.public_name, tool.name, tool.title, tool.description, *self.tags))
        yield self.signature
        for parameter in self.parameters():
            yield from parameter

    def fingerprint(self) -> bytes:
        """A fingerprint of the content, order of parameters included: sixteen bytes.

        Empty for what cannot be written as JSON.
        """
        tool = self.definition
        schemas = tool.input_schema, tool.output_schema
        others = tool.annotations, tool.icons, tool.meta, tool.extra
        own = self.public_name, self.server, self.tags, self.tool_id, tool.name, tool.title, tool.description
        try:
            written = _WRITTEN.encode((own, schemas, others))
        except (TypeError, ValueError, RecursionError):
            return b""
        return blake2b(written.encode(), digest_size=16).digest()

    @cached_property
    def description_line(self) -> str:
        """The description, or else the title, on one line of at most `DESCRIPTION_LINE` characters."""
        return shortened(self.definition.description or self.definition.title or "", DESCRIPTION_LINE)

    @cached_property
    def signature(self) -> str:
        """`create_issue(owner: string, title: string, body?: string)`: required parameters first.

        A long list of parameters ends in `…`; a type without a short name is `any` or `object`.
        """
        required = _texts(self.definition.input_schema.get("required"))
        parameters = sorted(
            _properties(self.definition.input_schema), key=lambda item: item[0] not in required
        )
        shown = (
            f"{name}{'' if name in required else '?'}: {type_name(schema)}" for name, schema in parameters
        )
        return _on_one_line(f"{self.public_name}({_joined(shown)})")

    def parameters(self) -> Iterator[tuple[str, str]]:
        """Names and descriptions of the parameters, those of nested objects after their parent."""
        return islice(_walk(self.definition.input_schema, _NESTING), _PARAMETERS)


def entry_of(item: CatalogEntry | ToolDefinition, server: str | None = None) -> CatalogEntry:
    return item if isinstance(item, CatalogEntry) else CatalogEntry(item, item.name, server)


def shortened(text: str, limit: int) -> str:
    """The text on one line of at most `limit` characters, cut between words, or else between graphemes."""
    text = text.lstrip()
    head = text[: 8 * limit]
    line = _on_one_line(head)
    if len(line) < limit or (len(line) == limit and len(head) == len(text)):
        return line if len(head) == len(text) else f"{line}…"
    space = line.rfind(" ", limit // 2, limit)
    return line[: space if space > 0 else _grapheme_end(line, limit - 1)] + "…"


def type_name(schema: object, nesting: int = _NESTING) -> str:
    """A short name for the type of a JSON Schema: `string`, `integer[]`, `"asc"|"desc"`, `any`."""
    if not _is_mapping(schema) or nesting == 0:
        return "any"
    named = (
        _choices(schema) or _reference(schema) or _array(schema, nesting) or _alternatives(schema, nesting)
    )
    named = named or _either(_texts(schema.get("type")))
    return named if 0 < len(named) <= _TYPE else "object" if "properties" in schema else "any"


def _choices(schema: Mapping[str, Any]) -> str:
    listed: object = [schema["const"]] if "const" in schema else schema.get("enum")
    values = cast("list[object]", listed) if isinstance(listed, list) else []
    if not 0 < len(values) <= _CHOICES or not all(map(_is_scalar, values)):
        return ""
    named = "|".join(json.dumps(value, ensure_ascii=False) for value in values)
    return named if len(named) <= _TYPE else ""


def _is_scalar(value: object) -> bool:
    if isinstance(value, int):
        return abs(value) < 2**64
    return value is None or isinstance(value, str | float)


def _reference(schema: Mapping[str, Any]) -> str:
    reference = schema.get("$ref")
    return reference.rsplit("/", 1)[-1] if isinstance(reference, str) else ""


def _array(schema: Mapping[str, Any], nesting: int) -> str:
    if schema.get("type") != "array":
        return ""
    item = type_name(schema.get("items"), nesting - 1)
    return f"({item})[]" if "|" in item else f"{item}[]"


def _alternatives(schema: Mapping[str, Any], nesting: int) -> str:
    for key in ("anyOf", "oneOf"):
        options: object = schema.get(key)
        if isinstance(options, list) and options:
            several = cast("list[object]", options)[:_PARAMETERS]
            return _either({type_name(option, nesting - 1) for option in several})
    return ""


def _either(names: AbstractSet[str]) -> str:
    return "|".join(sorted(names, key=lambda name: (name == "null", name)))


def _walk(schema: object, nesting: int) -> Iterator[tuple[str, str]]:
    if nesting == 0 or not _is_mapping(schema):
        return
    for name, inner in _properties(schema):
        described = inner.get("description") if _is_mapping(inner) else None
        yield name, described if isinstance(described, str) else ""
        yield from _walk(inner, nesting - 1)
    yield from _walk(schema.get("items"), nesting - 1)


def _properties(schema: Mapping[str, Any]) -> list[tuple[str, object]]:
    properties: object = schema.get("properties")
    return [(str(name), inner) for name, inner in properties.items()] if _is_mapping(properties) else []


def _is_mapping(value: object) -> TypeGuard[Mapping[str, Any]]:
    # Nearly all are dictionaries, and checking for `dict` is ten times as fast.
    return isinstance(value, dict) or isinstance(value, Mapping)


def _texts(value: object) -> frozenset[str]:
    values = cast("list[object]", value) if isinstance(value, list | tuple) else [value]
    return frozenset(item for item in values if isinstance(item, str))


def _on_one_line(text: str) -> str:
    return " ".join(cleaned(text).split())


def _joined(parts: Iterable[str]) -> str:
    joined = ", ".join(islice(parts, _PARAMETERS))
    if len(joined) <= _SIGNATURE:
        return joined
    comma = joined.rfind(", ", 0, _SIGNATURE)
    return joined[: comma + 2 if comma > 0 else _SIGNATURE] + "…"


def _grapheme_end(line: str, end: int) -> int:
    """The last place at or before `end` that is not inside a grapheme; `end` itself if there is none."""
    for place in range(end, 0, -1):
        if not _continues(line[place]) and line[place - 1] != _JOINER:
            return place
    return end


def _continues(character: str) -> bool:
    is_mark = unicodedata.category(character).startswith("M")
    return is_mark or character == _JOINER or "\U0001f3fb" <= character <= "\U0001f3ff"


class SearchListener:
    """Observes searches and the use of their hits."""

    def bonus(self, context: ToolContext, query: str) -> Mapping[str, float]:
        """The addition to the scores of some hits of a search, by tool."""
        return {}

    def searched(self, context: ToolContext, query: str, tools: Sequence[str]) -> None: ...
    def resolved(self, context: ToolContext, tool: str) -> None: ...
    def called(self, context: ToolContext, tool: str) -> None: ...
