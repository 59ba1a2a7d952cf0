"""Clients of the first revisions, and what of a request belongs to one connection alone (N9, N10)."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import httpx2
import mcp_types as types
import pytest
from mcp.server.lowlevel import Server
from tests.transports.test_slow_readers import INITIALIZE, PLAIN

from mcp_toolset import RemoteToolset, Toolset, ToolsetServer
from mcp_toolset.protocol.eras import forwarded_meta

pytestmark = pytest.mark.anyio

LINK = types.ResourceLink(type="resource_link", uri="a://1", name="one", title="The first")
AUDIO = types.AudioContent(type="audio", data="aGk=", mime_type="audio/wav")
TEXT = types.TextContent(type="text", text="here")


def upstream() -> Server[Any]:
    async def tools(ctx: Any, params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[types.Tool(name="all", input_schema={"type": "object"})])

    async def call(ctx: Any, params: Any) -> types.CallToolResult:
        return types.CallToolResult(content=[TEXT, LINK, AUDIO])

    async def prompts(ctx: Any, params: Any) -> types.ListPromptsResult:
        return types.ListPromptsResult(prompts=[types.Prompt(name="all")])

    async def prompt(ctx: Any, params: Any) -> types.GetPromptResult:
        said = [types.PromptMessage(role="user", content=block) for block in (TEXT, LINK, AUDIO)]
        return types.GetPromptResult(messages=said)

    return Server(
        "up",
        version="1",
        on_list_tools=tools,
        on_call_tool=call,
        on_list_prompts=prompts,
        on_get_prompt=prompt,
    )


class OldClient:
    """One of a given revision, which writes its own messages."""

    def __init__(self, http: httpx2.AsyncClient, revision: str) -> None:
        self.http = http
        self.revision = revision
        self.headers = dict(PLAIN)

    async def begin(self) -> None:
        params = {**INITIALIZE["params"], "protocolVersion": self.revision}
        answer = await self.http.post("/mcp", headers=self.headers, json={**INITIALIZE, "params": params})
        assert self._result(answer)["protocolVersion"] == self.revision
        self.headers["mcp-session-id"] = answer.headers["mcp-session-id"]
        note = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        await self.http.post("/mcp", headers=self.headers, json=note)

    async def ask(self, method: str, **params: Any) -> dict[str, Any]:
        request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        return self._result(await self.http.post("/mcp", headers=self.headers, json=request))

    @staticmethod
    def _result(answer: httpx2.Response) -> dict[str, Any]:
        if answer.headers["content-type"] == "application/json":
            return answer.json()["result"]
        (line,) = [line for line in answer.text.splitlines() if line.startswith("data: {")]
        return json.loads(line.removeprefix("data: "))["result"]


@asynccontextmanager
async def old_client(revision: str) -> AsyncGenerator[OldClient]:
    server = ToolsetServer(Toolset(RemoteToolset(upstream(), name="up")))
    app = server.http_app()
    with anyio.fail_after(40):
        async with server, app.router.lifespan_context(app):
            transport = httpx2.ASGITransport(app)
            async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000") as http:
                client = OldClient(http, revision)
                await client.begin()
                yield client


@pytest.mark.parametrize(
    ("revision", "kinds"),
    [
        ("2024-11-05", ["text", "text", "text"]),
        ("2025-03-26", ["text", "text", "audio"]),
        ("2025-06-18", ["text", "resource_link", "audio"]),
        ("2025-11-25", ["text", "resource_link", "audio"]),
    ],
)
async def test_n9_n10_content_that_a_revision_does_not_know_is_told_in_words(
    revision: str, kinds: list[str]
) -> None:
    async with old_client(revision) as client:
        content = (await client.ask("tools/call", name="all", arguments={}))["content"]
        messages = (await client.ask("prompts/get", name="all"))["messages"]
    assert [block["type"] for block in content] == kinds
    assert [message["content"] for message in messages] == content
    if kinds[1] == "text":
        assert content[1]["text"] == "The first: a://1"
    if kinds[2] == "text":
        assert "audio/wav" in content[2]["text"]


@pytest.mark.parametrize(
    "key",
    [
        "io.modelcontextprotocol/protocolVersion",
        "io.modelcontextprotocol/related-task",
        "org.modelcontextprotocol.api/x",
        "com.mcp.tools/y",
        "dev.mcp/z",
        "progressToken",
    ],
)
def test_n9_what_two_ends_of_a_connection_agreed_upon_goes_no_further(key: str) -> None:
    assert forwarded_meta({key: 1, "traceparent": "t"}) == {"traceparent": "t"}


@pytest.mark.parametrize(
    "key", ["traceparent", "mcp", "mcp/x", "example.com/mcp", "mcp.example/x", "a.b.mcp/x"]
)
def test_n9_trace_context_and_custom_keys_go_on(key: str) -> None:
    assert forwarded_meta({key: 1}) == {key: 1}
