"""A call that waits for an answer goes on after all replicas were replaced, and repeats nothing."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from tests.support.asking import Person, text_of

from mcp_toolset import ToolContext, Toolset, ToolsetServer, load_toolset, tool
from mcp_toolset.calls.suspended import SuspendedStore
from mcp_toolset.code import CodeMode
from mcp_toolset.grants import GrantLedger
from mcp_toolset.shared import SharedState

pytestmark = [pytest.mark.anyio, pytest.mark.needs("code")]

PAY = """\
bill = await invoice(number=7)
paid = await pay(amount=bill['total'])
[bill['total'], paid['by']]
"""
ran: list[str] = []


@tool
async def invoice(number: int) -> dict[str, Any]:
    """Look up an invoice, and note that it was looked up."""
    ran.append("invoice")
    return {"total": number * 10}


@tool
async def pay(context: ToolContext, amount: int) -> dict[str, Any]:
    """Pay after a question."""
    answer = await context.ask(f"Pay {amount}?")
    ran.append("pay")
    return {"by": answer.content["answer"]}


@asynccontextmanager
async def replaced(url: str, *, ttl: float = 86_400) -> AsyncIterator[Client]:
    """A client of a replica that did not exist before."""
    server = ToolsetServer(
        Toolset(invoice, pay).deferred(),
        shared=SharedState(url, suspended_ttl=ttl),
        code=CodeMode(workers=1),
        capabilities=["ask"],
        keep=False,
    )
    async with server, Client(server.lowlevel, elicitation_callback=Person()) as client:
        yield client


async def asked(client: Client, name: str, arguments: dict[str, Any], **more: Any) -> Any:
    return await client.session.call_tool(name, arguments, allow_input_required=True, **more)


async def grants_of(client: Client) -> list[str]:
    told = await client.call_tool("resolve_tools", {"ids": ["invoice", "pay"]})
    assert told.structured_content is not None
    return [each["grant"] for each in told.structured_content["tools"]]


async def test_j6_a_run_of_code_goes_on_after_all_replicas_were_replaced(url: str) -> None:
    ran.clear()
    async with replaced(url) as client:
        call = {"code": PAY, "grants": await grants_of(client)}
        question = await asked(client, "run_code", call)
        ((key, request),) = question.input_requests.items()
        assert request.params.message == "Pay 70?" and ran == ["invoice"]
    answer = {
        "input_responses": {key: {"action": "accept", "content": {"answer": "ann"}}},
        "request_state": question.request_state,
    }
    async with replaced(url) as client:
        told = await asked(client, "run_code", call, **answer)
        assert json.loads(text_of(told))["value"] == [70, "ann"]
        assert ran == ["invoice", "pay"], "nothing is repeated"
        with pytest.raises(Exception, match="call the tool again"):
            await asked(client, "run_code", call, **answer)


async def test_j6_a_run_goes_on_with_valid_grants_alone(url: str) -> None:
    ran.clear()
    async with replaced(url) as client:
        call = {"code": PAY, "grants": await grants_of(client)}
        question = await asked(client, "run_code", call)
        (key,) = question.input_requests
    ledger = SharedState(url)
    async with ledger.running():
        assert await GrantLedger(ledger.grants()).revoke_async(name="pay") == 1
    async with replaced(url) as client:
        answer = {key: {"action": "accept", "content": {"answer": "ann"}}}
        told = await asked(
            client, "run_code", call, input_responses=answer, request_state=question.request_state
        )
        assert told.is_error and ran == ["invoice"]


async def test_j6_what_waits_is_not_readable_in_the_store(url: str) -> None:
    async with replaced(url) as client:
        await asked(client, "run_code", {"code": PAY, "grants": await grants_of(client)})
    shared = SharedState(url)
    async with shared.running():
        keys = await shared.connection.run("KEYS", shared.connection.key("kept code run", "*"), to="look")
        assert len(keys) == 1
        data = await shared.connection.run("HGET", keys[0], "value", to="look")
        assert b"invoice" not in data and len(data) < 100_000


async def test_j6_replicas_wait_as_long_as_the_configuration_says(url: str, tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    path.write_text(json.dumps({"toolset": {"suspended": {"ttl": 600_000}}, "mcpServers": {}}))
    shared = SharedState(url)
    server = ToolsetServer(
        Toolset(load_toolset(path), Toolset(invoice, pay).deferred()),
        shared=shared,
        code=CodeMode(workers=1),
        capabilities=["ask"],
        keep=False,
    )
    async with server, Client(server.lowlevel, elicitation_callback=Person()) as client:
        await asked(client, "run_code", {"code": PAY, "grants": await grants_of(client)})
        run = shared.connection.run
        (key,) = await run("KEYS", shared.connection.key("kept code run", "*"), to="look")
        assert 500_000 < await run("TTL", key, to="look") <= 600_000


def test_j6_replicas_keep_nothing_that_waits_where_the_program_says_so(url: str) -> None:
    shared = SharedState(url)
    assert ToolsetServer(Toolset(invoice), shared=shared).need(SuspendedStore) is shared
    assert ToolsetServer(Toolset(invoice), shared=shared, suspended=False).need(SuspendedStore) is None
