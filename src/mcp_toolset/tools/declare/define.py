"""The fields of a `Tool` that is defined by a schema or by stored data, with or without a handler.

`Tool.from_schema` and `Tool.from_data` use it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Unpack, cast

from mcp_toolset._records import replace
from mcp_toolset.errors import DefinitionError
from mcp_toolset.tools.binding.binding import Executor
from mcp_toolset.tools.core.definition import ToolDefinition
from mcp_toolset.tools.core.names import check_name
from mcp_toolset.tools.core.options import (
    Private,
    ToolOptions,
    annotations_of,
    checked,
    execution_of,
    private,
)
from mcp_toolset.tools.declare.handler import Handler, HandlerCall, arguments_reader
from mcp_toolset.tools.declare.notation import schema_from
from mcp_toolset.tools.declare.signature import JSON, Returned, place_of, returned_as

_DATA_KEYS = frozenset({"id", "definition", "handler", "manual", "timeout", "tags", "metadata"})


class ToolFields(Private):
    """The fields of a `Tool` that follow from a definition, a handler and options; see `Tool`."""

    definition: ToolDefinition
    function: Callable[..., Any] | None
    place: str
    manual: bool
    timeout: float | None
    id: str
    handler: Handler | None
    calling: HandlerCall
    run: Executor | None


def define(
    name: str,
    schema: Mapping[str, Any],
    handler: Handler | None = None,
    *,
    output: Any = None,
    **options: Unpack[ToolOptions],
) -> ToolFields:
    checked("Tool.from_schema()", options)
    returned = promised(output, name)
    definition = ToolDefinition(
        name=check_name(name, f"tool {name!r}"),
        description=options.get("description"),
        input_schema=schema_from(schema, tool=name),
        output_schema=returned.schema,
        title=options.get("title"),
        annotations=annotations_of(options),
        meta=options.get("meta"),
        extra=execution_of(options),
    )
    return _fields(definition, handler, options, returned)


def from_data(data: Mapping[str, Any], handler: Handler | None = None) -> ToolFields:
    wire = data.get("definition")
    if not isinstance(wire, Mapping):
        raise DefinitionError(
            "a stored tool has a 'definition' that is an object; write it with Tool.to_data()"
        )
    unknown = sorted(data.keys() - _DATA_KEYS)
    if unknown:
        raise DefinitionError(f"a stored tool has no {unknown[0]!r}; write it with Tool.to_data()")
    definition = ToolDefinition.from_wire(cast("Mapping[str, Any]", wire))
    check_name(definition.name, f"tool {definition.name!r}")
    named: object = data.get("handler")
    if named is not None and not isinstance(named, str):
        raise DefinitionError(
            f"tool {definition.name!r}: a stored handler is 'module:function', not {named!r}"
        )
    return _fields(definition, handler or named, cast("ToolOptions", data))


def _fields(
    definition: ToolDefinition, handler: Handler | None, options: ToolOptions, returned: Returned = JSON
) -> ToolFields:
    calling = HandlerCall(arguments_reader(definition.input_schema), returned)
    return ToolFields(
        definition=definition,
        function=None if isinstance(handler, str) else handler,
        place=_place(definition.name, handler),
        manual=options.get("manual", False),
        timeout=options.get("timeout"),
        id=options.get("id") or f"tool:{definition.name}",
        handler=handler,
        calling=calling,
        run=None if handler is None else calling.executor(handler, definition.name),
        **private(options),
    )


def _place(name: str, handler: Handler | None) -> str:
    if handler is None:
        return f"schema {name!r}"
    return f"handler {handler}" if isinstance(handler, str) else place_of(handler)


def promised(output: Any, tool: str) -> Returned:
    """The return type of a tool, from a type or from a schema in any of the notations."""
    if output is None:
        return JSON
    if isinstance(output, Mapping):
        notation = cast("Mapping[str, Any]", output)
        return replace(JSON, schema=schema_from(notation, tool=f"{tool} (output)"))
    return returned_as(output, f"tool {tool!r}: output")
