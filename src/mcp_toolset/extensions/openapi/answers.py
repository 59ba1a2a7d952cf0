"""`AnswerSchemas`: output schemas of operations; `Fitting`: the answers of an API as results that fit them.

APIs often answer otherwise than their documents say, and a client refuses a result that does not fit its
output schema. So an output schema has no more than the shape of an answer, of which nothing is required, and
the structured content is without what does not fit: the text has the whole answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from mcp_toolset.errors import DefinitionError
from mcp_toolset.extensions.openapi.arguments import is_json
from mcp_toolset.extensions.openapi.reading import Documents, Node, table_of
from mcp_toolset.extensions.openapi.schemas import JsonSchema, Schemas, is_plain_object
from mcp_toolset.tools.validation import SchemaCheck

_NOTE: Final = "The structured content is without what does not fit the document of the API; use this text."
_STEPS: Final = 200_000  # schemas that are held against the values of one answer
_DEEPEST: Final = 300  # schemas within each other
_KINDS: Final[Mapping[str, tuple[type, ...]]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}


class AnswerSchemas:
    """The output schemas of the operations of a document."""

    def __init__(self, documents: Documents, *, modern: bool) -> None:
        self._documents = documents
        self._schemas = Schemas(documents, modern=modern, of_answers=True)

    def of(self, name: str, operation: Node) -> JsonSchema | None:
        """The schema of the answers of an operation, if all that succeed are plain objects of one schema."""
        found = list[JsonSchema]()
        for status, said in table_of(table_of(operation.value).get("responses")).items():
            if status[:1] == "2":
                node = self._schema(self._documents.end(operation.within(said)))
                if node is None or not is_plain_object([*self._schemas.flat(node)]):
                    return None
                found.append(self._schemas.of(node))
        if not found or any(one != found[0] for one in found):
            return None
        properties, _ = self._schemas.members(found[0])
        made = self._schemas.bounded({"type": "object", "properties": properties})
        try:
            SchemaCheck(made, tool=name, part="outputSchema")
        except DefinitionError:
            return None
        return made

    def _schema(self, answer: Node) -> Node | None:
        """The schema of an answer in JSON; `None` if it has another form, or none."""
        said = table_of(answer.value)
        if self._documents.is_old:
            return answer.within(said["schema"]) if "schema" in said else None
        contents = table_of(said.get("content"))
        media = next(iter(contents), "")
        if not all(map(is_json, contents)) or not media:
            return None
        content = self._documents.end(answer.within(contents[media]))
        return content.within(table_of(content.value).get("schema"))


def fitting(result: dict[str, Any], output: SchemaCheck) -> dict[str, Any]:
    """A result whose structured content fits an output schema; a note says if something is left out."""
    answer = result.get("structuredContent")
    found = Fitting(output.schema).of(answer)
    found = found if output.is_valid(found) else {}
    note = [] if found is answer else [{"type": "text", "text": _NOTE}]
    return {**result, "content": [*result["content"], *note], "structuredContent": found}


class Fitting:
    """Leaves out of one answer what does not fit its schema."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._schema, self._left = schema, _STEPS
        self._definitions = cast("Mapping[str, Any]", schema.get("$defs", {}))

    def of(self, answer: Any) -> dict[str, Any]:
        """The members of an answer that fit, which is the answer itself if all do."""
        fit, found = self._fitted(answer, self._schema, 0)
        return found if fit else {}

    def _fitted(self, value: Any, schema: Mapping[str, Any], depth: int) -> tuple[bool, Any]:
        """True and what fits of a value; `False` if it does not fit even without some of its members."""
        self._left -= 1
        if self._left < 0 or depth > _DEEPEST:
            return False, None
        depth += 1
        parts = list[Mapping[str, Any]](schema.get("allOf", ()))
        if isinstance(reference := schema.get("$ref"), str):
            parts.append(self._definitions[reference.removeprefix("#/$defs/")])
        for one in parts:
            fits, value = self._fitted(value, one, depth)
            if not fits:
                return False, None
        if branches := schema.get("anyOf"):
            tried = [self._fitted(value, one, depth) for one in branches]
            whole = next((one for one in tried if one[0] and one[1] is value), None)
            fits, value = whole or next((one for one in tried if one[0]), (False, None))
            if not fits:
                return False, None
        kinds = schema.get("type", ())
        kinds = (kinds,) if isinstance(kinds, str) else kinds
        if kinds and not any(_is(value, one) for one in kinds):
            return False, None
        found: Any = value
        if isinstance(found, dict):
            return True, self._members(cast("dict[str, Any]", found), schema, depth)
        if isinstance(found, list) and (items := schema.get("items")):
            return self._items(cast("list[Any]", found), items, depth)
        return True, cast("Any", found)

    def _members(self, value: dict[str, Any], schema: Mapping[str, Any], depth: int) -> dict[str, Any]:
        properties, more = schema.get("properties", {}), schema.get("additionalProperties")
        kept, changed = dict[str, Any](), False
        for name, one in value.items():
            said = properties.get(name, more)
            fits, found = self._fitted(one, said, depth) if said else (True, one)
            changed = changed or not fits or found is not one
            if fits:
                kept[name] = found
        return kept if changed else value

    def _items(self, value: list[Any], items: Mapping[str, Any], depth: int) -> tuple[bool, list[Any]]:
        made = [self._fitted(one, items, depth) for one in value]
        if not all(fits for fits, _ in made):
            return False, value
        is_same = all(found is one for (_, found), one in zip(made, value, strict=True))
        return True, value if is_same else [found for _, found in made]


def _is(value: Any, kind: str) -> bool:
    if kind == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _KINDS.get(kind, ())) and (kind == "boolean" or not isinstance(value, bool))
