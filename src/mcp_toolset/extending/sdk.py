"""`from_sdk`: an extension of the MCP SDK, such as `mcp.server.apps.Apps`, as one of ours."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from mcp_types import CallToolRequestParams

from mcp_toolset.errors import DefinitionError
from mcp_toolset.extending.extension import Extension
from mcp_toolset.extending.mounts import DeclaredToMounts
from mcp_toolset.protocol.json_rpc import METHOD_NOT_FOUND, MCPError
from mcp_toolset.sdk import theirs

if TYPE_CHECKING:
    from mcp_toolset.tools.call import ToolContext
    from mcp_toolset.tools.tool import Tool

_HINTS: Final = ("read_only", "destructive", "idempotent", "open_world")
_TAKEN: Final = frozenset(("name", "title", "description"))
_CONTEXT: Final = re.compile(r"\bContext\b")


class FromSdk(Extension):
    """An extension of the SDK: what it advertises and adds, and what it does to calls."""

    def __init__(self, given: Any) -> None:
        """Take an extension of the SDK."""
        self._given = given
        self.identifier = given.identifier

    def settings(self) -> dict[str, Any]:
        return dict(self._given.settings())

    def tools(self) -> Sequence[Tool[..., Any]]:
        return [self._tool(one) for one in getattr(self._given, "tools", tuple)()]

    def lifespan(self) -> AbstractAsyncContextManager[object] | None:
        """Put its methods, and what it does to calls, before the server, as the SDK's own server does."""
        given = self._given
        methods = getattr(given, "methods", tuple)()
        return _before(self.host.lowlevel, given, methods) if methods or _intercepts(given) else None

    def _tool(self, one: Any) -> Tool[..., Any]:
        from mcp_toolset.tools.tool import tool

        keywords, place = dict(one.kwargs), f"extensions: {self.identifier}: tool {one.fn.__name__}"
        hints = keywords.pop("annotations", None)
        if others := sorted(keywords.keys() - _TAKEN):
            raise DefinitionError(f"{place} has {others[0]}=, which this server does not take; leave it out")
        if any(_CONTEXT.search(str(kind)) for kind in one.fn.__annotations__.values()):
            raise DefinitionError(
                f"{place} takes the SDK's Context, which only the SDK's own server makes; take a "
                "mcp_toolset.ToolContext"
            )
        options: Any = {name: getattr(hints, f"{name}_hint", None) for name in _HINTS}
        options["title"] = getattr(hints, "title", None)
        return tool(meta=one.meta, **{**options, **keywords})(one.fn)


class WithPages(FromSdk):
    """One that has pages."""

    def read_resource(self, uri: str, context: ToolContext) -> Any:
        """A page, by its address; a caller who may not know of its tools may not know of it."""
        page = next(
            (page.resource for page in self._given.resources() if str(page.resource.uri) == uri), None
        )
        if page is None:
            return None
        if any(_page_of(one.meta) == uri for one in getattr(self._given, "tools", tuple)()):
            shown = [one for one in self.host.table.values() if _page_of(one.definition.meta) == uri]
            if all(self.host.hides(one, context.identity) for one in shown):
                raise LookupError("Resource not found")
        return _read(uri, page)


class FromSdkClient(Extension):
    """An extension of the SDK's client side: what it declares to mounted servers, and hears from them."""

    def __init__(self, given: Any) -> None:
        """Take an extension of the SDK's client side.

        Raises:
            DefinitionError: it claims results.
        """
        if given.claims():
            raise DefinitionError(
                f"extensions: {given.identifier} claims results of calls, which the bridge does not hand "
                "over; leave its claims() empty, and change results by Extension.guard"
            )
        self._given = given

    def declared(self) -> DeclaredToMounts:
        every = self._given.notifications()
        hears = {one.method: partial(_heard, one) for one in every}
        return DeclaredToMounts(self._given.identifier, self._given.settings(), hears)


async def _heard(binding: Any, params: Mapping[str, Any]) -> None:
    await binding.handler(binding.params_type.model_validate(params, by_name=False))


def from_sdk(given: Any) -> Extension:
    """An extension of the SDK as one of ours; without pages, it promises no resources."""
    if hasattr(given, "claims"):
        return FromSdkClient(given)
    return (WithPages if getattr(given, "resources", tuple)() else FromSdk)(given)


def _page_of(meta: Any) -> Any:
    """The page that a tool shows (MCP Apps)."""
    ui: Any = None if meta is None else meta.get("ui")
    return cast("Mapping[str, Any]", ui).get("resourceUri") if isinstance(ui, Mapping) else None


async def _read(uri: str, page: Any) -> list[dict[str, Any]]:
    meta = {} if page.meta is None else {"_meta": page.meta}
    return [{"uri": uri, "mimeType": page.mime_type, "text": await page.read(), **meta}]


def _intercepts(given: object) -> bool:
    """True if its class has an interceptor of its own, beside that of the SDK's base class."""
    interceptor = getattr(type(given), "intercept_tool_call", None)
    return interceptor is not None and not getattr(interceptor, "__qualname__", "").startswith("Extension.")


@asynccontextmanager
async def _before(server: Any, given: Any, methods: Sequence[Any]) -> AsyncGenerator[None]:
    for method in methods:
        server.add_request_handler(method.method, method.params_type, partial(_at_its_revisions, method))
    if not _intercepts(given):
        yield
        return
    stage = partial(_intercepted, given)
    server.middleware.append(stage)
    try:
        yield
    finally:
        server.middleware.remove(stage)


async def _at_its_revisions(binding: Any, ctx: Any, params: Any) -> Any:
    """The answer to a method of an extension, which may be for some revisions of the protocol only."""
    if binding.protocol_versions is not None and ctx.protocol_version not in binding.protocol_versions:
        raise theirs(MCPError(METHOD_NOT_FOUND, "Method not found", binding.method))
    return await binding.handler(ctx, params)


async def _intercepted(given: Any, ctx: Any, call_next: Callable[[Any], Awaitable[Any]]) -> Any:
    if ctx.method != "tools/call" or ctx.request_id is None:
        return await call_next(ctx)
    params = CallToolRequestParams.model_validate(ctx.params, by_name=False)
    return await given.intercept_tool_call(params, ctx, call_next)
