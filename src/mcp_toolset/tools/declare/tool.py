"""`Tool`: an immutable tool, made by `@tool`, `@tool_input`, `ToolBuilder` or `Tool.from_schema`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any, ClassVar, Generic, ParamSpec, Self, TypeVar, Unpack

from mcp_toolset._records import dataclass, replace
from mcp_toolset.errors import DefinitionError, StateError
from mcp_toolset.tools.binding.binding import Executor, Reads, Supplies, ToolBinding
from mcp_toolset.tools.core.call import LOCAL_CONTEXT, ToolCall, ToolContext
from mcp_toolset.tools.core.definition import (
    FrozenObject,
    ToolDefinition,
    ToolOptions,
    checked_tags,
    frozen,
    thawed,
)
from mcp_toolset.tools.core.names import default_id, handler_name
from mcp_toolset.tools.core.result import ToolResult
from mcp_toolset.tools.declare.handler import Handler, HandlerCall, arguments_reader
from mcp_toolset.tools.declare.signature import with_injected
from mcp_toolset.tools.schema.validation import SchemaCheck, checks_of
from mcp_toolset.tools.view.view import KnownTools, ToolView

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, repr=False)
class Tool(Generic[P, R]):
    """A tool: its definition and its handler. Without a handler the application answers its calls.

    Calling a `Tool` calls the function it was made from, unchanged. `execute` runs it from JSON arguments.

    Attributes:
        definition: The tool's definition.
        function: The function it was made from, if any.
        place: Where it was defined, for messages.
        manual: True if the application answers its calls; always so without a handler.
        timeout: Seconds that one call may take; `None` leaves the default.
        id: The stable id of the tool, independent of its public name.
        handler: The function that `run` calls with the arguments, for a tool defined by a schema.
        calling: How the handler is called.
        run: Runs a call, if the tool has a handler.
        tags: Tags for selectors and policies; clients do not see them.
        metadata: Data for the application; clients do not see it.
        supplies: The values for its injected parameters.
        declared: What the tool was made from and can be selected by: an input class, a function.
    """

    __name__: ClassVar[str]
    __qualname__: ClassVar[str]

    definition: ToolDefinition
    function: Callable[P, R] | None = field(default=None, compare=False)
    place: str = ""
    manual: bool = False
    timeout: float | None = None
    id: str = ""
    handler: Handler | None = field(default=None, kw_only=True, compare=False)
    calling: HandlerCall | None = field(default=None, kw_only=True, compare=False)
    run: Executor | None = field(default=None, kw_only=True, compare=False)
    declared: object = field(default=None, kw_only=True, compare=False)
    tags: frozenset[str] = field(default=frozenset(), kw_only=True)
    metadata: Mapping[str, Any] = field(default_factory=FrozenObject, kw_only=True, compare=False)
    supplies: tuple[Supplies, ...] = field(default=(), kw_only=True, compare=False)
    _checks: tuple[SchemaCheck, SchemaCheck | None] = field(init=False, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.manual, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise DefinitionError(f"tool {self.name!r}: manual is True or False, not {self.manual!r}")
        if not isinstance(self.id, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise DefinitionError(f"tool {self.name!r}: an id is a text, not {self.id!r}")
        seconds: object = self.timeout
        is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
        if seconds is not None and not (is_number and seconds > 0):
            raise DefinitionError(f"tool {self.name!r}: timeout is seconds above 0, not {self.timeout!r}")
        object.__setattr__(self, "id", self.id or default_id(self.name, self.function))
        object.__setattr__(self, "tags", checked_tags(self.tags, f"tool {self.name!r}"))
        object.__setattr__(self, "metadata", frozen(dict(self.metadata)))
        object.__setattr__(self, "_checks", checks_of(self.definition))
        for attribute in ("__name__", "__qualname__", "__doc__", "__module__"):
            object.__setattr__(self, attribute, getattr(self.function, attribute, None))

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function itself; `StateError` if the tool was made without one."""
        if self.function is None:
            raise StateError(f"tool {self.name!r} has no function to call; run it with execute()")
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return (
            f"Tool({self.definition.name!r}, {', '.join(self.definition.input_schema.get('properties', {}))})"
        )

    @property
    def name(self) -> str:
        """The tool's name."""
        return self.definition.name

    @property
    def description(self) -> str | None:
        """The tool's description for the model."""
        return self.definition.description

    @property
    def input_schema(self) -> Mapping[str, Any]:
        """JSON Schema of the arguments."""
        return self.definition.input_schema

    @property
    def output_schema(self) -> Mapping[str, Any] | None:
        """JSON Schema of the structured result, if the tool has one."""
        return self.definition.output_schema

    @property
    def waits(self) -> bool:
        """True if the application answers its calls: it is manual, or has no handler."""
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
            tool_id=self.id,
            origin=self,
            reads=self.reads,
            supplies=self.supplies,
            tags=self.tags,
            metadata=self.metadata,
        )

    @property
    def reads(self) -> Reads | None:
        """Parses the typed input of a call, for tools that have one."""
        return None

    async def execute(
        self,
        arguments: dict[str, Any] | None = None,
        context: ToolContext = LOCAL_CONTEXT,
        *,
        rules: object = None,
    ) -> ToolResult:
        """Run the tool from JSON arguments, which are checked like those of a served call.

        Without rules the tool's own exceptions propagate; with `rules` it runs as it would be served: see
        `ToolView.execute`; the rules may be for other tools, too. `tool(…)` calls the function itself.

        Raises:
            InvalidArgumentsError: the arguments do not fit; nothing ran.
            StateError: the tool has no handler.
        """
        bound = self.bind()
        view = ToolView([bound], known=KnownTools(lambda: [bound], is_part=True))
        return await view.execute(self.name, arguments, context, rules=rules)

    async def call_handler_unchecked(
        self, arguments: dict[str, Any], context: ToolContext = LOCAL_CONTEXT
    ) -> ToolResult:
        """Run the handler only: no schema is checked, no rule applies, and arguments are parsed leniently.

        For tests of a handler, and for callers that have checked the arguments; otherwise use `execute`.
        """
        return await (self.run or self._unhandled)(ToolCall(self.name, arguments), context)

    async def _unhandled(self, call: ToolCall, context: ToolContext) -> ToolResult:
        raise StateError(f"tool {call.name!r} has no handler; its result comes from the application")

    @staticmethod
    def from_schema(
        name: str,
        schema: Mapping[str, Any],
        handler: Handler | None = None,
        *,
        output: Any = None,
        **options: Unpack[ToolOptions],
    ) -> Tool[..., Any]:
        """A tool from a schema.

        Args:
            name: The tool's name.
            schema: Its parameters, in loose, extended or full notation; see `tools.declare.from_schema`.
            handler: A sync or async function of `(arguments)` or `(arguments, context)`, or its name
                as `module:function`; without a handler the application answers the calls.
            output: The type of the result, or its schema in any of the notations.
            **options: See `ToolOptions`; the id is `tool:name` unless given.
        """
        from mcp_toolset.tools.declare.from_schema import define

        return Tool(**define(name, schema, handler, output=output, **options))

    def with_handler(self, handler: Handler) -> Self:
        """The same tool with a handler: a function of `(arguments[, context])`, or its name."""
        calling = self.calling or HandlerCall(arguments_reader(self.input_schema))
        run = calling.executor(handler, self.name)
        return replace(self, handler=handler, calling=calling, run=run)

    def injecting(self, supplies: Supplies) -> Self:
        """The same tool with values for its injected parameters, by name or type."""
        run = with_injected(self.bind(), supplies).execute if self.run else None
        return replace(self, run=run, supplies=(*self.supplies, supplies))

    def tagged(self, *tags: str, metadata: Mapping[str, Any] | None = None) -> Self:
        """The same tool with more of the application's tags and metadata; clients do not see them."""
        noted = {**self.metadata, **(metadata or {})}
        return replace(self, tags=self.tags | checked_tags(tags, "tagged()"), metadata=noted)

    def to_openai(self) -> dict[str, Any]:
        """The tool in the form of OpenAI's chat completions; see `ToolView.to_openai`."""
        return ToolView([self.bind()]).to_openai()[0]

    def to_openai_responses(self) -> dict[str, Any]:
        """The tool in the form of OpenAI's Responses; see `ToolView.to_openai_responses`."""
        return ToolView([self.bind()]).to_openai_responses()[0]

    def to_anthropic(self) -> dict[str, Any]:
        """The tool in the form of Anthropic's Messages; see `ToolView.to_anthropic`."""
        return ToolView([self.bind()]).to_anthropic()[0]

    def to_gemini(self) -> dict[str, Any]:
        """The tool in the form of Gemini's requests; see `ToolView.to_gemini`."""
        return ToolView([self.bind()]).to_gemini()[0]

    def to_data(self) -> dict[str, Any]:
        """The tool as plain data that survives JSON.

        The handler is stored by name: the name it was given by, or that of an importable function. Any other
        function is left out; attach it again with `with_handler`.
        """
        return {
            "id": self.id,
            "definition": self.definition.to_wire(),
            "handler": handler_name(self.handler or (self.function if self.run else None)),
            "manual": self.manual,
            "timeout": self.timeout,
            **({"tags": sorted(self.tags)} if self.tags else {}),
            **({"metadata": thawed(self.metadata)} if self.metadata else {}),
        }

    @staticmethod
    def from_data(data: Mapping[str, Any], handler: Handler | None = None) -> Tool[..., Any]:
        """The tool that `to_data` wrote, with `handler` in place of the one that the data names.

        A handler's name is imported at the first call, which runs code: load only data that you trust.
        """
        from mcp_toolset.tools.declare.from_schema import from_data

        return Tool(**from_data(data, handler))

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self
