"""`Prompts` and the protocols of what a server has beside tools: prompts, completions and resources.

A prompt is one message or several that a user picks and fills in (specification, server/prompts); a
completion proposes values for an argument of a prompt or a resource template (server/utilities/completion).
Providers return the models of `mcp_types`, or wire dictionaries. That package takes longer to import than a
server needs for its first answer, so it is imported when a prompt is listed or filled in.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast, overload, runtime_checkable

from mcp_toolset.errors import DefinitionError, InvalidArgumentsError
from mcp_toolset.tools.core.call import ToolContext

if TYPE_CHECKING:
    from mcp_types import (
        BlobResourceContents,
        Completion,
        GetPromptResult,
        Prompt,
        PromptMessage,
        PromptReference,
        Resource,
        ResourceTemplate,
        ResourceTemplateReference,
        TextResourceContents,
    )

    Reference = PromptReference | ResourceTemplateReference
    """What an argument belongs to: a prompt by its name, or a resource template by its URI template."""
    Written = str | PromptMessage | Sequence[PromptMessage | str] | GetPromptResult
    """What a prompt function may return; a text becomes one message of the user."""
else:

    def __getattr__(name: str) -> Any:
        if name == "Reference":
            from mcp_types import PromptReference, ResourceTemplateReference

            return PromptReference | ResourceTemplateReference
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


_Function = TypeVar("_Function", bound=Callable[..., Any])


@runtime_checkable
class PromptProvider(Protocol):
    """Lists and fills in the prompts of a server; `Prompts` does so with functions."""

    async def list_prompts(self) -> Sequence[Prompt | Mapping[str, Any]]:
        """The prompts to list, in a stable order."""
        ...

    async def get_prompt(
        self, name: str, arguments: Mapping[str, str], context: ToolContext
    ) -> GetPromptResult | Mapping[str, Any]:
        """A prompt with its arguments filled in; `context` asks the user or samples, as in a tool.

        Raises:
            LookupError: the prompt does not exist.
            InvalidArgumentsError: an argument is missing or unknown; the message goes to the client.
        """
        ...

    def on_change(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` whenever the list has changed; return a function that stops this."""
        ...


class CompletionProvider(Protocol):
    """Proposes values while an argument is being typed; any async callable of this form is one."""

    def __call__(
        self, reference: Reference, argument: str, value: str, others: Mapping[str, str]
    ) -> Awaitable[Completion | Mapping[str, Any] | Sequence[str]]:
        """Values of `argument` that start with `value`, the likeliest first; at most 100 are sent.

        `others` are arguments that the user has filled in already.
        """
        ...


class Prompts:
    """Prompts made from functions: the docstring is the description, the parameters are the arguments.

    Every argument is a text, as the protocol requires; a parameter annotated `ToolContext` gets the context.
    """

    def __init__(self) -> None:
        self._made: dict[str, _FunctionPrompt] = {}
        self._callbacks: dict[object, Callable[[], None]] = {}

    @overload
    def add(self, function: _Function, /) -> _Function: ...
    @overload
    def add(
        self, /, *, name: str | None = None, title: str | None = None
    ) -> Callable[[_Function], _Function]: ...
    def add(
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        name: str | None = None,
        title: str | None = None,
    ) -> Any:
        """Make a prompt from a function; used as a decorator, with or without options."""

        def added(function: Callable[..., Any]) -> Callable[..., Any]:
            made = _FunctionPrompt(function, name or function.__name__, title)
            if made.name in self._made:
                raise DefinitionError(f"there are two prompts named {made.name!r}; rename one")
            self._made[made.name] = made
            self._tell()
            return function

        return added if function is None else added(function)

    def remove(self, name: str) -> None:
        """Remove a prompt; an unknown name is ignored."""
        if self._made.pop(name, None) is not None:
            self._tell()

    async def list_prompts(self) -> Sequence[Prompt]:
        """The prompts, in the order in which they were added."""
        return [made.prompt for made in self._made.values()]

    async def get_prompt(
        self, name: str, arguments: Mapping[str, str], context: ToolContext
    ) -> GetPromptResult:
        """A prompt with its arguments filled in; see `PromptProvider`."""
        if name not in self._made:
            raise LookupError(f"Unknown prompt: {name}")
        return await self._made[name].written(arguments, context)

    def on_change(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` whenever a prompt is added or removed."""
        key = object()
        self._callbacks[key] = callback
        return lambda: self._callbacks.pop(key, None) and None

    def _tell(self) -> None:
        for callback in list(self._callbacks.values()):
            callback()


class _FunctionPrompt:
    """One function as a prompt."""

    def __init__(self, function: Callable[..., Any], name: str, title: str | None) -> None:
        import docstring_parser

        self.name = name
        self._title = title
        self._function = function
        self._context: str | None = None
        document = docstring_parser.parse(inspect.getdoc(function) or "")
        self._description = (document.description or "").strip() or None
        described = {param.arg_name: param.description for param in document.params}
        self._arguments: list[dict[str, Any]] = []
        for parameter in inspect.signature(function, eval_str=True).parameters.values():
            if parameter.annotation is ToolContext:
                self._context = parameter.name
                continue
            if parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL, parameter.POSITIONAL_ONLY):
                raise DefinitionError(
                    f"prompt {name!r}: parameter {parameter.name!r} must have a name of its own"
                )
            if parameter.annotation not in (str, str | None, parameter.empty):
                raise DefinitionError(f"prompt {name!r}: argument {parameter.name!r} must be a str")
            about = described.get(parameter.name)
            required = parameter.default is parameter.empty
            self._arguments.append({"name": parameter.name, "description": about, "required": required})
        self._names = frozenset(argument["name"] for argument in self._arguments)
        self._required = [argument["name"] for argument in self._arguments if argument["required"]]

    @cached_property
    def prompt(self) -> Prompt:
        from mcp_types import Prompt, PromptArgument

        arguments = [PromptArgument(**argument) for argument in self._arguments]
        return Prompt(
            name=self.name, title=self._title, description=self._description, arguments=arguments or None
        )

    async def written(self, arguments: Mapping[str, str], context: ToolContext) -> GetPromptResult:
        missing = [name for name in self._required if name not in arguments]
        unknown = [name for name in arguments if name not in self._names]
        if missing or unknown:
            faults = [f"{name!r} is missing" for name in missing] + [
                f"{name!r} is unknown" for name in unknown
            ]
            raise InvalidArgumentsError(f"prompt {self.name}: {', '.join(faults)}")
        given: dict[str, Any] = dict(arguments)
        if self._context is not None:
            given[self._context] = context
        found = self._function(**given)
        if inspect.isawaitable(found):
            found = await found
        return self._result(cast("Written", found))

    def _result(self, written: Written) -> GetPromptResult:
        from mcp_types import GetPromptResult, PromptMessage

        if isinstance(written, GetPromptResult):
            return written
        parts = [written] if isinstance(written, str | PromptMessage) else list(written)
        return GetPromptResult(description=self._description, messages=[_message(part) for part in parts])


def _message(part: PromptMessage | str) -> PromptMessage:
    from mcp_types import PromptMessage, TextContent

    if isinstance(part, PromptMessage):
        return part
    return PromptMessage(role="user", content=TextContent(type="text", text=part))


@runtime_checkable
class ResourceProvider(Protocol):
    """Readable resources of a server (specification, server/resources).

    Entries and contents are models of `mcp_types`, or wire dictionaries.
    """

    async def list_resources(self) -> Sequence[Resource | Mapping[str, Any]]:
        """The resources to list, in a stable order."""
        ...

    async def list_resource_templates(self) -> Sequence[ResourceTemplate | Mapping[str, Any]]:
        """URI templates, for resources that are too many to list."""
        ...

    async def read_resource(
        self, uri: str
    ) -> Sequence[TextResourceContents | BlobResourceContents | Mapping[str, Any]]:
        """The contents at `uri`; a `LookupError` is told to the client."""
        ...

    def on_change(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` whenever the list has changed; return a function that stops this."""
        ...


@runtime_checkable
class UpdatingResources(ResourceProvider, Protocol):
    """Resources that report changes of their contents, so that clients can subscribe to them."""

    def on_update(self, callback: Callable[[str], None]) -> Callable[[], None]:
        """Call `callback` with the URI of a resource whose contents have changed; return what stops this."""
        ...
