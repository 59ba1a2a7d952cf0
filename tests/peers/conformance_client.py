"""What the conformance suite drives as a client: the bridge, with the suite's own server mounted.

The suite appends the address of its server. Behind the bridge is a client in memory, of the era that the
suite asks for, so that everything the suite sees on the wire is the upstream connection's.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from typing import Any

import anyio
import httpx2
import mcp_types as types
from mcp import Client, MCPError

from mcp_toolset import RemoteToolset, ToolsetServer
from mcp_toolset.auth import OAuth
from mcp_toolset.config.hub import parse_config
from mcp_toolset.security.credential_store import MemoryCredentialStore

SCENARIO = os.environ.get("MCP_CONFORMANCE_SCENARIO", "")
CONTEXT: dict[str, Any] = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
LEGACY = os.environ.get("MCP_CONFORMANCE_PROTOCOL_VERSION", "2025-11-25") < "2026"
CALLBACK = "http://localhost:3000/callback"
ARGUMENTS = {"add_numbers": {"a": 5, "b": 3}}
OF_TYPE: dict[str, Any] = {"integer": 0, "number": 0, "boolean": False, "object": {}, "array": []}


DOCUMENT = "https://conformance-test.local/client-metadata.json"
PATIENCE = 60
"""Seconds for one answer of the suite, which runs all scenarios at once."""

UNATTENDED = ("client-credentials", "enterprise-managed-authorization")


class Browser:
    """A user who agrees to everything at once."""

    redirect_uri = CALLBACK

    async def visit(self, url: str) -> str:
        async with httpx2.AsyncClient(timeout=PATIENCE) as client:
            answer = await client.get(url, follow_redirects=False)
        return answer.headers["location"]


def entry(url: str) -> dict[str, Any]:
    """What the configuration of the bridge says about the login to the suite's server."""
    given = {name: CONTEXT[name] for name in ("client_id", "client_secret", "issuer") if name in CONTEXT}
    if not SCENARIO.startswith(tuple(f"auth/{name}" for name in UNATTENDED)):
        return {"type": "oauth", **given, **({} if given else {"client_metadata_url": DOCUMENT})}
    # Who gives a program a secret knows whose it is; the suite does not say, but for its metadata.
    address = url.replace("/mcp", "/.well-known/oauth-protected-resource/mcp")
    there = httpx2.get(address, timeout=PATIENCE).json()
    given["issuer"] = there["authorization_servers"][0]
    if "idp_id_token" in CONTEXT:
        idp = {name: CONTEXT[name] for name in ("idp_token_endpoint", "idp_client_id")}
        return {"type": "enterprise", **given, **idp, "id_token": CONTEXT["idp_id_token"]}
    if "private_key_pem" in CONTEXT:
        given |= {"private_key": CONTEXT["private_key_pem"], "algorithm": CONTEXT["signing_algorithm"]}
    return {"type": "client_credentials", **given}


def credentials(url: str) -> Any:
    servers = {"suite": {"url": url, "auth": entry(url)}}
    read = parse_config({"mcpServers": servers}, source="conformance.json").servers[0]
    assert not read.fault, read.fault
    auth = read.extensions["access"].auth
    if not isinstance(auth, OAuth):
        return auth
    return replace(auth, page=Browser(), store=MemoryCredentialStore())


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
    server = ToolsetServer(upstream, list_timeout=60)
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
