"""FastMCP's three ways to put one server before another; import this only where fastmcp is installed.

`create_proxy(transport)` is the documented default and opens an upstream session per request;
`create_proxy(connected client)` is its fastest form, with one shared session; `mount` puts a proxy
under a namespace.
"""

# The checks run in .venv, which is without fastmcp.
# pyright: reportMissingImports=false

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import echo_server
from bridges import Bridge, Mode, Scenario, upstream
from fastmcp import Client as FastMCPClient
from fastmcp import FastMCP
from fastmcp.client.transports import FastMCPTransport, StdioTransport
from fastmcp.server import create_proxy

logging.getLogger("fastmcp").setLevel(logging.ERROR)


@asynccontextmanager
async def fastmcp_proxy(scenario: Scenario, mode: Mode) -> AsyncGenerator[FastMCP[Any]]:
    async with _transport(scenario) as transport:
        yield create_proxy(transport)


@asynccontextmanager
async def fastmcp_connected(scenario: Scenario, mode: Mode) -> AsyncGenerator[FastMCP[Any]]:
    async with _transport(scenario) as transport, FastMCPClient(transport, mode=mode) as connected:
        yield create_proxy(connected)


@asynccontextmanager
async def fastmcp_mount(scenario: Scenario, mode: Mode) -> AsyncGenerator[FastMCP[Any]]:
    async with _transport(scenario) as transport:
        main: FastMCP[Any] = FastMCP("main")
        main.mount(create_proxy(transport), namespace="up")
        yield main


@asynccontextmanager
async def _transport(scenario: Scenario) -> AsyncGenerator[Any]:
    if scenario == "memory":
        # FastMCP's in-memory transport reads the SDK server behind it off this one attribute.
        holder: Any = SimpleNamespace(_mcp_server=echo_server.make(), name="echo")
        yield FastMCPTransport(holder)
        return
    process = upstream(scenario)
    transport = StdioTransport(command=process.command, args=process.args)
    try:
        yield transport
    finally:
        await transport.disconnect()


BRIDGES: dict[str, Bridge] = {
    "fastmcp_proxy": fastmcp_proxy,
    "fastmcp_connected": fastmcp_connected,
    "fastmcp_mount": fastmcp_mount,
}
