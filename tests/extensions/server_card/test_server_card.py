"""A server publishes a card with an ETag (SEP-2127)."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.support.served import served

from mcp_toolset import Toolset, ToolsetServer, load_toolset, tool
from mcp_toolset.config import load_config
from mcp_toolset.errors import ConfigError, DefinitionError
from mcp_toolset.extensions.server_card.extension import ServerCard
from mcp_toolset.policy import Policy

pytestmark = pytest.mark.anyio
CARD = "/mcp/server-card"
NAME = re.compile(r"[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+")


@tool
def launch_rocket(code: str) -> str:
    """Launch a rocket."""
    return code


@asynccontextmanager
async def clients(server: ToolsetServer, **options: Any) -> AsyncGenerator[httpx2.AsyncClient]:
    async with served(server, **options) as url, httpx2.AsyncClient(base_url=url) as client:
        yield client


def kit(**options: Any) -> ToolsetServer:
    return ToolsetServer(Toolset(launch_rocket), name="space port", version="1.2.3", **options)


async def test_g6_a_card_says_how_to_connect_and_no_more() -> None:
    policy = Policy(deny=["launch_*"])
    async with clients(kit(server_card=True, policy=policy, instructions="Launch with care.")) as client:
        answer = await client.get(CARD, headers={"accept": "application/mcp-server-card+json"})
        assert (
            answer.status_code == 200 and answer.headers["content-type"] == "application/mcp-server-card+json"
        )
        card = answer.json()
        assert (
            card.pop("$schema") == "https://static.modelcontextprotocol.io/schemas/v1/server-card.schema.json"
        )
        (remote,) = card.pop("remotes")
        assert remote["type"] == "streamable-http" and "2026-07-28" in remote["supportedProtocolVersions"]
        assert card == {
            "name": "localhost/space-port",
            "version": "1.2.3",
            "description": "The MCP server space port",
        }
        assert "launch" not in answer.text.lower()
        # The address leads to the server.
        hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": INITIALIZE}
        accept = {"accept": "application/json, text/event-stream"}
        said = await client.post(remote["url"], json=hello, headers=accept)
        assert said.status_code == 200 and "space port" in said.text


INITIALIZE = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "test", "version": "1"},
}


async def test_g6_who_has_the_card_is_told_that_it_is_the_same() -> None:
    async with clients(kit(server_card="com.example/port")) as client:
        first = await client.get(CARD)
        tag = first.headers["etag"]
        assert first.headers["cache-control"] == "public, max-age=3600" and re.fullmatch(
            r'"[0-9a-f]{32}"', tag
        )
        for known in (tag, f'"other", {tag}', f"W/{tag}", "*"):
            same = await client.get(CARD, headers={"if-none-match": known})
            assert (same.status_code, same.content, same.headers["etag"]) == (304, b"", tag)
        other = await client.get(CARD, headers={"if-none-match": '"other"'})
        assert other.status_code == 200 and other.content == first.content
    async with clients(kit(server_card=ServerCard("com.example/port", title="Port"))) as client:
        assert (await client.get(CARD, headers={"if-none-match": tag})).status_code == 200


async def test_g6_everybody_may_read_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async with clients(kit(server_card=True)) as client:
        page = await client.get(CARD, headers={"origin": "https://other.example"})
        assert page.status_code == 200 and page.headers["access-control-allow-origin"] == "*"
        asked = await client.options(CARD, headers={"origin": "https://other.example"})
        assert asked.status_code == 204 and asked.headers["access-control-allow-methods"] == "GET"
        foreign = await client.get(CARD, headers={"host": "tools.example.com"})
        assert foreign.json()["name"] == "com.example.tools/space-port"
        assert foreign.json()["remotes"][0]["url"] == "http://tools.example.com/mcp"
        assert (await client.head(CARD)).status_code == 200
        assert (await client.post(CARD)).status_code == 405
        # All other paths are as strict as before.
        for path in ("/mcp", "/mcp/other", "/health"):
            assert (await client.get(path, headers={"origin": "https://other.example"})).status_code == 403


@pytest.mark.needs("inbound_auth")
async def test_g6_it_needs_no_token(tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    auth = {"tokens": {"anna": {"token": "a-long-secret-token-of-anna"}}}
    file.write_text(json.dumps({"toolset": {"auth": auth, "server_card": True}, "mcpServers": {}}))
    async with clients(ToolsetServer(load_toolset(file), name="hub")) as client:
        assert (await client.get(CARD)).status_code == 200
        assert (await client.get(CARD, headers={"authorization": "Bearer wrong"})).status_code == 200
        assert (await client.post("/mcp", json={})).status_code == 401


@pytest.mark.parametrize(
    "host", ["a b", "evil.example/path", "evil.example\\x", "x@y", "", "-" * 300, "x:99999", "x:0"]
)
async def test_g6_a_strange_host_is_in_no_card(host: str) -> None:
    async with clients(kit(server_card=True)) as client:
        answer = await client.get(CARD, headers={"host": host})
        card = answer.json() if answer.status_code == 200 else {"name": "localhost/space-port"}
        assert "remotes" not in card and card["name"] == "localhost/space-port"


async def test_g6_a_file_says_what_the_server_does_not_know(tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    said = {
        "name": "com.example/tools",
        "description": "Our tools",
        "title": "Tools",
        "url": "https://tools.example.com/mcp",
        "website": "https://example.com/tools",
    }
    file.write_text(json.dumps({"toolset": {"server_card": said}, "mcpServers": {}}))
    async with clients(ToolsetServer(load_toolset(file), name="hub")) as client:
        card = (await client.get(CARD, headers={"host": "other.example"})).json()
    assert card["name"] == "com.example/tools" and card["title"] == "Tools"
    assert card["description"] == "Our tools" and card["websiteUrl"] == "https://example.com/tools"
    assert card["remotes"][0]["url"] == "https://tools.example.com/mcp"


@pytest.mark.parametrize(
    "said",
    [
        "tools",
        "com.example/tools/more",
        {"url": "ftp://example.com"},
        {"url": "https://me:pw@example.com/mcp"},
        {"url": "https://example.com/mcp\nX"},
        {"website": "https://example.com/a b"},
        {"title": "Too\u202els"},
        {"description": "One\nTwo"},
    ]
    + [{"description": "x" * 101}, {"title": ""}, {"website": "example.com"}, {"tools": []}],
)
def test_g6_a_card_that_breaks_the_rules_is_refused(said: Any, tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    file.write_text(json.dumps({"toolset": {"server_card": said}, "mcpServers": {}}))
    with pytest.raises(ConfigError, match="server_card"):
        load_config(file)
    if isinstance(said, str) or "tools" not in said:
        with pytest.raises(DefinitionError, match="server_card"):
            ServerCard(**({"name": said} if isinstance(said, str) else said))


async def test_g6_without_the_extension_there_is_no_card() -> None:
    async with clients(kit()) as client:
        assert (await client.get(CARD)).status_code == 404


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ({"nme": "com.example/tools"}, "there is no key 'nme'; use name, "),
        ({"title": 5}, "its title is no text: 5"),
        ({"url": ["https://a.example"]}, "its url is no text"),
        ({"url": "https://a.example:99999"}, "its url is no web address"),
        (5, "its name is no text: 5"),
    ],
)
def test_g6_a_program_is_told_of_a_wrong_key_and_a_value_of_a_wrong_kind(said: Any, told: str) -> None:
    with pytest.raises(DefinitionError, match=re.escape(told)):
        kit(server_card=said)
