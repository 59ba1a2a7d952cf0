"""Attacks on applications in process: a lifespan that hangs or fails (G2)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from mcp_toolset import OpenAPIToolset, Toolset, ToolsetServer, tool
from mcp_toolset.errors import DefinitionError, ToolsetError

pytestmark = [pytest.mark.anyio, pytest.mark.needs("openapi")]

DOCUMENT: dict[str, Any] = {
    "openapi": "3.1.0",
    "info": {"title": "One", "version": "1"},
    "paths": {"/things": {"get": {"operationId": "go", "responses": {}}}},
}


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def things(request: Request) -> JSONResponse:
    return JSONResponse({})


def application(*, before: Any = None, after: Any = None) -> Starlette:
    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        if before is not None:
            await before()
        yield
        if after is not None:
            await after()

    return Starlette(routes=[Route("/things", things)], lifespan=lifespan)


async def fails() -> None:
    raise RuntimeError("no database")


# Severity: medium. A lifespan that waits for its database keeps each call waiting, without a deadline.
async def test_g2_a_lifespan_that_does_not_start_has_a_deadline() -> None:
    api = OpenAPIToolset(DOCUMENT, transport=application(before=anyio.sleep_forever), start_timeout=0.5)
    with anyio.fail_after(10):
        async with ToolsetServer(api, keep=False) as server:
            with pytest.raises(ToolsetError):
                await server.call_tool("go", {})


# Severity: medium. The process does not end: `serve` hangs on Ctrl-C.
async def test_g2_a_lifespan_that_does_not_end_has_a_deadline() -> None:
    api = OpenAPIToolset(DOCUMENT, transport=application(after=anyio.sleep_forever), start_timeout=0.5)
    with anyio.fail_after(8):
        async with ToolsetServer(api, keep=False) as server:
            assert not (await server.call_tool("go", {})).is_error


# Severity: medium. One application that fails to start takes all other toolsets away, where a mount is
# `offline`.
async def test_g2_an_application_that_does_not_start_leaves_the_others() -> None:
    api = OpenAPIToolset(DOCUMENT, transport=application(before=fails))
    with anyio.fail_after(10):
        async with ToolsetServer(Toolset(add, api), keep=False) as server:
            assert (await server.call_tool("add", {"a": 1, "b": 2})).text == "3"


# Severity: low. `transport="http://…"` is taken, and each call is an HTTP 500 of an API that was never
# asked.
@pytest.mark.parametrize("transport", ["http://127.0.0.1:9", object()])
def test_g2_a_transport_that_is_none_is_told(transport: Any) -> None:
    with pytest.raises((DefinitionError, TypeError)):
        OpenAPIToolset(DOCUMENT, transport=transport)
