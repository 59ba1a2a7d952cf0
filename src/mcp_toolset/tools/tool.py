"""`Tool`: an immutable tool, however it was defined (O1)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, ParamSpec, TypeVar

from mcp_toolset.errors import DefinitionError, StateError
from mcp_toolset.tools.call import LOCAL_CONTEXT, ToolCall, ToolContext
from mcp_toolset.tools.definition import ToolDefinition
from mcp_toolset.tools.result import ToolResult
from mcp_toolset.tools.validation import SchemaCheck, checks_of
from mcp_toolset.tools.view import Executor, ToolBinding

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, repr=False)
class Tool(Generic[P, R]):
    """A definition and, unless the application answers its calls itself, what runs it.

    Calling a `Tool` calls the function it was made of, unchanged. `execute` runs it from JSON
    arguments.

    Attributes:
        definition: What the tool says of itself.
        function: The function it was made of, if any.
        place: Where it was defined, for messages.
        manual: Whether its calls wait for the application (A6); always so without a handler.
        timeout: Seconds that one call may take; `None` leaves it to who runs it (A11).
        run: What runs a call, if anything does.
    """

    __name__: ClassVar[str]
    __qualname__: ClassVar[str]

    definition: ToolDefinition
    function: Callable[P, R] | None = field(default=None, compare=False)
    place: str = ""
    manual: bool = False
    timeout: float | None = None
    run: Executor | None = field(default=None, kw_only=True, compare=False)
    _checks: tuple[SchemaCheck, SchemaCheck | None] = field(init=False, compare=False)

    def __post_init__(self) -> None:
        """Compile the schemas, and take over the identity of the function, for documentation."""
        if not isinstance(self.manual, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise DefinitionError(f"tool {self.name!r}: manual is True or False, not {self.manual!r}")
        object.__setattr__(self, "_checks", checks_of(self.definition))
        for attribute in ("__name__", "__qualname__", "__doc__", "__module__"):
            object.__setattr__(self, attribute, getattr(self.function, attribute, None))

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function itself.

        Raises:
            StateError: the tool was made without a function.
        """
        if self.function is None:
            raise StateError(f"tool {self.name!r} has no function to call; run it with execute()")
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        """The tool by name and parameters; never the function (O8)."""
        return (
            f"Tool({self.definition.name!r}, {', '.join(self.definition.input_schema.get('properties', {}))})"
        )

    @property
    def name(self) -> str:
        """The tool's name."""
        return self.definition.name

    @property
    def waits(self) -> bool:
        """Whether its calls wait for the application: it is manual, or has no handler (A1, A6)."""
        return self.manual or self.run is None

    def bind(self) -> ToolBinding:
        """The tool as an entry of a view."""
        arguments, output = self._checks
        return ToolBinding(
            self.name,
            self.definition,
            self.run or self._unhandled,
            arguments,
            output,
            place=self.place,
            manual=self.waits,
            timeout=self.timeout,
        )

    async def execute(
        self, arguments: dict[str, Any] | None = None, context: ToolContext = LOCAL_CONTEXT
    ) -> ToolResult:
        """Run the tool from JSON arguments; its own exceptions propagate (O6).

        Raises:
            InvalidArgumentsError: the arguments do not fit.
            StateError: the tool has no handler.
        """
        return await (self.run or self._unhandled)(ToolCall(self.name, arguments or {}), context)

    async def _unhandled(self, call: ToolCall, context: ToolContext) -> ToolResult:
        raise StateError(f"tool {call.name!r} has no handler; its result comes from the application")
