"""`AnswerForm`: the form of a question whose answer is a Python type, and the answer as a value of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, cast

from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticSchemaGenerationError, PydanticUserError

from mcp_toolset._records import replace
from mcp_toolset.errors import CallError, DefinitionError
from mcp_toolset.tools.core.asking import ElicitationAnswer

_FIELD: Final = "value"
"""The only field of a form for a type that is no object."""


class AnswerForm:
    """The form for one type: a scalar, `Literal`, `Enum`, list of choices, dataclass or pydantic model.

    Attributes:
        schema: The JSON Schema of the form.
    """

    def __init__(self, wanted: Any) -> None:
        if isinstance(wanted, list | tuple):
            wanted = Literal[tuple(cast("list[str]", wanted))]
        try:
            self._adapter: TypeAdapter[Any] = TypeAdapter(wanted)
            made = self._adapter.json_schema()
        except (PydanticSchemaGenerationError, PydanticUserError, TypeError) as fault:
            raise DefinitionError(
                f"a question cannot ask for {wanted!r}: {str(fault).splitlines()[0]}; ask for str, int, "
                "float, bool, a Literal, an Enum, a list of choices, or a dataclass or model of these"
            ) from None
        shape = _inlined(made, made.get("$defs", {}))
        self._is_object = shape.get("type") == "object"
        wrapped = {"type": "object", "properties": {_FIELD: shape}, "required": [_FIELD]}
        self.schema: dict[str, Any] = shape if self._is_object else wrapped

    def read(self, answer: ElicitationAnswer) -> ElicitationAnswer:
        if not answer.accepted:
            return answer
        content = dict(answer.content)
        try:
            value = self._adapter.validate_python(content if self._is_object else content.get(_FIELD))
        except ValidationError as fault:
            why = "; ".join(
                f"{'.'.join(map(str, one['loc'])) or _FIELD}: {one['msg']}" for one in fault.errors()
            )
            raise CallError(f"the answer to the question does not fit: {why}") from None
        return replace(answer, value=value)


def _inlined(shape: Mapping[str, Any], defs: Mapping[str, Any]) -> dict[str, Any]:
    """A schema without references, and without forms of one plain field that clients do not know."""
    made = {key: value for key, value in shape.items() if key != "$defs"}
    if isinstance(name := made.pop("$ref", None), str):
        made = {**_inlined(defs[name.removeprefix("#/$defs/")], defs), **made}
    choices = [one for one in made.get("anyOf", ()) if one.get("type") != "null"]
    if len(choices) == 1:
        # An optional field may be left out; clients have no field for null.
        del made["anyOf"]
        made = {**_inlined(choices[0], defs), **made}
        if made.get("default", "") is None:
            del made["default"]
    if "const" in made:
        made["enum"] = [made.pop("const")]
    if isinstance(fields := made.get("properties"), dict):
        made["properties"] = {
            name: _inlined(one, defs) for name, one in cast("dict[str, Any]", fields).items()
        }
    return made
