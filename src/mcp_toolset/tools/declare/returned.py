"""The return type of a function as a schema, and its returned value as a result."""

from __future__ import annotations

import inspect
import sys
import types
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Annotated, Any, Final, Union, cast, get_args, get_origin

from pydantic_core import SchemaSerializer, to_json, to_jsonable_python

from mcp_toolset._records import dataclass, replace
from mcp_toolset.errors import DefinitionError, InvalidOutputError
from mcp_toolset.tools.core.asking import AskUser, Halt
from mcp_toolset.tools.core.result import ToolResult, checked_result, encodable
from mcp_toolset.tools.schema.plain_types import plain_type

_CONTENT: Final = ("TextContent", "ImageContent", "AudioContent", "ResourceLink", "EmbeddedResource")
_UNTYPED: Final = (Any, str, None, type(None), ToolResult, inspect.Signature.empty)


def _content() -> tuple[type[Any], ...]:
    """The protocol's models of content blocks; empty until some module imports them.

    Importing them takes longer than importing all of this package, and most tools return none.
    """
    models = sys.modules.get("mcp_types")
    found = (getattr(models, name, None) for name in _CONTENT)
    return tuple(model for model in found if model is not None)


@dataclass(frozen=True, slots=True)
class Returned:
    """The return type of a function: a schema if it is typed, and the conversion of values to results.

    Attributes:
        schema: The output schema, if the function is typed.
        serializer: Writes a value of the return type as JSON.
        wrapped: Whether the value is not an object, and is sent in one as `result`.
        plain: Whether an untyped mapping is structured content too, for handlers of JSON.
    """

    schema: Mapping[str, Any] | None = None
    serializer: SchemaSerializer | None = None
    wrapped: bool = False
    plain: bool = False

    def to_result(self, value: Any, tool: str) -> ToolResult:
        """The returned value as a result; `InvalidOutputError` if it has no JSON form clients could read."""
        if isinstance(value, ToolResult):
            return checked_result(value, tool)
        if isinstance(value, AskUser):
            return ToolResult({"content": [{"type": "text", "text": value.question}]}, ask=value)
        if isinstance(value, Halt):
            ended = _untyped(None) if value.result is None else self.to_result(value.result, tool)
            return replace(ended, halt=value)
        try:
            if self.serializer is not None:
                return self._typed(value)
            return ToolResult.of_structured(value) if self._is_plain(value) else _untyped(value)
        except ValueError as fault:
            raise InvalidOutputError(
                f"{tool} returned a value that has no JSON form: {fault}{_mend(value)}"
            ) from None

    def _is_plain(self, value: object) -> bool:
        return self.plain and isinstance(value, Mapping)

    def _typed(self, value: Any) -> ToolResult:
        assert self.serializer is not None
        plain = self.serializer.to_python(value, mode="json", by_alias=True, warnings=False)
        if isinstance(plain, str):
            plain = text = encodable(plain)
        else:
            text = to_json(plain, inf_nan_mode="null").decode()
        return ToolResult.of_structured({"result": plain} if self.wrapped else plain, text=text)


def _mend(value: object) -> str:
    """How to return bytes, which JSON does not have."""
    if not isinstance(value, bytes | bytearray):
        return ""
    return (
        "; return bytes as content, such as ToolResult.of_content([{'type': 'image', "
        "'mimeType': 'image/png', 'data': base64.b64encode(…).decode()}])"
    )


UNTYPED: Final = Returned()
"""Without a schema: any value is shown as text or content."""

JSON: Final = Returned(plain=True)
"""Without a schema, for a handler of JSON: a mapping is structured content, the rest is shown as text."""


def returned_as(annotation: Any, place: str) -> Returned:
    """What a return annotation promises; a question and a halt are no part of it."""
    annotation = _value_type(annotation)
    if _is_untyped(annotation):
        return UNTYPED
    if (plain := plain_type(annotation)) is not None:
        return _returned(SchemaSerializer(plain[0]), plain[1])
    from mcp_toolset.tools.schema.json_schema import UNUSABLE, reason_of

    try:
        return _promise(annotation)
    except UNUSABLE as fault:
        raise DefinitionError(
            f"{place}: the return type has no JSON Schema: {reason_of(fault)}; "
            "return what JSON can carry, or annotate it as Any"
        ) from None


def _promise(annotation: Any) -> Returned:
    try:
        hash(annotation)
    except TypeError:
        return _read(annotation)
    return _remembered(annotation, repr(annotation))


@lru_cache(maxsize=256)
def _remembered(annotation: Any, shown: str) -> Returned:
    """As `_read`: many tools return the same type. `shown` tells equal unions of another order apart."""
    return _read(annotation)


def _read(annotation: Any) -> Returned:
    # pydantic's models take long to import; they are needed when a tool is declared.
    from pydantic import TypeAdapter

    from mcp_toolset.tools.schema.json_schema import PlainSchema

    adapter: TypeAdapter[Any] = TypeAdapter(annotation)
    schema = adapter.json_schema(mode="serialization", schema_generator=PlainSchema)
    return _returned(adapter.serializer, schema)


def _returned(serializer: SchemaSerializer, schema: dict[str, Any]) -> Returned:
    if schema.get("type") == "object" or "$ref" in schema:
        return Returned({"type": "object", **schema}, serializer, False)
    definitions = schema.pop("$defs", None)
    wrapper: dict[str, Any] = {"type": "object", "properties": {"result": schema}, "required": ["result"]}
    return Returned(wrapper | ({"$defs": definitions} if definitions else {}), serializer, True)


def _value_type(annotation: Any) -> Any:
    """The annotation without the outcomes that its union may contain."""
    if annotation in (AskUser, Halt):
        return None
    if get_origin(annotation) not in (Union, types.UnionType):
        return annotation
    values = tuple(item for item in get_args(annotation) if item not in (AskUser, Halt))
    return Union[values] if values else None  # noqa: UP007 - made of a tuple


def _is_untyped(annotation: Any) -> bool:
    if annotation in _UNTYPED or annotation in _content():
        return True
    origin, items = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _is_untyped(items[0])
    if origin in (Union, types.UnionType):
        return any(map(_is_content, items)) or all(map(_is_untyped, items))
    return origin in (list, tuple, Sequence) and any(map(_is_content, items))


def _is_content(annotation: Any) -> bool:
    """Whether it is content that a result contains unchanged, or a union or list of such."""
    nests = get_origin(annotation) in (Annotated, Union, types.UnionType, list, tuple, Sequence)
    inner = get_args(annotation) if nests else ()
    return annotation in (*_content(), ToolResult) or any(map(_is_content, inner))


def _untyped(value: Any) -> ToolResult:
    if value is None:
        return ToolResult.of_content([])
    items: list[Any] = list(cast("list[Any]", value)) if isinstance(value, list | tuple) else [value]
    models = () if isinstance(value, str) else _content()
    if any(isinstance(item, models) for item in items):
        return ToolResult.of_content([_block(item, models) for item in items])
    return ToolResult.of_text(_shown(value))


def _block(item: Any, models: tuple[type[Any], ...]) -> dict[str, Any]:
    if isinstance(item, models):
        return item.model_dump(by_alias=True, mode="json", exclude_none=True)
    return {"type": "text", "text": _shown(item)}


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return encodable(value)
    return to_json(to_jsonable_python(value, inf_nan_mode="null")).decode()
