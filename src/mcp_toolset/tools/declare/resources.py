"""`Resources`: resources and resource templates made from functions."""

from __future__ import annotations

import inspect
import re
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeVar
from urllib.parse import unquote

import anyio.to_thread
from pydantic_core import to_json

from mcp_toolset.errors import DefinitionError

_Function = TypeVar("_Function", bound=Callable[..., Any])

_VARIABLE: Final = re.compile(r"\{(\+?)(\w+)\}")


class Resources:
    """Resources made from functions: `@resources.add("book://{id}")` above `def book(id: str) -> str`.

    The docstring is the description. A text is sent as text, bytes as a blob, and any other value as JSON.
    Every variable of the URI is a parameter of the function; `{+path}` also takes slashes. Without variables
    the resource is listed; with variables it is a template.
    """

    def __init__(self) -> None:
        self._made: dict[str, _FunctionResource] = {}
        self._callbacks: dict[object, Callable[[], None]] = {}

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
            for callback in list(self._callbacks.values()):
                callback()
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

    def on_change(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` whenever a resource is added."""
        key = object()
        self._callbacks[key] = callback
        return lambda: self._callbacks.pop(key, None) and None


class _FunctionResource:
    """One function as a resource or a template."""

    def __init__(self, function: Callable[..., Any], uri: str, name: str, mime_type: str | None) -> None:
        self.uri = uri
        self._function = function
        self._mime_type = mime_type
        self._paths = {found[2] for found in _VARIABLE.finditer(uri) if found[1]}
        self.variables = [found[2] for found in _VARIABLE.finditer(uri)]
        parameters = inspect.signature(function, eval_str=True).parameters
        required = {one.name for one in parameters.values() if one.default is one.empty}
        if not required <= set(self.variables) <= set(parameters):
            raise DefinitionError(
                f"resource {uri!r}: its variables are {self.variables}, and {name} takes {list(parameters)}; "
                "give the function one parameter for each variable"
            )
        self._types = {
            one.name: one.annotation for one in parameters.values() if one.annotation is not one.empty
        }
        parts = _VARIABLE.split(uri)
        pattern = "".join(
            re.escape(part) if at % 3 == 0 else f"(?P<{part}>{'.+' if parts[at - 1] else '[^/?#]+'})"
            for at, part in enumerate(parts)
            if at % 3 != 1
        )
        self._fits = re.compile(pattern).fullmatch
        described = {"description": (inspect.getdoc(function) or "").strip(), "mimeType": mime_type or ""}
        self.entry = {"name": name, **{key: value for key, value in described.items() if value}}

    def values(self, uri: str) -> dict[str, str] | None:
        if (found := self._fits(uri)) is None:
            return None
        values = {name: unquote(value) for name, value in found.groupdict().items()}
        # A variable is one segment: no `%2F` may make a path of it.
        segments = [value for name, value in values.items() if name not in self._paths]
        return None if any(one in (".", "..") or {*one} & {"/", "\\", "\0"} for one in segments) else values

    async def read(self, uri: str, values: Mapping[str, str]) -> Mapping[str, Any]:
        """The contents; raises `LookupError` if a value is not of the parameter's type."""
        arguments = {name: self._typed(uri, name, value) for name, value in values.items()}
        call = partial(self._function, **arguments)
        is_async = inspect.iscoroutinefunction(self._function)
        found = await call() if is_async else await anyio.to_thread.run_sync(call, abandon_on_cancel=True)
        if isinstance(found, bytes):
            mime_type = self._mime_type or "application/octet-stream"
            return {"uri": uri, "mimeType": mime_type, "blob": b64encode(found).decode()}
        if isinstance(found, str):
            return {"uri": uri, "mimeType": self._mime_type or "text/plain", "text": found}
        return {
            "uri": uri,
            "mimeType": self._mime_type or "application/json",
            "text": to_json(found).decode(),
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
