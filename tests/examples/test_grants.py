"""The page of grants: its program knows its callers by real tokens, and a grant is nobody else's."""

from __future__ import annotations

import re
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from tests.examples.test_programs import ANN, BOB, EXAMPLES, PATH, text_of

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def client_of(url: str, token: str, mode: Any) -> AsyncGenerator[Client]:
    async with httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}) as http:
        async with Client(streamable_http_client(url, http_client=http), mode=mode) as client:
            yield client


async def resolved(client: Client) -> dict[str, Any]:
    found = await client.call_tool("search_tools", {"query": "delete an invoice", "resolve": 2})
    assert found.structured_content is not None
    return {one["id"]: one for one in found.structured_content["resolved"]}


async def deleted(client: Client, grant: str) -> Any:
    return await client.call_tool("call_tool", {"grant": grant, "arguments": {"number": 7}})


@pytest.mark.needs("inbound_auth")
@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_u58_i1_the_accountant_with_her_token_deletes_and_others_do_not(
    tmp_path: Path, mode: str
) -> None:
    program = [sys.executable, "-m", "mcp_toolset", "serve", str(EXAMPLES / "grants" / "app.py")]
    tokens = {"ANN_TOKEN": ANN, "BOB_TOKEN": BOB, "GRANTS": str(tmp_path / "grants.db")}
    environment = {"PATH": PATH, "MCP_TOOLSET_CACHE": "off", **tokens}
    options = ["--transport", "http", "--port", "0"]
    process = await anyio.open_process([*program, *options], env=environment, stdout=None)
    async with process:
        try:
            assert process.stderr is not None
            with anyio.fail_after(60):
                told = await process.stderr.receive()
            said = re.search(r"http://\S+", told.decode())
            assert said is not None
            with anyio.fail_after(60):
                async with client_of(said[0], ANN, mode) as ann, client_of(said[0], BOB, mode) as bob:
                    hers, his = await resolved(ann), await resolved(bob)
                    assert "ask the accountant to do it" in str(his["delete_invoice"])
                    assert "grant" not in his["delete_invoice"]
                    grant = hers["delete_invoice"]["grant"]
                    stolen = await deleted(bob, grant)
                    assert stolen.is_error and "gone" not in text_of(stolen)
                    assert text_of(await deleted(ann, grant)) == "invoice 7 is gone"
        finally:
            process.terminate()
