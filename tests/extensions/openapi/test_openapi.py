"""APIs as tools, by their OpenAPI documents: in process, over HTTP, and as an entry of a file."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from tests.extensions.openapi.shop import document, shop

from mcp_toolset import OpenAPIToolset, ToolResult, ToolsetServer

pytestmark = [pytest.mark.anyio, pytest.mark.needs("openapi")]


@asynccontextmanager
async def opened(said: Any = None, **options: Any) -> AsyncIterator[ToolsetServer]:
    """A server of an API that is an application of this process."""
    options = {"transport": shop(), "credentials": {}, **options}
    tools = OpenAPIToolset(said or document(), **options)
    with anyio.fail_after(60):
        async with ToolsetServer(tools, keep=False) as server:
            yield server


def asked(result: ToolResult) -> dict[str, Any]:
    """What the API was asked."""
    assert not result.is_error, result.text
    return json.loads(result.text)


async def test_g1_the_operations_of_a_document_are_tools() -> None:
    async with opened() as server:
        tools = {one["name"]: one for one in server.tools()}
    assert [*tools] == ["listPets", "createPet", "pets_delete"]
    hints = [tools[name]["annotations"] for name in ("listPets", "createPet", "pets_delete")]
    assert [one["readOnlyHint"] for one in hints] == [True, False, False]
    assert hints[2]["destructiveHint"] is True
    assert tools["createPet"]["description"] == "Create a pet."
    created = tools["createPet"]["inputSchema"]
    assert [*created["properties"]] == ["name", "tag", "parent"], "what is read-only is not sent"
    assert created["required"] == ["name"]


async def test_g1_a_call_is_a_request_to_the_api() -> None:
    async with opened(credentials={"token": "s3cret-token"}) as server:
        listed = asked(await server.call_tool("listPets", {"limit": 5, "tags": ["a b", "c&d"]}))
        made = asked(await server.call_tool("createPet", {"name": "Rex", "parent": {"name": "Ada"}}))
        gone = asked(await server.call_tool("pets_delete", {"petId": "a/b c"}))
    assert (listed["method"], listed["path"]) == ("GET", "/pets")
    assert listed["query"] == "limit=5&tags=a%20b&tags=c%26d"
    assert listed["headers"]["authorization"] == "Bearer s3cret-token"
    assert json.loads(made["body"]) == {"name": "Rex", "parent": {"name": "Ada"}}
    assert made["headers"]["content-type"] == "application/json"
    assert (gone["method"], gone["path"]) == ("DELETE", "/pets/a%2Fb%20c")


async def test_g1_arguments_that_do_not_fit_are_refused_before_a_request_is_sent() -> None:
    async with opened() as server:
        wrong = await server.call_tool("listPets", {"limit": 500})
        unknown = await server.call_tool("listPets", {"page": 2})
        up = await server.call_tool("pets_delete", {"petId": "../users"})
    assert wrong.is_error and "100" in wrong.text
    assert unknown.is_error and "page" in unknown.text
    assert up.is_error and "leads to another path" in up.text
