"""`ToolBuilder`: define a tool step by step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Unpack

from mcp_toolset.errors import DefinitionError
from mcp_toolset.tools.core.definition import ToolOptions, checked
from mcp_toolset.tools.declare.handler import Handler
from mcp_toolset.tools.declare.tool import Tool

_UNSET: Final[Any] = object()


class ToolBuilder:
    """The parts of a tool; each step returns a new builder, so that several tools can share first steps.

    ```python
    search = (
        ToolBuilder("search", "Search the shop.")
        .param("query", "string", "What to look for.")
        .param("limit", "integer", default=10)
        .build(run_search)
    )
    ```
    """

    __slots__ = ("_handler", "_name", "_options", "_output", "_params", "_schema")

    def __init__(self, name: str, description: str | None = None) -> None:
        self._name = name
        self._params: Mapping[str, Any] = {}
        self._schema: Mapping[str, Any] | None = None
        self._handler: Handler | None = None
        self._output: Any = None
        self._options: ToolOptions = {"description": description}

    def param(
        self,
        name: str,
        type: str | Mapping[str, Any],
        description: str | None = None,
        *,
        optional: bool = False,
        default: Any = _UNSET,
    ) -> ToolBuilder:
        """Add a parameter; `DefinitionError` if there is one of this name, or a whole schema.

        Args:
            name: The parameter's name.
            type: A type's name, or a schema in extended notation, such as `{"enum": ["a", "b"]}`.
            description: What it means, for the model.
            optional: True if it may be left out.
            default: Its value when it is left out; makes it optional.
        """
        if name in self._params:
            raise DefinitionError(f"{self}: there is a parameter {name!r} already; rename one of them")
        if self._schema is not None:
            raise DefinitionError(f"{self}: a builder takes parameters or a whole schema, not both")
        written: dict[str, Any] = {"type": type} if isinstance(type, str) else dict(type)
        if description is not None:
            written["description"] = description
        if optional:
            written["optional"] = True
        if default is not _UNSET:
            written["default"] = default
        return self._with("_params", {**self._params, name: written})

    def schema(self, schema: Mapping[str, Any]) -> ToolBuilder:
        """Set the whole schema, in loose, extended or full notation, instead of single parameters."""
        if self._params:
            raise DefinitionError(f"{self}: a builder takes parameters or a whole schema, not both")
        return self._with("_schema", schema)

    def output(self, output: Any) -> ToolBuilder:
        """Set the type of the result, or its schema in any of the notations."""
        return self._with("_output", output)

    def handler(self, handler: Handler) -> ToolBuilder:
        """Set the handler: a function of `(arguments)` or `(arguments, context)`, or `module:function`."""
        return self._with("_handler", handler)

    def options(self, **options: Unpack[ToolOptions]) -> ToolBuilder:
        """Set more options; see `ToolOptions`. Options that were set before and are not given now stay."""
        return self._with("_options", {**self._options, **checked("ToolBuilder.options()", options)})

    def manual(self, manual: bool = True) -> ToolBuilder:
        """Leave the calls to the application."""
        return self.options(manual=manual)

    def build(self, handler: Handler | None = None) -> Tool[..., Any]:
        """The tool, run by `handler` if given. Raises `DefinitionError`: see `Tool.from_schema`."""
        schema = self._params if self._schema is None else self._schema
        chosen = self._handler if handler is None else handler
        return Tool.from_schema(self._name, schema, chosen, output=self._output, **self._options)

    def __repr__(self) -> str:
        return f"ToolBuilder({self._name!r}{''.join(f', {name}' for name in self._params)})"

    def _with(self, part: str, value: Any) -> ToolBuilder:
        other = ToolBuilder(self._name)
        for slot in self.__slots__:
            setattr(other, slot, getattr(self, slot))
        setattr(other, part, value)
        return other
