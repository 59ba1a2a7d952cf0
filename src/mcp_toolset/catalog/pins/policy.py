"""`Pins`: compare a server's tools with their pinned definitions, and quarantine changed tools.

`Pins` uses `checked_text`, which finds hidden text and imitated letters in one definition, and `gained`,
which tells whether a changed tool accepts more than the pinned one, or reaches something else.

A pin is the canonical definition of a tool. It comes from a lock file, which a person wrote with
`mcp-toolset pin`, or else from the first listing of this process. Later listings are always compared with the
pin, never with the listing before: a definition cannot be changed in small steps, nor by disappearing for a
while.

| on a server | unchanged | can do more, or risky words gained | other words | other changes | a new tool |
|---|---|---|---|---|---|
| in the lock file | served | quarantined | quarantined | served, reported | quarantined |
| seen by this process | served | quarantined | served, reported | served, reported | served |

`accept`, `warn` and `quarantine` decide for the whole row instead. A tool is new to this process if it was
not in the first list of the server. A quarantined tool is not listed, called
or found; its name, its accepted definition and the reason are in the status of its source.
"""

from __future__ import annotations

import json
import logging
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Final, Literal, cast, get_args

from mcp_toolset._records import dataclass, replace
from mcp_toolset.catalog.pins.canonical import (
    TABLES_OF_SCHEMAS,
    VALUES,
    SchemaPart,
    canonical,
    digest_of,
    is_annotation,
    parts,
    plain_json,
)
from mcp_toolset.catalog.pins.differences import compared, has_new_text, in_one_line
from mcp_toolset.catalog.pins.lockfile import LockEntry, Pinned
from mcp_toolset.catalog.snapshot import CatalogSnapshot, ListedTool
from mcp_toolset.errors import DefinitionError
from mcp_toolset.tools.definition import REACHES_META_KEY, ToolDefinition, texts_in
from mcp_toolset.tools.hidden_text import HiddenTextPolicy, cleaned_metadata, hidden_in, in_log, visible
from mcp_toolset.tools.result import list_of, mapping_of
from mcp_toolset.tools.source import ToolChange

_LIKE_LATIN: Final = frozenset(
    "АВЕЅІЈКМНОРСТУХҮԌԚԜаеорсухіјѕһԁԛԝҽҹпгӏѴѵΑΒΕΖΗΙΚΜΝΟΡΤΥΧαιοκνρτυχγϲϳՕՍՏօսհոցզքԱᎪᏴᏟᎠᎬᎳᎷᎻᎫᏞᎡᏚᎢᏙᏔᏃⲟⲣⲥⲭⲞⲢⲤⲦ"
)
_WORD: Final = re.compile(r"[^\W_]+")


def lookalikes(name: str) -> str:
    """The letters of a name that imitate Latin letters beside real ones; empty without any."""
    # Forms that are Latin letters by compatibility (full width, mathematical) count as well.
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


_ESCAPED: Final = re.compile(r"\\[^\"\\]")
_BREAKS: Final = ("\t", "\n", "\r")


@dataclass(frozen=True, slots=True)
class CheckedText:
    """The result of checking one definition."""

    definition: ToolDefinition  # the definition to use; unchanged if nothing was cleaned
    notes: tuple[str, ...] = ()  # what was found, one line each; empty if nothing was
    refused: bool = False  # whether the tool is set aside


def checked_text(definition: ToolDefinition, policy: HiddenTextPolicy = "strip") -> CheckedText:
    if _is_plain(definition):
        return CheckedText(definition)
    said = [
        SchemaPart(part.kind, f"{label}{part.path}", part.value)
        for label, schema in (
            ("inputSchema", definition.input_schema),
            ("outputSchema", definition.output_schema),
        )
        for part in parts(schema)
    ]
    fixed = (*_in_name("its name", definition.name), *_in_values(definition, said))
    notes = (*fixed, *_in_wording(definition, said))
    if not notes or policy == "flag":
        return CheckedText(definition, notes)
    if policy == "refuse" or fixed:
        return CheckedText(definition, notes, refused=True)
    return CheckedText(_cleaned(definition), notes)


def _is_plain(definition: ToolDefinition) -> bool:
    """True if the definition is printable ASCII, as most are: then nothing else is checked."""
    text = json.dumps(definition.to_wire(), ensure_ascii=False)
    return text.isascii() and "\x7f" not in text and not _ESCAPED.search(text)


def _in_values(definition: ToolDefinition, said: list[SchemaPart]) -> Iterator[str]:
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


def _in_wording(definition: ToolDefinition, said: list[SchemaPart]) -> Iterator[str]:
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


def _cleaned(definition: ToolDefinition) -> ToolDefinition:
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
    if is_annotation(key):
        return value if key in VALUES else cleaned_metadata(value)
    return value if key in ("enum", "const") else _cleaned_schema(value)


_LOWER_BOUNDS: Final = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties")
_UPPER_BOUNDS: Final = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties")
_NARROWING: Final = ("pattern", "format", "multipleOf", "uniqueItems", "dependentRequired")
_TYPES: Final = frozenset({"null", "boolean", "object", "array", "number", "integer", "string"})
_COMPARED: Final = frozenset(
    {
        "type",
        "enum",
        "const",
        "required",
        "properties",
        "additionalProperties",
        "patternProperties",
        "propertyNames",
        "items",
        "allOf",
        "anyOf",
        "$defs",
        "definitions",
        *_LOWER_BOUNDS,
        *_UPPER_BOUNDS,
        *_NARROWING,
    }
)
_INVERTING: Final = re.compile(
    r'"(?:not|if|oneOf|contains|dependentSchemas|dependencies|unevaluated\w+|\$dynamicRef|\$recursiveRef)":'
)
"""Keywords under which a narrower subschema can widen the whole schema."""

_REFERENCE: Final = re.compile(r'"\$ref":"([^"]*)"')
_PLAIN_REFERENCE: Final = re.compile(r"#(?:/(?:\$defs|definitions)/[^/]+)?")

_HINTS: Final = (
    ("readOnlyHint", True, "it is no longer annotated as read-only"),
    ("destructiveHint", False, "it is no longer annotated as harmless (destructiveHint: false)"),
    ("idempotentHint", True, "it is no longer annotated as safe to repeat (idempotentHint)"),
    ("openWorldHint", False, "it is no longer annotated as closed to the outside (openWorldHint: false)"),
)
"""The hints that promise something, with the promising value; an absent hint promises nothing (schema.ts)."""


def gained(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[str, ...]:
    """The reasons why the new canonical definition may do more than the old one; empty if it may not."""
    reasons = [*_reach(old.get("_meta"), new.get("_meta"))]
    reasons += _hints(old.get("annotations"), new.get("annotations"))
    before, after = old.get("inputSchema"), new.get("inputSchema")
    if plain_json(_enforced(before)) != plain_json(_enforced(after)):
        reasons += _wider(before, after, "")
        # Such a schema is compared as well: a new parameter is easier to judge than a keyword.
        if _is_beyond_comparing(before) or _is_beyond_comparing(after):
            reasons.append("the arguments that it takes have changed in a way that is hard to compare")
    return tuple(dict.fromkeys(reasons))


def _reach(old: Any, new: Any) -> Iterator[str]:
    before, after = (mapping_of(meta).get(REACHES_META_KEY) for meta in (old, new))
    if plain_json(before) != plain_json(after):
        places = in_one_line(mapping_of(before), mapping_of(after))
        yield f"its calls reach something else: {places}"


def _hints(old: Any, new: Any) -> Iterator[str]:
    before, after = mapping_of(old), mapping_of(new)
    for hint, promise, reason in _HINTS:
        if before.get(hint) is promise and after.get(hint) is not promise:
            yield reason


def _is_beyond_comparing(schema: Any) -> bool:
    """True if a part may take effect elsewhere, so that parts cannot be compared one by one."""
    text = plain_json(schema)
    references = _REFERENCE.findall(text)
    if any(not _PLAIN_REFERENCE.fullmatch(reference) for reference in references):
        return True
    return bool(_INVERTING.search(text)) and (bool(references) or "unevaluated" in text)


def _wider(old: Any, new: Any, at: str) -> Iterator[str]:
    if new is False:
        return
    if old is False:
        yield f"{_shown(at)} was never allowed and is now"
        return
    before, after = mapping_of(old), mapping_of(new)
    if not before and not after:
        return
    yield from _types(before, after, at)
    yield from _choices(before, after, at)
    yield from _bounds(before, after, at)
    yield from _properties(before, after, at)
    yield from _subschemas(before, after, at)
    yield from _other_keywords(before, after, at)


def _types(old: Mapping[str, Any], new: Mapping[str, Any], at: str) -> Iterator[str]:
    more = _types_of(new) - _types_of(old)
    if more:
        yield f"{_shown(at)} takes more types: {', '.join(sorted(more))}"


def _types_of(schema: Mapping[str, Any]) -> frozenset[str]:
    said: Any = schema.get("type")
    if said is None:
        return _TYPES
    several = cast("list[Any]", said) if isinstance(said, list) else [said]
    names = frozenset(str(name) for name in several)
    return names | {"integer"} if "number" in names else names


def _choices(old: Mapping[str, Any], new: Mapping[str, Any], at: str) -> Iterator[str]:
    before, after = _values(old), _values(new)
    if before is not None and (after is None or not after <= before):
        more = "any value" if after is None else "more values: " + _some(after - before)
        yield f"{_shown(at)} takes {more}"


def _values(schema: Mapping[str, Any]) -> frozenset[str] | None:
    listed: Any = schema.get("enum")
    enum = None if not isinstance(listed, list) else frozenset(map(plain_json, cast("list[Any]", listed)))
    const = frozenset([plain_json(schema["const"])]) if "const" in schema else None
    return const if enum is None else enum if const is None else enum & const


def _bounds(old: Mapping[str, Any], new: Mapping[str, Any], at: str) -> Iterator[str]:
    for keys, sign in ((_LOWER_BOUNDS, -1), (_UPPER_BOUNDS, 1)):
        for key in keys:
            if key in old and not _is_within(old[key], new.get(key), sign):
                now = repr(new[key]) if key in new else "gone"
                yield f"{_shown(at)}: {key} was {old[key]!r} and is {now}"
    for key in _NARROWING:
        if key in old and _differs(key, old, new):
            yield f"{_shown(at)}: {key} was given up or has changed"


def _is_within(old: Any, new: Any, sign: int) -> bool:
    if not _is_number(old) or not _is_number(new):
        return old is new
    return new * sign <= old * sign


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _properties(old: Mapping[str, Any], new: Mapping[str, Any], at: str) -> Iterator[str]:
    before, after = mapping_of(old.get("properties")), mapping_of(new.get("properties"))
    rest = new.get("additionalProperties", True)
    for name in sorted(after.keys() - before.keys()):
        yield f"{_shown(at)} takes a new parameter `{name}`" if at else f"it takes a new parameter `{name}`"
    for name in sorted(before.keys() & after.keys()):
        yield from _wider(before[name], after[name], _under(at, name))
    for name in sorted(before.keys() - after.keys()):
        if new.get("patternProperties") or [*_wider(before[name], rest, _under(at, name))]:
            yield f"`{_under(at, name)}` is no longer described, so it takes anything"
    for name in sorted(_names(old.get("required")) - _names(new.get("required"))):
        yield f"`{_under(at, name)}` is no longer required"


def _subschemas(old: Mapping[str, Any], new: Mapping[str, Any], at: str) -> Iterator[str]:
    for key, step in (("additionalProperties", "*"), ("propertyNames", "(names)")):
        yield from _wider(old.get(key, True), new.get(key, True), _under(at, step))
    yield from _items(old, new, at)
    if _differs("patternProperties", old, new):
        yield f"{_shown(at)}: patternProperties has changed"
    for key in ("$defs", "definitions"):
        before, after = mapping_of(old.get(key)), mapping_of(new.get(key))
        for name in sorted(before.keys() & after.keys()):
            yield from _wider(before[name], after[name], _under(at, name))
    yield from _all_of(old, new, at)
    yield from _any_of(old, new, at)


def _items(old: Mapping[str, Any], new: Mapping[str, Any], at: str) -> Iterator[str]:
    before, after = old.get("items", True), new.get("items", True)
    if isinstance(before, list) or isinstance(after, list):
        if _differs("items", old, new):
            yield f"{_shown(at)}: items has changed"
    else:
        yield from _wider(before, after, f"{at}[]")


def _all_of(old: Mapping[str, Any], new: Mapping[str, Any], at: str) -> Iterator[str]:
    before, after = list_of(old.get("allOf")), list_of(new.get("allOf"))
    for part, now in zip(before, after, strict=False):
        yield from _wider(part, now, at)
    if len(after) < len(before):
        yield f"{_shown(at)}: a condition of allOf was given up"
    for added in after[len(before) :]:
        yield from (reason for reason in _wider({}, added, at) if "new parameter" in reason)


def _any_of(old: Mapping[str, Any], new: Mapping[str, Any], at: str) -> Iterator[str]:
    before, after = list_of(old.get("anyOf")), list_of(new.get("anyOf"))
    if before and not after:
        yield f"{_shown(at)}: the alternatives of anyOf were given up"
    known = {plain_json(_enforced(part)) for part in before}
    for place, now in enumerate(after):
        if plain_json(_enforced(now)) in known:
            continue
        if before and place >= len(before):
            yield f"{_shown(at)} takes another alternative"
        else:
            yield from _wider(before[place] if before else {}, now, at)


def _other_keywords(old: Mapping[str, Any], new: Mapping[str, Any], at: str) -> Iterator[str]:
    for key in sorted(old.keys() | new.keys()):
        if key in _COMPARED or is_annotation(key):
            continue
        if _differs(key, old, new):
            yield f"{_shown(at)}: {key} has changed"


def _differs(key: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    if key not in old or key not in new:
        return (key in old) != (key in new)
    return plain_json(_kept(key, old[key])) != plain_json(_kept(key, new[key]))


def _enforced(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_enforced(part) for part in cast("list[Any]", schema)]
    if not isinstance(schema, dict):
        return schema
    table = cast("dict[str, Any]", schema)
    return {key: _kept(key, value) for key, value in table.items() if not is_annotation(key)}


def _kept(key: str, value: Any) -> Any:
    if key in ("enum", "const", "required", "dependentRequired"):
        return value
    if key in TABLES_OF_SCHEMAS:
        return {name: _enforced(part) for name, part in mapping_of(value).items()}
    return _enforced(value)


def _names(value: Any) -> frozenset[str]:
    return frozenset(name for name in list_of(value) if isinstance(name, str))


def _under(at: str, name: str) -> str:
    return f"{at}.{name}" if at else name


def _shown(at: str) -> str:
    return f"`{at}`" if at else "the input"


def _some(values: frozenset[str]) -> str:
    shown = sorted(values)[:5]
    return ", ".join(shown) + (f" and {len(values) - 5} more" if len(values) > 5 else "")


ChangePolicy = Literal["accept", "warn", "quarantine"]
"""Serve a changed tool; serve it and report it; or quarantine it until a person accepts it."""

MAX_SEEN: Final = 50_000  # tools of one server whose first definition is remembered

_SHOWN: Final = 300
_LISTED: Final = 3
_MEND: Final = "see it with `mcp-toolset pin`, and accept it there"


@dataclass(frozen=True, slots=True)
class PinPolicy:
    """The reaction to definitions that change or that have hidden text.

    Attributes:
        changed: For tools that differ from their pin; with `None` the kind of change decides.
        new: For tools that the server did not have in the lock file, or without one, in its first list;
            `None` is as `changed`. If that is `None` too, only those that a lock file lacks are quarantined.
        hidden_text: For invisible, bidirectional and control characters.

    Raises:
        DefinitionError: there is no such reaction.
    """

    changed: ChangePolicy | None = None
    new: ChangePolicy | None = None
    hidden_text: HiddenTextPolicy = "strip"

    def __post_init__(self) -> None:
        for name, kind in (
            ("changed", ChangePolicy),
            ("new", ChangePolicy),
            ("hidden_text", HiddenTextPolicy),
        ):
            value, known = getattr(self, name), get_args(kind)
            if value not in known and (name == "hidden_text" or value is not None):
                raise DefinitionError(f"PinPolicy({name}=…) is one of {', '.join(known)}, not {value!r}")


@dataclass(frozen=True)
class _CleanDefinition:
    """A listed definition without the secrets of its mount."""

    definition: ToolDefinition

    @cached_property
    def canonical(self) -> Mapping[str, Any]:
        return canonical(self.definition)

    @cached_property
    def digest(self) -> str:
        return digest_of(self.canonical)


class Pins:
    """The pins of one server; compares the server's lists with them."""

    def __init__(
        self,
        server: str,
        policy: PinPolicy | None = None,
        entry: LockEntry | None = None,
        scrub: Callable[[str], str] | None = None,
    ) -> None:
        self._server = server
        self._policy = policy or PinPolicy()
        self._entry = entry
        self._scrub = scrub
        self._first: dict[str, _CleanDefinition] = {}
        self._has_listed = False  # whether the server has listed its tools in this process
        self._listed: dict[str, tuple[str, _CleanDefinition]] = {}
        self._reported: dict[str, str] = {}
        self._sees_first = self._is_live = True
        self._reported_texts: dict[str, str] = {}
        self._checked_texts: dict[str, tuple[str, CheckedText]] = {}
        self._log = logging.getLogger("mcp_toolset.pins")

    @property
    def entry(self) -> LockEntry | None:
        return self._entry

    @property
    def decides_by_list(self) -> bool:
        """True if the policy may quarantine a tool that the server has not listed yet."""
        pinned = self._entry is not None and self._entry.is_pinned
        return pinned or "quarantine" in (self._policy.changed, self._policy.new)

    def settle(self, policy: PinPolicy, entry: LockEntry | None) -> None:
        """Use another policy and lock file from now on; first definitions stay."""
        if policy.hidden_text != self._policy.hidden_text:
            self._checked_texts = {}
        self._policy, self._entry = policy, entry

    def remember(self, before: Pins) -> None:
        self._first, self._has_listed = dict(before._first), before._has_listed

    def listed(self) -> Pinned:
        listed = self._listed.items() if self._is_live else ()
        return {name: dict(seen.canonical) for name, (_, seen) in listed}

    @property
    def hidden_text(self) -> HiddenTextPolicy:
        return self._policy.hidden_text

    def admit(
        self, snapshot: CatalogSnapshot, *, remembered: bool = False, served_first: bool = False
    ) -> CatalogSnapshot:
        """A snapshot without quarantined tools, and without hidden text in the others.

        Reads the lock file if it has changed; to be called in a worker thread. A list `remembered` from the
        last run counts as the first sight of a tool only if every change is quarantined, or if clients are
        served it until a call starts the server (`served_first`).
        """
        self._sees_first = not remembered or served_first or self._policy.changed == "quarantine"
        self._is_live = not remembered
        locked = self._entry.refreshed() if self._entry is not None else None
        self._listed = {name: self._seen(tool.definition) for name, tool in snapshot.tools.items()}
        found = (self._change(seen, locked) for _, seen in self._listed.values())
        changes = tuple(change for change in found if change is not None)
        self._has_listed |= not remembered or served_first
        self._report(changes)
        held = {change.name: change for change in changes if change.held}
        aside = tuple((change.name, change.reason) for change in held.values())
        open_ = {name: tool for name, tool in snapshot.tools.items() if name not in held}
        return self._without_hidden_text(
            replace(snapshot, tools=open_, set_aside=(*snapshot.set_aside, *aside), changes=changes)
        )

    def _seen(self, definition: ToolDefinition) -> tuple[str, _CleanDefinition]:
        """The definition in comparable form, computed once for each definition."""
        digest = definition.digest
        known = self._listed.get(definition.name)
        if known is not None and known[0] == digest:
            return known
        shown = definition
        if self._scrub is not None:
            wire = scrubbed(definition.to_wire(), self._scrub)
            shown = ToolDefinition.from_wire(wire | {"name": definition.name})
        return digest, _CleanDefinition(shown)

    def _change(self, seen: _CleanDefinition, locked: Pinned | None) -> ToolChange | None:
        name = seen.definition.name
        pin: Mapping[str, Any] | None = None if locked is None else locked.get(name)
        is_later = self._has_listed and name not in self._first
        is_new = pin is None and (is_later if locked is None else True)
        on_new = self._policy.new or self._policy.changed or ("accept" if locked is None else "quarantine")
        if is_new and on_new == "quarantine":
            return _new(seen, held=True)
        if pin is None:
            first = self._remembered(seen)
            if first is None:
                return replace(
                    _new(seen, held=True), reason=f"the server has named more than {MAX_SEEN} tools"
                )
            pin = None if first is seen else first.canonical
        if pin is not None and digest_of(pin) != seen.digest:
            return self._judged(seen, pin, is_locked=locked is not None and not is_new)
        return _new(seen, held=False) if is_new and on_new == "warn" else None

    def _remembered(self, seen: _CleanDefinition) -> _CleanDefinition | None:
        """The first definition of this name, which may be this one; `None` if there were too many names."""
        name = seen.definition.name
        if name not in self._first and len(self._first) >= MAX_SEEN:
            return None
        if not self._sees_first:
            return self._first.get(name, seen)
        return self._first.setdefault(name, seen)

    def _judged(
        self, seen: _CleanDefinition, pin: Mapping[str, Any], *, is_locked: bool
    ) -> ToolChange | None:
        policy = self._policy.changed
        if policy == "accept":
            return None
        # Its patterns take longer to compile than a server to start; only tools that have changed need them.
        from mcp_toolset.catalog.pins.risky_text import text_gained

        reasons = (*gained(pin, seen.canonical), *text_gained(pin, seen.canonical))
        held = policy == "quarantine"
        if policy is None:
            held = bool(reasons) or (is_locked and has_new_text(pin, seen.canonical))
        return _changed(seen, pin, reasons, held=held)

    def _without_hidden_text(self, snapshot: CatalogSnapshot) -> CatalogSnapshot:
        tools: dict[str, ListedTool] = {}
        self._checked_texts = {
            name: done for name, done in self._checked_texts.items() if name in snapshot.tools
        }
        aside: list[tuple[str, str]] = []
        flagged: list[tuple[str, str]] = []
        for name, tool in snapshot.tools.items():
            done = self._checked_text(tool.definition)
            note = _short(self._scrub("; ".join(done.notes)) if self._scrub else "; ".join(done.notes))
            if done.refused:
                aside.append((name, note))
                continue
            if note:
                flagged.append((name, note))
            tools[name] = (
                tool if done.definition is tool.definition else replace(tool, definition=done.definition)
            )
        self._report_texts("set aside", aside)
        self._report_texts("cleaned" if self._policy.hidden_text == "strip" else "served unchanged", flagged)
        return replace(snapshot, tools=tools, set_aside=(*snapshot.set_aside, *aside), flagged=tuple(flagged))

    def _checked_text(self, definition: ToolDefinition) -> CheckedText:
        known = self._checked_texts.get(definition.name)
        if known is None or known[0] != definition.digest:
            known = definition.digest, checked_text(definition, self._policy.hidden_text)
            self._checked_texts[definition.name] = known
        return known[1]

    def _report(self, changes: Iterable[ToolChange]) -> None:
        told = self._reported
        self._reported = {change.name: change.offered.digest for change in changes}
        for change in changes:
            if told.get(change.name) != change.offered.digest:
                fate = "held back" if change.held else "served"
                self._log.warning(
                    "%s: %s is %s: %s", self._server, in_log(change.name), fate, in_log(change.reason)
                )

    def _report_texts(self, fate: str, tools: Iterable[tuple[str, str]]) -> None:
        for name, note in tools:
            if self._reported_texts.get(name) != note:
                self._reported_texts[name] = note
                self._log.warning("%s: %s is %s: %s", self._server, in_log(name), fate, in_log(note))


def scrubbed(value: Any, scrub: Callable[[str], str]) -> Any:
    """A JSON value without secrets, in keys and texts; JSON's own type names are never secrets."""
    # Keys that become equal are kept apart: every part of a definition must count in its digest.
    if isinstance(value, str):
        return value if value in _TYPES else scrub(value)
    if isinstance(value, list | tuple):
        return [scrubbed(item, scrub) for item in cast("Iterable[Any]", value)]
    if not isinstance(value, Mapping):
        return value
    table: dict[str, Any] = {}
    for key, item in sorted(cast("Mapping[str, Any]", value).items()):
        clean = scrub(key) if key not in _TYPES else key
        while clean in table:
            clean += "*"
        table[clean] = scrubbed(item, scrub)
    return table


def _new(seen: _CleanDefinition, *, held: bool) -> ToolChange:
    reason = f"it is new since the server was pinned; {_MEND}"
    return ToolChange(seen.definition.name, held, None, seen.definition, reason=reason)


def _changed(
    seen: _CleanDefinition, pin: Mapping[str, Any], reasons: Sequence[str], *, held: bool
) -> ToolChange:
    gains = tuple(map(_short, reasons))
    places = tuple(_short(difference.path) for difference in compared(pin, seen.canonical))
    said = [*gains, *(f"{place} differs" for place in places)]
    more = f" and {len(said) - _LISTED} more" if len(said) > _LISTED else ""
    reason = f"its definition has changed since it was pinned: {'; '.join(said[:_LISTED])}{more}; {_MEND}"
    pinned = ToolDefinition.from_wire(pin)
    return ToolChange(seen.definition.name, held, pinned, seen.definition, gains, places, reason)


def _short(text: str) -> str:
    line = visible(text.replace("\n", " "))
    return line if len(line) <= _SHOWN else f"{line[:_SHOWN]}…"
