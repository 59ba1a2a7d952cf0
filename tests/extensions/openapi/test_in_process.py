"""An application of this process behind its document: FastAPI and Starlette have such ones."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

import anyio
import httpx2
import pytest
from fastapi import Depends, FastAPI, File, Form, Query, UploadFile
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import BaseModel
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from tests.extensions.openapi.shop import document
from tests.support.asking import text_of

from mcp_toolset import OpenAPIToolset, Toolset, ToolsetServer, tool
from mcp_toolset.errors import DefinitionError, ToolsetError, UnknownToolError
from mcp_toolset.policy import Policy
from mcp_toolset.testing import Client

pytestmark = [pytest.mark.anyio, pytest.mark.needs("openapi")]
EXAMPLE = Path(__file__).parents[3] / "examples" / "openapi" / "app.py"


class Office:
    """An application with a lifespan, whose answers need its state."""

    def __init__(self) -> None:
        self.events: list[str] = []

        @asynccontextmanager
        async def lifespan(app: Any) -> AsyncIterator[dict[str, str]]:
            self.events.append("opened")
            yield {"town": "Oslo"}
            self.events.append("closed")

        async def town(request: Request) -> JSONResponse:
            self.events.append("called")
            return JSONResponse({"town": request.state.town})

        self.app = Starlette(routes=[Route("/pets", town)], lifespan=lifespan)


async def test_g2_an_application_is_served_within_its_lifespan() -> None:
    office = Office()
    with anyio.fail_after(60):
        async with ToolsetServer(OpenAPIToolset(document(), transport=office.app), keep=False) as server:
            assert office.events == ["opened"]
            assert (await server.call_tool("listPets", {})).structured == {"town": "Oslo"}
    assert office.events == ["opened", "called", "closed"]


async def test_g2_a_transport_of_httpx2_leaves_the_lifespan_alone() -> None:
    office = Office()
    transport = httpx2.ASGITransport(office.app, raise_app_exceptions=False)
    with anyio.fail_after(60):
        async with ToolsetServer(OpenAPIToolset(document(), transport=transport), keep=False) as server:
            assert (await server.call_tool("listPets", {})).is_error
    assert office.events == ["called"]


async def test_g2_no_request_leaves_the_process() -> None:
    """The servers that a document names lie elsewhere; the application answers all the same."""
    office = Office()
    said = document(servers=[{"url": "https://elsewhere.example.com/api"}])
    with anyio.fail_after(60):
        async with ToolsetServer(OpenAPIToolset(said, transport=office.app), keep=False) as server:
            result = await server.call_tool("listPets", {})
    assert result.is_error and "404" in result.text, "its path is of another server"


async def test_g2_hooks_policies_and_search_are_those_of_any_tool() -> None:
    @tool
    def own() -> str:
        """A tool of the program."""
        return "own"

    office = Office()
    api = OpenAPIToolset(document(), name="shop", transport=office.app)
    policy = Policy(deny=["destructive:*"], ask=["shop/createPet"])
    with anyio.fail_after(60):
        async with ToolsetServer(Toolset(own, api.deferred()), policy=policy, keep=False) as server:
            async with Client(server) as client:
                hits = text_of(await client.call_tool("search_tools", {"query": "pets"}))
            assert "listPets" in hits and "pets_delete" not in hits, "what is denied is not found"
            for name, arguments in (("createPet", {"name": "x"}), ("pets_delete", {"petId": "1"})):
                with pytest.raises(UnknownToolError):
                    await server.call_as_host(name, arguments)
            assert "called" not in office.events, "there is nobody who could be asked"


async def test_g2_the_example_runs() -> None:
    spec = importlib.util.spec_from_file_location("openapi_app", EXAMPLE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with anyio.fail_after(60):
        async with module.server as server:
            told = await server.call_tool("stock_of", {"item": "tea"})
    assert json.loads(told.text) == {"item": "tea", "left": 12}


# Applications that hang or fail

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


async def test_g2_a_lifespan_that_does_not_start_has_a_deadline() -> None:
    api = OpenAPIToolset(DOCUMENT, transport=application(before=anyio.sleep_forever), start_timeout=0.5)
    with anyio.fail_after(10):
        async with ToolsetServer(api, keep=False) as server:
            with pytest.raises(ToolsetError):
                await server.call_tool("go", {})


async def test_g2_a_lifespan_that_does_not_end_has_a_deadline() -> None:
    api = OpenAPIToolset(DOCUMENT, transport=application(after=anyio.sleep_forever), start_timeout=0.5)
    with anyio.fail_after(8):
        async with ToolsetServer(api, keep=False) as server:
            assert not (await server.call_tool("go", {})).is_error


async def test_g2_an_application_that_does_not_start_leaves_the_others() -> None:
    api = OpenAPIToolset(DOCUMENT, transport=application(before=fails))
    with anyio.fail_after(10):
        async with ToolsetServer(Toolset(add, api), keep=False) as server:
            assert (await server.call_tool("add", {"a": 1, "b": 2})).text == "3"


@pytest.mark.parametrize("transport", ["http://127.0.0.1:9", object()])
def test_g2_a_transport_that_is_none_is_told(transport: Any) -> None:
    with pytest.raises((DefinitionError, TypeError)):
        OpenAPIToolset(DOCUMENT, transport=transport)


async def test_g2_a_lifespan_may_have_tasks_of_its_own() -> None:
    ended = list[str]()

    @asynccontextmanager
    async def lifespan(app: Any) -> AsyncIterator[None]:
        async with anyio.create_task_group() as group:
            group.start_soon(anyio.sleep_forever)
            yield
            group.cancel_scope.cancel()
        ended.append("closed")

    app = Starlette(routes=[Route("/things", things)], lifespan=lifespan)
    with anyio.fail_after(10):
        async with ToolsetServer(OpenAPIToolset(DOCUMENT, transport=app), keep=False) as server:
            assert not (await server.call_tool("go", {})).is_error
    assert ended == ["closed"]


# FastAPI


Bearer = Annotated[HTTPAuthorizationCredentials, Depends(HTTPBearer())]


class Size(BaseModel):
    width: float


class Item(BaseModel):
    name: str
    size: Size
    tags: list[str] = []


@asynccontextmanager
async def _stocked(app: FastAPI) -> AsyncIterator[None]:
    app.state.names = {1: "coffee"}
    yield


async def test_g2_an_application_of_fastapi_is_served_by_the_document_that_it_writes() -> None:
    app = FastAPI(title="Stock", lifespan=_stocked)

    @app.get("/items/{item_id}")
    async def read_item(item_id: int, tags: Annotated[list[str] | None, Query()] = None) -> Item:
        """Read an item."""
        return Item(name=app.state.names[item_id], size=Size(width=1.5), tags=tags or [])

    @app.post("/items", status_code=201)
    async def add_item(item: Item) -> Item:
        return item

    @app.post("/photos")
    async def add_photo(
        photo: Annotated[UploadFile, File()], title: Annotated[str, Form()]
    ) -> dict[str, str]:
        return {"title": title, "size": str(len(await photo.read()))}

    @app.delete("/items/{item_id}")
    async def remove_item(item_id: int, token: Bearer) -> str:
        return f"{item_id} is gone by {token.credentials}"

    api = OpenAPIToolset(
        app.openapi(), transport=app, credentials={"HTTPBearer": "t-secret"}, output_schemas=True
    )
    with anyio.fail_after(60):
        async with ToolsetServer(api, keep=False) as server:
            tools = {one["name"]: one for one in server.tools()}
            read = await server.call_tool("read_item", {"item_id": 1, "tags": ["a b", "c"]})
            wrong = await server.call_tool("read_item", {"item_id": "one"})
            added = await server.call_tool("add_item", {"name": "tea", "size": {"width": 2}})
            photo = await server.call_tool("add_photo", {"photo": "data:,12345", "title": "T"})
            gone = await server.call_tool("remove_item", {"item_id": 1})
    assert {*tools} == {"read_item", "add_item", "add_photo", "remove_item"}
    assert tools["read_item"]["description"] == "Read Item.\nRead an item."
    assert [*tools["read_item"]["outputSchema"]["properties"]] == ["name", "size", "tags"]
    assert read.structured == {"name": "coffee", "size": {"width": 1.5}, "tags": ["a b", "c"]}
    assert wrong.is_error and "item_id" in wrong.text
    assert added.structured == {"name": "tea", "size": {"width": 2.0}, "tags": []}
    assert photo.structured == {"title": "T", "size": "5"}
    assert gone.text == '"1 is gone by t-secret"'
