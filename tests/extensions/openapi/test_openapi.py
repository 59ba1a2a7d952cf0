"""APIs as tools, by their OpenAPI documents: in process, over HTTP, and as an entry of a file."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.extensions.openapi.shop import document, shop
from tests.support.served import hosted

from mcp_toolset import OpenAPIToolset, ToolResult, ToolsetServer, load_toolset
from mcp_toolset.config import load_config

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


# Over HTTP, as an entry of a file


def entry(tmp_path: Path, said: Any, **others: Any) -> Path:
    """A configuration with an API."""
    path = tmp_path / "mcp.json"
    path.write_text(json.dumps({"mcpServers": {"shop": {"openapi": said, **others}}}))
    return path


@asynccontextmanager
async def configured(path: Path) -> AsyncIterator[ToolsetServer]:
    with anyio.fail_after(60):
        async with ToolsetServer(load_toolset(path), keep=False) as server:
            yield server


async def test_g1_a_file_names_an_api_by_the_address_of_its_document(tmp_path: Path) -> None:
    app = shop()
    async with hosted(app) as url, configured(entry(tmp_path, f"{url}/openapi.json")) as server:
        listed = asked(await server.call_tool("shop_listPets", {"limit": 3}))
        assert {one["name"] for one in server.tools()} == {
            "shop_listPets",
            "shop_createPet",
            "shop_pets_delete",
        }
    assert listed["query"] == "limit=3"
    assert "authorization" not in listed["headers"]


async def test_g1_a_file_names_a_document_by_its_path_and_credentials_by_their_schemes(
    tmp_path: Path,
) -> None:
    (tmp_path / "shop.json").write_text(json.dumps(document()))
    async with hosted(shop()) as url:
        said = {"document": "shop.json", "server": url, "credentials": {"token": "${SHOP_TOKEN}"}}
        path = entry(tmp_path, said, headers={"X-Team": "blue"}, prefix="", include=["listPets"])
        config = load_config(path, environ={"SHOP_TOKEN": "s3cret-token"})
        with anyio.fail_after(60):
            async with ToolsetServer(load_toolset(config), keep=False) as server:
                assert [one["name"] for one in server.tools()] == ["listPets"]
                listed = asked(await server.call_tool("listPets", {}))
    assert listed["headers"]["authorization"] == "Bearer s3cret-token"
    assert listed["headers"]["x-team"] == "blue"


async def test_g1_an_api_that_cannot_be_read_has_a_status_with_the_reason(tmp_path: Path) -> None:
    async with hosted(shop()) as url, configured(entry(tmp_path, f"{url}/missing.json")) as server:
        status = server.statuses()["shop"]
    assert status.state == "offline"
    assert "no OpenAPI document" in status.reason or "neither" in status.reason


@pytest.mark.parametrize(
    ("said", "others", "told"),
    [
        ("https://api.example.com/o.json", {"command": "x"}, "both `openapi` and `command`"),
        ("https://api.example.com/o.json", {"url": "https://x.example.com"}, "both `openapi` and `url`"),
        ("ftp://api.example.com/o.json", {}, "http or https address"),
        ({"server": "https://x.example.com"}, {}, "document"),
        ({"document": "a.json", "sever": "https://x.example.com"}, {}, "did you mean `server`"),
        ({"document": "a.json", "server": "x.example.com"}, {}, "no http or https address"),
        ("missing.json", {}, "no such file"),
        ({"document": "a.json"}, {"auth": "oauth"}, "a login is for an address"),
        (["a.json"], {}, "must be a text or an object"),
    ],
)
def test_g1_an_entry_that_cannot_be_used_says_why(tmp_path: Path, said: Any, others: Any, told: str) -> None:
    (tmp_path / "a.json").write_text(json.dumps(document()))
    (server,) = load_toolset(entry(tmp_path, said, **others)).config.servers
    assert told in server.fault
