"""Check definitions for hidden text and lookalike names: what is cleaned, flagged or set aside.

Texts can be cleaned: titles, descriptions, annotations. The name of a tool or parameter, or a value, cannot,
because the server would not recognise it, and hidden characters have no honest use there; such a tool is set
aside. Patterns may name characters that they forbid, so in patterns only tag characters count.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

from mcp_toolset._records import dataclass, replace
from mcp_toolset.catalog.pins.canonical import TABLES_OF_SCHEMAS, VALUES, Part, only_says, parts
from mcp_toolset.tools.core.definition import ToolDefinition, texts_in
from mcp_toolset.tools.text.hidden_text import HiddenTextPolicy, cleaned_metadata, hidden_in, visible

_LIKE_LATIN: Final = frozenset(
    "АВЕЅІЈКМНОРСТУХҮԌԚԜаеорсухіјѕһԁԛԝҽҹпгӏѴѵΑΒΕΖΗΙΚΜΝΟΡΤΥΧαιοκνρτυχγϲϳՕՍՏօսհոցզքԱᎪᏴᏟᎠᎬᎳᎷᎻᎫᏞᎡᏚᎢᏙᏔᏃⲟⲣⲥⲭⲞⲢⲤⲦ"
)
_WORD: Final = re.compile(r"[^\W_]+")


def lookalikes(name: str) -> str:
    """The letters of a name that look like Latin ones next to real Latin ones; empty if it is honest.

    Forms that are Latin letters by compatibility (full width, mathematical) count as well.
    """
    if name.isascii():
        return ""
    found = [letter for word in _WORD.findall(name) for letter in _mixed(word)]
    return "".join(dict.fromkeys(found))


def _mixed(word: str) -> list[str]:
    imitations = [letter for letter in word if letter in _LIKE_LATIN]
    forms = [letter for letter in word if not letter.isascii() and _is_latin_form(letter)]
    has_latin = any(letter.isascii() and letter.isalpha() for letter in word)
    return [*forms, *(imitations if has_latin or forms else ())]


def _is_latin_form(letter: str) -> bool:
    plain = unicodedata.normalize("NFKC", letter)
    return plain.isascii() and plain.isalnum() and unicodedata.category(letter)[0] == "L"


__all__ = ["Tidied", "lookalikes", "tidied"]

_ESCAPED: Final = re.compile(r"\\[^\"\\]")
_BREAKS: Final = ("\t", "\n", "\r")


@dataclass(frozen=True, slots=True)
class Tidied:
    """The result of checking one definition.

    Attributes:
        definition: The definition to use; unchanged if nothing was cleaned.
        notes: What was found, one line each; empty if nothing was.
        refused: Whether the tool should be set aside.
    """

    definition: ToolDefinition
    notes: tuple[str, ...] = ()
    refused: bool = False


def tidied(definition: ToolDefinition, policy: HiddenTextPolicy = "strip") -> Tidied:
    if _is_plain(definition):
        return Tidied(definition)
    said = [
        Part(part.kind, f"{label}{part.path}", part.value)
        for label, schema in (
            ("inputSchema", definition.input_schema),
            ("outputSchema", definition.output_schema),
        )
        for part in parts(schema)
    ]
    fixed = (*_in_name("its name", definition.name), *_in_values(definition, said))
    notes = (*fixed, *_in_wording(definition, said))
    if not notes or policy == "flag":
        return Tidied(definition, notes)
    if policy == "refuse" or fixed:
        return Tidied(definition, notes, refused=True)
    return Tidied(_without(definition), notes)


def _is_plain(definition: ToolDefinition) -> bool:
    """Whether it is printable ASCII: the common case, checked at once."""
    text = json.dumps(definition.to_wire(), ensure_ascii=False)
    return text.isascii() and "\x7f" not in text and not _ESCAPED.search(text)


def _in_values(definition: ToolDefinition, said: list[Part]) -> Iterator[str]:
    """Hidden characters where nothing can be cleaned."""
    for part in said:
        match part.kind:
            case "name":
                yield from _in_name(f"a name in {visible(part.path)}", part.value)
            case "pattern":
                yield from (note for note in _hidden(part.path, part.value) if "tag characters" in note)
            case "value":
                yield from _hidden(part.path, part.value)
            case "wording":
                pass
    for key, value in definition.extra.items():
        yield from _hidden(key, [key, value])


def _in_name(place: str, name: str) -> Iterator[str]:
    found = hidden_in(name)
    if found or any(sign in name for sign in _BREAKS):
        yield f"{place} hides {', '.join(found) or 'a line break'}: {visible(name)!r}"
    if letters := lookalikes(name):
        yield f"{place} imitates Latin letters: {ascii(letters)[1:-1]} in {ascii(name)}"


def _in_wording(definition: ToolDefinition, said: list[Part]) -> Iterator[str]:
    wording = [(part.path, part.value) for part in said if part.kind == "wording"]
    for place, value in (
        ("title", definition.title),
        ("description", definition.description),
        ("annotations", definition.annotations),
        *wording,
    ):
        yield from _hidden(place, value)
        if letters := lookalikes(" ".join(texts_in(value))):
            yield f"{visible(place)} imitates Latin letters: {ascii(letters)[1:-1]}"


def _hidden(place: str, value: Any) -> Iterator[str]:
    for text in texts_in(value):
        if found := hidden_in(text):
            yield f"{visible(place)} hides {', '.join(found)}"


def _without(definition: ToolDefinition) -> ToolDefinition:
    return replace(
        definition,
        title=cast("str | None", cleaned_metadata(definition.title)),
        description=cast("str | None", cleaned_metadata(definition.description)),
        annotations=cast("Any", cleaned_metadata(definition.annotations)),
        input_schema=_cleaned_schema(definition.input_schema),
        output_schema=_cleaned_schema(definition.output_schema),
    )


def _cleaned_schema(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_cleaned_schema(part) for part in cast("list[Any]", schema)]
    if not isinstance(schema, Mapping):
        return schema
    table = cast("Mapping[str, Any]", schema)
    return {key: _cleaned_member(key, value) for key, value in table.items()}


def _cleaned_member(key: str, value: Any) -> Any:
    if key in TABLES_OF_SCHEMAS and isinstance(value, dict):
        table = cast("dict[str, Any]", value)
        return {name: _cleaned_schema(part) for name, part in table.items()}
    if only_says(key):
        return value if key in VALUES else cleaned_metadata(value)
    return value if key in ("enum", "const") else _cleaned_schema(value)
