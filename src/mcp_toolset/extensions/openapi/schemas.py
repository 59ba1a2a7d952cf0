"""`Schemas`: the schemas of a document as JSON Schema 2020-12, for the arguments of tools.

A schema that is named becomes a definition (`$defs`) once for all tools, so that neither recursion nor
repetition makes it larger. What says nothing about arguments is left out: examples, titles, extensions, what
is read-only.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from typing import Any, Final, cast

from mcp_toolset._records import dataclass
from mcp_toolset.extensions.openapi.reading import DocumentError, Documents, Node, list_of, table_of, text_of

MAX_SCHEMA: Final = 48_000
"""The most characters of the arguments of one tool."""

_NODES: Final = 20_000  # values of one schema
_ALL: Final = 2_000_000  # values of all schemas of a document
_DEEPEST: Final = 40
_INLINE: Final = 160  # characters of a definition that stands where it is used
_TEXT: Final = 400  # characters of a description

_VALUES: Final = (
    *("type", "enum", "const", "format", "default", "multipleOf", "minimum", "maximum", "exclusiveMinimum"),
    *("exclusiveMaximum", "minLength", "maxLength", "minItems", "maxItems", "uniqueItems", "minContains"),
    *("maxContains", "minProperties", "maxProperties", "contentEncoding"),
)
_DATA: Final = ("enum", "const", "default")  # keywords whose values are no schemas
_ONE: Final = ("items", "not", "contains", "propertyNames", "if", "then", "else")
_NUMBERS: Final = frozenset(
    (
        "exclusiveMinimum",
        "exclusiveMaximum",
        "multipleOf",
        "minimum",
        "maximum",
        "minLength",
        "maxLength",
        "minItems",
        "maxItems",
        "minContains",
    )
) | {"maxContains", "minProperties", "maxProperties"}
_KINDS: Final = {"enum": list, "format": str, "contentEncoding": str, "uniqueItems": bool}
_PARTS: Final = 20  # parts of `allOf` that are looked at
_BRANCHES: Final = 200  # parts and branches of a schema that are looked at
_PLAIN_PARTS: Final = 50  # parts of `allOf` of a plain object
_OPENING: Final = frozenset(
    ("oneOf", "anyOf", "not", "patternProperties", "enum", "const", "if", "discriminator")
)  # keywords of what is no plain object
_TYPES: Final = frozenset(("string", "number", "integer", "boolean", "array", "object", "null"))

JsonSchema = dict[str, Any]

_NONE: Final = frozenset[str]()


@dataclass(frozen=True, slots=True)
class _Part:
    """A definition, or the arguments of a tool: the schema, the definitions that it names, and its size."""

    schema: JsonSchema
    names: tuple[str, ...]
    size: int

    @classmethod
    def of(cls, schema: JsonSchema) -> _Part:
        return cls(schema, tuple(references_in(schema)), len(json.dumps(schema)))


class Schemas:
    """The schemas of one document."""

    def __init__(self, documents: Documents, *, modern: bool, of_answers: bool = False) -> None:
        """Convert schemas of `documents`; those of OpenAPI 3.1 are JSON Schema already (`modern`).

        Those of answers are without what only requests have, and without all but their shape.
        """
        self._documents, self._modern, self._of_answers = documents, modern, of_answers
        self._names: dict[tuple[str, int, frozenset[str]], str] = {}
        self._marked: dict[int, tuple[dict[str, Any], frozenset[str]]] = {}
        self._all, self._left = _ALL, 0
        self._due: list[tuple[str, Node, frozenset[str]]] = []
        self._parts: dict[tuple[str, bool], _Part] = {}
        self._small: dict[str, JsonSchema | None] = {}
        self.definitions: dict[str, JsonSchema] = {}

    def of(self, node: Node) -> JsonSchema:
        """The JSON Schema of a schema, with references to `definitions`."""
        made = self._counted(node)
        while self._due:
            name, named, hidden = self._due.pop()
            self.definitions[name] = self._counted(named, hidden)
        return made

    def bounded(self, schema: JsonSchema) -> JsonSchema:
        """A schema with the definitions that it uses, not larger than a model can use.

        What is too much is left out, and allows anything: first the descriptions of nested values, then what
        is nested deeply.
        """
        whole = _Part.of(self._inlined(schema))
        for terse in (False, True):
            if (used := self._reached(whole, terse=terse, to_all=True)) is not None:
                return {**whole.schema, "$defs": used} if used else whole.schema
        if whole.size > MAX_SCHEMA:
            cuts = [_Part.of(_cut(_terse(whole.schema), depth)) for depth in (4, 3, 2, 1)]
            whole = next((one for one in cuts if one.size <= MAX_SCHEMA), cuts[-1])
        used = self._reached(whole, terse=True, to_all=False) or {}
        return {**whole.schema, "$defs": used} if used else whole.schema

    def _reached(self, whole: _Part, *, terse: bool, to_all: bool) -> dict[str, JsonSchema] | None:
        """The definitions that arguments use, the nearest first, as far as there is room.

        `None` if there is no room for all of them (`to_all`); else those that have none allow anything.
        """
        left, used = MAX_SCHEMA - whole.size, dict[str, JsonSchema]()
        due, known = [*whole.names], {*whole.names}
        if to_all and left < 0:
            return None
        for name in due:
            part = self._part(name, terse)
            if part.size > left:
                if to_all:
                    return None
                used[name] = {}
                continue
            left -= part.size + len(name)
            used[name] = part.schema
            new = [one for one in part.names if one not in known]
            due += new
            known.update(new)
        return used

    def _part(self, name: str, terse: bool) -> _Part:
        key = name, terse
        if key not in self._parts:
            made = self._part(name, False).schema if terse else self._inlined(self.definitions[name])
            self._parts[key] = _Part.of(_terse(made) if terse else made)
        return self._parts[key]

    def _inlined(self, schema: Any) -> Any:
        """A schema in which small definitions stand where they are used."""
        if isinstance(schema, list):
            return [self._inlined(one) for one in cast("list[Any]", schema)]
        if not isinstance(schema, dict):
            return schema
        table = cast("dict[str, Any]", schema)
        name = table.get("$ref")
        if isinstance(name, str):
            if (found := self._small_one(name.removeprefix("#/$defs/"))) is not None:
                return {**found, **{key: one for key, one in table.items() if key != "$ref"}}
        return {key: one if key in _DATA else self._inlined(one) for key, one in table.items()}

    def _small_one(self, name: str) -> JsonSchema | None:
        """A definition, if it is small and names no other one."""
        if name not in self._small:
            found = self.definitions.get(name)
            is_small = found and not references_in(found) and len(json.dumps(found)) < _INLINE
            self._small[name] = found if is_small else None
        return self._small[name]

    def _counted(self, node: Node, hidden: frozenset[str] = _NONE) -> JsonSchema:
        """A schema of at most so many values, all schemas of the document of at most so many more."""
        self._left = before = min(_NODES, self._all)
        made = self._made(node, 0, hidden)
        self._all -= before - max(self._left, 0)
        return _shape(made) if self._of_answers else made

    def members(self, made: JsonSchema) -> tuple[dict[str, JsonSchema], list[str]]:
        """The properties of a schema and of its `allOf`, and the names of the required ones."""
        left, seen = [made], set[int]()
        found, wanted = dict[str, JsonSchema](), list[str]()
        while left:
            one = left.pop(0)
            if isinstance(reference := one.get("$ref"), str):
                one = self.definitions[reference.removeprefix("#/$defs/")]
            if id(one) in seen:
                continue
            seen.add(id(one))
            for name, schema in one.get("properties", {}).items():
                is_known = name in found and found[name] != schema
                found[name] = {"allOf": [found[name], schema]} if is_known else schema
            wanted += one.get("required", [])
            left += one.get("allOf", [])
        return found, [one for one in dict.fromkeys(wanted) if one in found]

    def flat(self, node: Node, *more: str) -> Iterator[Node]:
        """A schema, those that its references name, and those of its `allOf`; `more` are other such keys."""
        left, seen = [node], set[int]()
        while left:
            one = left.pop(0)
            table = table_of(one.value)
            if not table or id(table) in seen:
                continue
            seen.add(id(table))
            yield one
            if isinstance(reference := table.get("$ref"), str):
                left.append(self._documents.end(one.within({"$ref": reference})))
            left += (one.within(each) for key in ("allOf", *more) for each in list_of(table.get(key)))

    def _made(self, node: Node, depth: int, hidden: frozenset[str] = _NONE) -> JsonSchema:
        """The JSON Schema of a schema, in which the properties `hidden` are not described."""
        self._left -= 1
        if self._left < 0 or depth > _DEEPEST:
            return {}
        if node.value is False:
            return {"not": {}}
        table = table_of(node.value)
        reference = table.get("$ref")
        if not isinstance(reference, str):
            return self._plain(table, node, depth, hidden)
        hidden |= self._hidden(node)
        made = self._named(reference, node, hidden)
        beside = {key: one for key, one in table.items() if key not in ("$ref", "description", "summary")}
        if self._modern and beside and (rest := self._plain(beside, node, depth, hidden)):
            made = {"allOf": [made, rest]}
        elif table.get("nullable") is True:
            made = _or_null(made)
        about = text_of(table.get("description"))
        return {**made, "description": brief(about, _TEXT)} if about and self._modern else made

    def _named(self, reference: str, node: Node, hidden: frozenset[str]) -> JsonSchema:
        """A reference to a definition, which is made later; one that leads nowhere allows anything."""
        try:
            found = self._documents.found(reference, node.base)
            if {*table_of(found.value)} == {"$ref"} and isinstance(found.value["$ref"], str):
                reference = found.value["$ref"]
                found = self._documents.followed(found)
        except DocumentError:
            return {}
        # What its neighbours hide makes it another definition, if it has that.
        hidden -= self._hidden(found)
        hidden = hidden and hidden & self._mentioned(found)
        key = (found.base, id(found.value), hidden)
        if (name := self._names.get(key)) is None:
            name = self._names[key] = self._free(reference)
            self.definitions[name] = {}
            self._due.append((name, found, hidden))
        return {"$ref": f"#/$defs/{name}"}

    def _free(self, reference: str) -> str:
        stem = re.sub(r"[^A-Za-z0-9_.-]", "_", reference.rpartition("/")[2])[:60] or "schema"
        name, number = stem, 2
        while name in self.definitions:
            name, number = f"{stem}_{number}", number + 1
        return name

    def _plain(self, table: Mapping[str, Any], node: Node, depth: int, hidden: frozenset[str]) -> JsonSchema:
        made: JsonSchema = {}
        hidden |= self._hidden(node.within(table))
        for key in _VALUES:
            if key in table:
                made[key] = table[key]
        _correct(made)
        if isinstance(said := table.get("description"), str) and said.strip():
            made["description"] = brief(said, _TEXT)
        if isinstance(pattern := table.get("pattern"), str) and usable(pattern):
            made["pattern"] = pattern

        def inner(value: Any) -> JsonSchema:
            return self._made(node.within(value), depth + 1)

        for key in _ONE:
            if isinstance(table.get(key), dict | bool):
                made[key] = inner(table[key])
        if made.get("not") == {} and table.get("not") is not True:
            del made["not"]
        self._object(made, node.within(table), inner, hidden, depth)
        self._array(made, table, inner)
        self._branches(made, table, node, depth, hidden)
        return _or_null(made) if table.get("nullable") is True and not self._modern else made

    def _object(
        self,
        made: JsonSchema,
        node: Node,
        inner: Callable[[Any], JsonSchema],
        hidden: frozenset[str],
        depth: int,
    ) -> None:
        table, named = table_of(node.value), self._properties(node)
        if "properties" in table:
            properties = table_of(named.value)
            made["properties"] = {
                key: self._made(named.within(one), depth + 1)
                for key, one in properties.items()
                if key not in hidden
            }
            if (own := [key for key in properties if key in hidden]) and not self._of_answers:
                made["propertyNames"] = {"not": {"description": "read-only", "enum": own}}
        if isinstance(by_pattern := table.get("patternProperties"), dict):
            patterns = cast("dict[str, Any]", by_pattern)
            made["patternProperties"] = {key: inner(one) for key, one in patterns.items() if usable(key)}
        if isinstance(wanted := table.get("required"), list):
            listed = [one for one in cast("list[Any]", wanted) if isinstance(one, str) and one not in hidden]
            if listed:
                made["required"] = [*dict.fromkeys(listed)]
        more = table.get("additionalProperties")
        if isinstance(more, bool):
            made["additionalProperties"] = more
        elif isinstance(more, dict) and more:
            made["additionalProperties"] = inner(cast("object", more))

    def _array(self, made: JsonSchema, table: Mapping[str, Any], inner: Callable[[Any], JsonSchema]) -> None:
        if first := list_of(table.get("prefixItems")) or list_of(table.get("items")):
            made["prefixItems"] = [inner(one) for one in first]

    def _branches(
        self, made: JsonSchema, table: Mapping[str, Any], node: Node, depth: int, hidden: frozenset[str]
    ) -> None:
        if isinstance(every := table.get("allOf"), list):
            parts = [self._made(node.within(one), depth + 1, hidden) for one in cast("list[Any]", every)]
            # Each part would refuse what the others have.
            parts = [
                {key: one for key, one in part.items() if (key, one) != ("additionalProperties", False)}
                for part in parts
            ]
            made["allOf"] = [part for part in parts if part]
            if not made["allOf"]:
                del made["allOf"]
        for key in ("oneOf", "anyOf"):
            if isinstance(several := table.get(key), list) and several:
                found = [self._branch(one, table, node, depth, hidden) for one in cast("list[Any]", several)]
                # In the wild the parts of `oneOf` overlap.
                if "anyOf" in made:
                    made["allOf"] = [*made.get("allOf", []), {"anyOf": found}]
                else:
                    made["anyOf"] = found

    def _branch(
        self, value: Any, table: Mapping[str, Any], node: Node, depth: int, hidden: frozenset[str]
    ) -> JsonSchema:
        """One of several schemas, with the value of the discriminator that chooses it."""
        made = self._made(node.within(value), depth + 1, hidden)
        said = table.get("discriminator")
        reference = cast("dict[str, Any]", value).get("$ref") if isinstance(value, dict) else None
        name = cast("dict[str, Any]", said).get("propertyName") if isinstance(said, dict) else None
        if not isinstance(name, str) or not isinstance(reference, str):
            return made
        if name in hidden | self._hidden(node.within(value)):
            return made
        mapping: Any = cast("dict[str, Any]", said).get("mapping")
        named = cast("dict[str, Any]", mapping) if isinstance(mapping, dict) else {}
        own = reference.rpartition("/")[2]
        chosen = [key for key, one in named.items() if isinstance(one, str) and one in (reference, own)]
        values = chosen or [own]
        is_it = {"const": values[0]} if len(values) == 1 else {"enum": values}
        return {**_held(made), "properties": {name: is_it}, "required": [name]}

    def _hidden(self, node: Node) -> frozenset[str]:
        """The names of properties that are never sent."""
        return _NONE.union(*map(self._hidden_here, islice(self.flat(node), _PARTS)))

    def _hidden_here(self, node: Node) -> frozenset[str]:
        properties = self._properties(node)
        named = table_of(properties.value)
        if not named:
            return _NONE
        if (known := self._marked.get(id(named))) is None:
            mark, found = "writeOnly" if self._of_answers else "readOnly", set[str]()
            for name, value in named.items():
                parts = islice(self.flat(properties.within(value)), _PARTS)
                if any(one.value.get(mark) is True for one in parts):
                    found.add(name)
            # The table is kept as well, so that no other one gets its id.
            known = self._marked[id(named)] = named, frozenset(found)
        return known[1]

    def _mentioned(self, node: Node) -> frozenset[str]:
        """The names of properties that a schema describes or requires."""
        parts = [*islice(self.flat(node, "anyOf", "oneOf"), _BRANCHES)]
        required = (each for one in parts for each in list_of(one.value.get("required")))
        named = (each for one in parts for each in table_of(self._properties(one).value))
        return frozenset(one for one in (*required, *named) if isinstance(one, str))

    def _properties(self, node: Node) -> Node:
        """The properties of a schema, which some documents have elsewhere as a whole."""
        return self._documents.end(node.within(table_of(node.value).get("properties")))


def is_plain_object(flat: Sequence[Node]) -> bool:
    """True for an object whose members are all named; `flat` are its schema and those of its `allOf`."""
    tables = [table_of(one.value) for one in flat]
    return (
        len(tables) <= _PLAIN_PARTS
        and any(table_of(one.get("properties")) for one in tables)
        and all(
            one.get("type", "object") == "object"
            and one.get("additionalProperties") in (None, False)
            and one.get("nullable") is not True
            and not one.keys() & _OPENING
            for one in tables
        )
    )


def _correct(made: JsonSchema) -> None:
    """Correct what is no JSON Schema: of OpenAPI 3.0 and Swagger 2.0, and mistakes of documents."""
    kinds: Any = made.pop("type", None)
    if kinds == "file":
        made |= {"type": "string", "format": "binary"}
    elif known := [one for one in (list_of(kinds) or [kinds]) if isinstance(one, str) and one in _TYPES]:
        made["type"] = known if isinstance(kinds, list) else kinds
    for key in ("minimum", "maximum"):
        bound = f"exclusive{key.title()}"
        if made.get(bound) is True and key in made:
            made[bound] = made.pop(key)
    for key, value in [*made.items()]:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if (key in _NUMBERS and not is_number) or not isinstance(value, _KINDS.get(key, object)):
            made.pop(key)
    values = made.pop("enum", [])
    if listed := {json.dumps(one, sort_keys=True): one for one in values}:
        made["enum"] = [*listed.values()]


def _held(made: JsonSchema) -> JsonSchema:
    return {"allOf": [made]}


def _or_null(made: JsonSchema) -> JsonSchema:
    kind = made.get("type")
    if isinstance(kind, str) and "anyOf" not in made and "allOf" not in made:
        changed = {**made, "type": [kind, "null"]}
        if "enum" in made:
            changed["enum"] = [*(one for one in made["enum"] if one is not None), None]
        return changed
    if not made:
        return made
    described = {"description": made["description"]} if "description" in made else {}
    plain = {key: one for key, one in made.items() if key != "description"}
    return {"anyOf": [plain, {"type": "null"}], **described}


@lru_cache(4096)
def usable(pattern: str) -> bool:
    """True if a regular expression can be checked; others say nothing to a model either."""
    import jsonschema_rs

    try:
        jsonschema_rs.validator_for(
            {"pattern": pattern}, pattern_options=jsonschema_rs.RegexOptions(size_limit=100_000)
        )
    except ValueError:
        return False
    return True


def brief(text: str, limit: int) -> str:
    """A text of at most `limit` characters, in one line, cut between words."""
    line = " ".join(re.sub(r"<[^<>]{1,200}>|[\x00-\x1f\x7f-\x9f]", " ", text[: 8 * limit]).split())
    if len(line) <= limit:
        return line
    return f"{line[: limit - 1].rpartition(' ')[0] or line[: limit - 1]}…"


def references_in(value: Any) -> list[str]:
    """The names of the definitions that a schema refers to."""
    found = dict[str, None]()
    left = [value]
    while left:
        one = left.pop()
        if isinstance(one, dict):
            table = cast("dict[str, Any]", one)
            if isinstance(reference := table.get("$ref"), str):
                found[reference.removeprefix("#/$defs/")] = None
            left += (each for key, each in table.items() if key not in _DATA)
        elif isinstance(one, list):
            left += cast("list[Any]", one)
    return [*found]


def _shape(schema: JsonSchema) -> JsonSchema:
    """Parts of the schema of any value: types, and the schemas of what is in it; nothing is required."""
    made = {key: schema[key] for key in ("type", "description", "$ref") if key in schema}
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            made[key] = _shape(schema[key])
    if "properties" in schema:
        made["properties"] = {name: _shape(one) for name, one in schema["properties"].items()}
    for key in ("allOf", "anyOf"):
        if key in schema:
            made[key] = [_shape(one) for one in schema[key]]
    return made


def _terse(value: Any) -> Any:
    """A schema without descriptions; a property may be called so."""
    if isinstance(value, list):
        return [_terse(one) for one in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    table = cast("dict[str, Any]", value)
    made: dict[str, Any] = {}
    for key, one in table.items():
        if key in ("properties", "patternProperties", "$defs") and isinstance(one, dict):
            made[key] = {name: _terse(each) for name, each in cast("dict[str, Any]", one).items()}
        elif key in _DATA:
            made[key] = one
        elif key != "description":
            made[key] = _terse(one)
    return made


def _cut(schema: Any, depth: int) -> Any:
    """A schema without what is nested deeper."""
    if not isinstance(schema, dict):
        return schema
    table = cast("dict[str, Any]", schema)
    if not depth:
        return {
            key: one for key, one in table.items() if key in ("type", "description", "$ref", "propertyNames")
        }
    made: dict[str, Any] = {}
    for key, one in table.items():
        if key in ("properties", "patternProperties") and isinstance(one, dict):
            made[key] = {name: _cut(each, depth - 1) for name, each in cast("dict[str, Any]", one).items()}
        elif key in ("allOf", "anyOf", "prefixItems") and isinstance(one, list):
            made[key] = [_cut(each, depth - 1) for each in cast("list[Any]", one)]
        elif key in ("items", "additionalProperties"):
            made[key] = _cut(one, depth - 1)
        elif key in _ONE and key != "propertyNames":
            continue
        else:
            made[key] = one
    return made
