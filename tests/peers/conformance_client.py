"""What the conformance suite drives as a client: the bridge, with the suite's own server mounted.

The suite appends the address of its server. Behind the bridge is a client in memory, of the era that the
suite asks for, so that everything the suite sees on the wire is the upstream connection's.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any
from urllib.parse import parse_qs, urlparse

import anyio
import httpx2
import mcp_types as types
from mcp import Client, MCPError
from mcp.client.auth import OAuthClientProvider, TokenStorage
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthToken,
)
from pydantic import AnyUrl

from mcp_toolset import RemoteToolset, ToolsetServer

SCENARIO = os.environ.get("MCP_CONFORMANCE_SCENARIO", "")
CONTEXT: dict[str, Any] = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
LEGACY = os.environ.get("MCP_CONFORMANCE_PROTOCOL_VERSION", "2025-11-25") < "2026"
CALLBACK = "http://localhost:3000/callback"
ARGUMENTS = {"add_numbers": {"a": 5, "b": 3}}
OF_TYPE: dict[str, Any] = {"integer": 0, "number": 0, "boolean": False, "object": {}, "array": []}


class Memory(TokenStorage):
    """Keeps credentials for the length of the run."""

    def __init__(self) -> None:
        self.tokens: OAuthToken | None = None
        self.client: OAuthClientInformationFull | None = None
        if CONTEXT.get("client_id"):
            secret = CONTEXT.get("client_secret")
            self.client = OAuthClientInformationFull(
                client_id=CONTEXT["client_id"],
                client_secret=secret,
                redirect_uris=[AnyUrl(CALLBACK)],
                token_endpoint_auth_method="client_secret_basic" if secret else "none",
            )

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info


class Browser:
    """A user who agrees to everything at once."""

    def __init__(self) -> None:
        self.landed: dict[str, list[str]] = {}

    async def open(self, address: str) -> None:
        async with httpx2.AsyncClient() as client:
            answer = await client.get(address, follow_redirects=False)
        self.landed = parse_qs(urlparse(answer.headers["location"]).query)

    async def back(self) -> AuthorizationCodeResult:
        def first(name: str) -> str | None:
            return self.landed.get(name, [None])[0]

        return AuthorizationCodeResult(code=self.landed["code"][0], state=first("state"), iss=first("iss"))


def credentials(url: str) -> OAuthClientProvider:
    browser = Browser()
    return OAuthClientProvider(
        server_url=url,
        client_metadata=OAuthClientMetadata(
            client_name="mcp-toolset",
            redirect_uris=[AnyUrl(CALLBACK)],
            grant_types=["authorization_code", "refresh_token"],
            response_types=["code"],
        ),
        storage=Memory(),
        redirect_handler=browser.open,
        callback_handler=browser.back,
        client_metadata_url="https://conformance-test.local/client-metadata.json",
    )


async def accept(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
    """Accept a form with its defaults, and a yes for each box."""
    form: dict[str, Any] = getattr(params, "requested_schema", {})
    fields: dict[str, Any] = form.get("properties", {})
    content = {name: shape["default"] for name, shape in fields.items() if "default" in shape}
    content |= {name: True for name, shape in fields.items() if shape.get("type") == "boolean"}
    return types.ElicitResult(action="accept", content=content)


async def sample(context: Any, params: types.CreateMessageRequestParams) -> types.CreateMessageResult:
    said = types.TextContent(type="text", text="said")
    return types.CreateMessageResult(role="assistant", content=said, model="none")


async def roots(context: Any) -> types.ListRootsResult:
    return types.ListRootsResult(roots=[])


def plan(listed: list[types.Tool]) -> list[tuple[str, dict[str, Any]]]:
    """The calls to make: those that the suite names, else each tool once with what it requires."""
    names = {tool.name for tool in listed}
    if "toolCalls" in CONTEXT:
        return [(call["name"], _given(call)) for call in CONTEXT["toolCalls"] if call["name"] in names]
    if SCENARIO == "json-schema-2020-12-preservation":
        focal = next(tool for tool in listed if tool.name == "json_schema_2020_12_tool")
        return [("json_schema_echo", {"schema": focal.input_schema})]
    return [(tool.name, ARGUMENTS.get(tool.name) or _required(tool.input_schema)) for tool in listed]


def _given(call: dict[str, Any]) -> dict[str, Any]:
    """The arguments without nulls: the bridge refuses one that a schema has no place for."""
    return {name: value for name, value in (call.get("arguments") or {}).items() if value is not None}


def _required(schema: dict[str, Any]) -> dict[str, Any]:
    shapes = schema.get("properties", {})
    return {name: OF_TYPE.get(shapes.get(name, {}).get("type"), "x") for name in schema.get("required", [])}


async def main(url: str) -> None:
    auth = credentials(url) if SCENARIO.startswith("auth/") else None
    upstream = RemoteToolset(url, name="suite", auth=auth, start_timeout=120)
    server = ToolsetServer(upstream, list_patience=60)
    async with server:
        await server.settled()
        print(server.statuses(), file=sys.stderr)  # noqa: T201
        mode = "legacy" if LEGACY else "2026-07-28"
        client = Client(
            server.lowlevel,
            mode=mode,
            elicitation_callback=accept,
            sampling_callback=sample,
            list_roots_callback=roots,
        )
        async with client:
            tools = (await client.list_tools()).tools
            for name, arguments in plan(tools) if SCENARIO != "initialize" else ():
                try:
                    await client.call_tool(name, arguments)
                except (MCPError, RuntimeError) as fault:
                    print(f"{name}: {fault}", file=sys.stderr)  # noqa: T201


if __name__ == "__main__":
    anyio.run(main, sys.argv[-1])
