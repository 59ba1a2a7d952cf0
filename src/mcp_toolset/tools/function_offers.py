"""`Prompts` and `Resources`: prompts, resources and resource templates made from functions."""

from __future__ import annotations

import inspect
import re
from base64 import b64encode
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast, overload
from urllib.parse import unquote

import anyio.to_thread
from pydantic_core import to_json

from mcp_toolset._callbacks import Callbacks
from mcp_toolset.errors import DefinitionError, InvalidArgumentsError
from mcp_toolset.tools.call import ToolContext

if TYPE_CHECKING:
    from mcp_types import GetPromptResult, Prompt, PromptMessage

    from mcp_toolset.tools.source import Written


_Function = TypeVar("_Function", bound=Callable[..., Any])

_VARIABLE: Final = re.compile(r"\{(\+?)(\w+)\}")
_STOPS: Final = {False: re.compile("[/?#]"), True: re.compile("\n")}
"""Characters that no value of a variable has, by whether it may be a path."""

MAX_URI: Final = 65_536
"""Characters of a URI that is compared with templates."""


class _ChangingList:
    """A list that tells of its changes."""

    def __init__(self) -> None:
        self._changed = Callbacks()

    def on_change(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` whenever something is added or removed; return a function that stops this."""
        return self._changed.add(callback)


class Prompts(_ChangingList):
    """Prompts made from functions: the docstring is the description, the parameters are the arguments.

    Every argument is a text, as the protocol requires; a parameter annotated `ToolContext` gets the context.
    """

    def __init__(self) -> None:
        super().__init__()
        self._made: dict[str, _FunctionPrompt] = {}

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
            self._changed.tell()
            return function

        return added if function is None else added(function)

    def remove(self, name: str) -> None:
        """Remove a prompt; an unknown name is ignored."""
        if self._made.pop(name, None) is not None:
            self._changed.tell()

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
        result = self._function(**given)
        if inspect.isawaitable(result):
            result = await result
        return self._result(cast("Written", result))

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


class Resources(_ChangingList):
    """Resources made from functions: `@resources.add("book://{id}")` above `def book(id: str) -> str`.

    The docstring is the description. A text is sent as text, bytes as a blob, and any other value as JSON.
    Every variable of the URI is a parameter of the function; `{+path}` also takes slashes. Without variables
    the resource is listed; with variables it is a template.
    """

    def __init__(self) -> None:
        super().__init__()
        self._made: dict[str, _FunctionResource] = {}

    def add(
        self, uri: str, /, *, name: str | None = None, mime_type: str | None = None
    ) -> Callable[[_Function], _Function]:
        """Make a resource, or a template, from a function; used as a decorator.

        Args:
            uri: The URI, or a template with variables, which are the parameters: `book://{id}`.
            name: The name for people; by default the function's.
            mime_type: The media type; by default that of text, bytes or JSON.
        """
        if not isinstance(uri, str) or "://" not in uri:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise DefinitionError(
                f'@resources.add takes a URI, as in @resources.add("book://{{id}}"), not {uri!r}'
            )

        def added(function: _Function) -> _Function:
            if uri in self._made:
                raise DefinitionError(f"there are two resources {uri!r}; change the URI of one")
            self._made[uri] = _FunctionResource(function, uri, name or function.__name__, mime_type)
            self._changed.tell()
            return function

        return added

    async def list_resources(self) -> Sequence[Mapping[str, Any]]:
        """The resources without variables, in the order in which they were added."""
        return [{"uri": made.uri, **made.entry} for made in self._made.values() if not made.variables]

    async def list_resource_templates(self) -> Sequence[Mapping[str, Any]]:
        """The templates, in the order in which they were added."""
        return [{"uriTemplate": made.uri, **made.entry} for made in self._made.values() if made.variables]

    async def read_resource(self, uri: str) -> Sequence[Mapping[str, Any]]:
        """The contents at `uri`; see `ResourceProvider`."""
        for made in self._made.values():
            if (values := made.values(uri)) is not None:
                return [await made.read(uri, values)]
        raise LookupError(f"no such resource: {uri}")


class _FunctionResource:
    """One function as a resource or a template."""

    def __init__(self, function: Callable[..., Any], uri: str, name: str, mime_type: str | None) -> None:
        self.uri = uri
        self._function = function
        self._mime_type = mime_type
        self._paths = {match[2] for match in _VARIABLE.finditer(uri) if match[1]}
        self.variables = [match[2] for match in _VARIABLE.finditer(uri)]
        parameters = inspect.signature(function, eval_str=True).parameters
        required = {
            parameter.name for parameter in parameters.values() if parameter.default is parameter.empty
        }
        if len(set(self.variables)) < len(self.variables):
            raise DefinitionError(f"resource {uri!r}: a variable stands in it twice; name each by itself")
        if not required <= set(self.variables) <= set(parameters):
            raise DefinitionError(
                f"resource {uri!r}: its variables are {self.variables}, and {name} takes {list(parameters)}; "
                "give the function one parameter for each variable"
            )
        self._types = {
            one.name: one.annotation for one in parameters.values() if one.annotation is not one.empty
        }
        parts = _VARIABLE.split(uri)
        self._literals = parts[::3]
        described = {"description": (inspect.getdoc(function) or "").strip(), "mimeType": mime_type or ""}
        self.entry = {"name": name, **{key: value for key, value in described.items() if value}}

    def values(self, uri: str) -> dict[str, str] | None:
        if (parts := self._parted(uri)) is None:
            return None
        values = {name: unquote(value) for name, value in zip(self.variables, parts, strict=True)}
        # A variable is one segment: no `%2F` may make a path of it.
        segments = [value for name, value in values.items() if name not in self._paths]
        return (
            None
            if any(segment in (".", "..") or {*segment} & {"/", "\\", "\0"} for segment in segments)
            else values
        )

    def _parted(self, uri: str) -> list[str] | None:
        """The text of each variable, the first as long as it can be; `None` if the template does not fit."""
        if not self.variables:
            return [] if uri == self.uri else None
        first, *others, last = self._literals
        if len(uri) > MAX_URI or not (uri.startswith(first) and uri.endswith(last)):
            return None
        stops = {is_path: [one.start() for one in _STOPS[is_path].finditer(uri)] for is_path in (False, True)}

        def stop(at: int, name: str) -> int:
            """The end of a variable, by its beginning."""
            every = stops[name in self._paths]
            return every[index] if (index := bisect_left(every, at)) < len(every) else len(uri)

        # From the end, so that no choice is made twice: where each literal can stand with all that follows.
        places = [[len(uri) - len(last)]]
        for literal, name in zip(reversed(others), reversed(self.variables[1:]), strict=True):
            ends, fits = places[-1], list[int]()
            at = uri.find(literal)
            while at >= 0:
                begin = at + len(literal)
                end = bisect_right(ends, begin)
                if end < len(ends) and ends[end] <= stop(begin, name):
                    fits.append(at)
                at = uri.find(literal, at + 1) if at < len(uri) else -1
            places.append(fits)
        values, begin = list[str](), len(first)
        for name, literal, ends in zip(self.variables, (*others, last), reversed(places), strict=True):
            end = bisect_right(ends, stop(begin, name))
            if not end or ends[end - 1] <= begin:
                return None
            values.append(uri[begin : ends[end - 1]])
            begin = ends[end - 1] + len(literal)
        return values

    async def read(self, uri: str, values: Mapping[str, str]) -> Mapping[str, Any]:
        arguments = {name: self._typed(uri, name, value) for name, value in values.items()}
        call = partial(self._function, **arguments)
        is_async = inspect.iscoroutinefunction(self._function)
        content = await call() if is_async else await anyio.to_thread.run_sync(call, abandon_on_cancel=True)
        if isinstance(content, bytes):
            mime_type = self._mime_type or "application/octet-stream"
            return {"uri": uri, "mimeType": mime_type, "blob": b64encode(content).decode()}
        if isinstance(content, str):
            return {"uri": uri, "mimeType": self._mime_type or "text/plain", "text": content}
        return {
            "uri": uri,
            "mimeType": self._mime_type or "application/json",
            "text": to_json(content).decode(),
        }

    def _typed(self, uri: str, name: str, value: str) -> Any:
        kind = self._types.get(name, str)
        if kind is str:
            return value
        from pydantic import TypeAdapter, ValidationError

        try:
            return TypeAdapter(kind).validate_python(value)
        except ValidationError:
            raise LookupError(f"no such resource: {uri}") from None
