"""A compact listing: short stubs in place of definitions, and the full definition on request.

A call of a stub is an ordinary call, and asking for help does not change the listing: a prompt cache stays
valid.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

from mcp_toolset._records import replace
from mcp_toolset.tools.binding import ToolBinding
from mcp_toolset.tools.definition import ToolDefinition
from mcp_toolset.tools.result import mapping_of

MAX_SUMMARY: Final = 80  # The largest number of characters of a stub's summary.
MAX_HINT: Final = 160  # The largest number of characters of a stub's argument hint.
MAX_VALUES: Final = 4  # The largest number of enum values in a hint.

_SENTENCE: Final = re.compile(r"(?<=[.!?])\s")
_PLAIN: Final = frozenset({"string", "integer", "number", "boolean", "null"})


def compact_listing(view: Mapping[str, ToolBinding]) -> list[ToolDefinition]:
    """A stub for each tool, in order: real name, one line of summary, argument hint, open schema.

    Titles and annotations stay, so that a client still knows which tools are read-only.
    """
    return [_stub(binding) for binding in view.values()]


def stubbed(binding: ToolBinding) -> ToolBinding:
    """The tool with its stub as its definition; its arguments are checked as before."""
    return replace(binding, definition=replace(_stub(binding), name=binding.definition.name))


def help_text(view: Mapping[str, ToolBinding], names: Iterable[str]) -> str:
    """The full descriptions and schemas of some tools, each once; unknown names are reported as unknown.

    The text is for a model: a `tool_help` tool answers with it.
    """
    parts = [_help(view[name]) if name in view else f"Unknown tool: {name}" for name in dict.fromkeys(names)]
    return "\n\n".join(parts) or "Name at least one tool."


def summary_of(description: str | None) -> str:
    paragraph = (description or "").strip().split("\n\n")[0]
    return _cut(_SENTENCE.split(" ".join(paragraph.split()), maxsplit=1)[0], MAX_SUMMARY)


def argument_hint(schema: Mapping[str, Any]) -> str:
    """The arguments on one line of at most `MAX_HINT` characters: `city: string, days?: integer`."""
    properties = mapping_of(schema.get("properties"))
    required = schema.get("required") or ()
    hints = [f"{name}{'' if name in required else '?'}: {_kind(of)}" for name, of in properties.items()]
    for shown in range(len(hints), 0, -1):
        more = [f"{len(hints) - shown} more"] if shown < len(hints) else []
        text = ", ".join([*hints[:shown], *more])
        if len(text) <= MAX_HINT:
            return text
    return f"{len(hints)} argument{'s' * (len(hints) > 1)}" if hints else ""


def _stub(binding: ToolBinding) -> ToolDefinition:
    definition = binding.definition
    hint = argument_hint(definition.input_schema) or "none"
    summary = summary_of(definition.description)
    return ToolDefinition(
        name=binding.name,
        description=f"{summary} Arguments: {hint}".strip(),
        input_schema={"type": "object", "properties": {}},
        title=definition.title,
        annotations=definition.annotations,
    )


def _help(binding: ToolBinding) -> str:
    definition = binding.definition
    lines = [f"# {binding.name}", *filter(None, [definition.description])]
    lines.append(f"Arguments: {_json(definition.input_schema)}")
    if definition.output_schema is not None:
        lines.append(f"Result: {_json(definition.output_schema)}")
    return "\n".join(lines)


def _kind(schema: Any) -> str:
    keywords = mapping_of(schema)
    values = [keywords["const"]] if "const" in keywords else keywords.get("enum")
    if isinstance(values, list):
        listed = cast("list[Any]", values)
        shown = [_json(value) for value in listed[:MAX_VALUES]]
        return " | ".join([*shown, "…"] if len(listed) > MAX_VALUES else shown)
    kinds = keywords.get("type")
    if isinstance(kinds, list):
        return " | ".join(_kind({**keywords, "type": kind}) for kind in cast("list[Any]", kinds))
    if kinds == "array":
        inner = _kind(keywords.get("items"))
        return f"({inner})[]" if " " in inner else f"{inner}[]"
    return str(kinds) if kinds in _PLAIN else _union(keywords)


def _union(keywords: Mapping[str, Any]) -> str:
    branches = keywords.get("anyOf") or keywords.get("oneOf")
    if isinstance(branches, list):
        return " | ".join(dict.fromkeys(_kind(branch) for branch in cast("list[Any]", branches)))
    return "object" if keywords.get("type") == "object" or "$ref" in keywords else "any"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 1].rstrip()}…"
