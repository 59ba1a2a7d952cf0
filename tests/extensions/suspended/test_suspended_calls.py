"""A server that keeps what waits goes on after a restart; each state that cannot be used says why."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import anyio
import pytest
from mcp import Client
from tests.support.asking import Person, text_of

from mcp_toolset import ToolContext, Toolset, ToolsetServer, load_toolset, tool
from mcp_toolset.code import CodeMode
from mcp_toolset.grants import GrantLedger
from mcp_toolset.middleware import PermissionChecker
from mcp_toolset.shared import KeyRing, Suspension

pytestmark = pytest.mark.anyio

CODE = """\
bill = await invoice(number=7)
paid = await pay(amount=bill['total'])
[bill['total'], paid]
"""
YES: dict[str, Any] = {"action": "accept", "content": {}}


class Desk:
    """A server that is started again and again; calls of `pay` need an approval."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ran: list[str] = []

    def tools(self, words: str) -> Toolset:
        @tool
        async def invoice(number: int) -> dict[str, Any]:
            """Look up an invoice."""
            self.ran.append("invoice")
            return {"total": number * 10}

        @tool(description=words)
        async def pay(amount: int) -> str:
            self.ran.append("pay")
            return f"paid {amount}"

        return Toolset(invoice, pay)

    @asynccontextmanager
    async def started(
        self, *, words: str = "Pay an amount.", deferred: bool = False, suspended: Any = None, **more: Any
    ) -> AsyncIterator[Client]:
        tools = self.tools(words)
        store = self.folder / "suspended" if suspended is None else suspended
        options = {"middleware": [PermissionChecker(self.rule)], "suspended": store, "keep": False}
        if deferred:
            options["code"] = CodeMode(workers=1)
        options["grants"] = self.folder / "grants"
        with anyio.fail_after(40):
            server = ToolsetServer(tools.deferred() if deferred else tools, **options, **more)
            async with server, Client(server.lowlevel, cache=None, elicitation_callback=Person()) as client:
                yield client

    @staticmethod
    def rule(call: Any) -> Literal["ask", "allow"]:
        return "ask" if call.name == "pay" else "allow"


async def called(client: Client, name: str, arguments: dict[str, Any], answer: Any = None) -> Any:
    return await client.session.call_tool(
        name, arguments, allow_input_required=True, **({} if answer is None else answer)
    )


def answer_to(question: Any) -> dict[str, Any]:
    (key,) = question.input_requests
    return {"input_responses": {key: YES}, "request_state": question.request_state}


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


async def test_j6_an_approval_goes_on_after_the_server_was_started_again(desk: Desk) -> None:
    async with desk.started() as client:
        answer = answer_to(await called(client, "pay", {"amount": 5}))
    async with desk.started() as client:
        assert text_of(await called(client, "pay", {"amount": 5}, answer)) == "paid 5"
    async with desk.started() as client:
        with pytest.raises(Exception, match="it was used before; call the tool again"):
            await called(client, "pay", {"amount": 5}, answer)
    assert desk.ran == ["pay"]


async def test_j6_a_run_of_code_goes_on_after_the_server_was_started_again(desk: Desk) -> None:
    async with desk.started(deferred=True) as client:
        told = await client.call_tool("resolve_tools", {"ids": ["invoice", "pay"]})
        assert told.structured_content is not None
        call = {"code": CODE, "grants": [each["grant"] for each in told.structured_content["tools"]]}
        answer = answer_to(await called(client, "run_code", call))
    assert desk.ran == ["invoice"]
    async with desk.started(deferred=True) as client:
        told = await called(client, "run_code", call, answer)
    assert json.loads(text_of(told))["value"] == [70, "paid 70"]
    assert desk.ran == ["invoice", "pay"], "nothing is repeated"


async def test_j6_without_a_file_a_question_ends_with_its_server(desk: Desk) -> None:
    async with desk.started(suspended=False) as client:
        answer = answer_to(await called(client, "pay", {"amount": 5}))
    async with desk.started(suspended=False) as client:
        again = await called(client, "pay", {"amount": 5}, answer)
        assert again.input_requests, "it is asked anew"
        assert text_of(await called(client, "pay", {"amount": 5}, answer_to(again))) == "paid 5"
    assert desk.ran == ["pay"]


async def test_j6_a_call_whose_tool_has_changed_is_not_made(desk: Desk) -> None:
    async with desk.started() as client:
        answer = answer_to(await called(client, "pay", {"amount": 5}))
    async with desk.started(words="Pay an amount and a tip.") as client:
        with pytest.raises(Exception, match="the definition of pay has changed since; call the tool again"):
            await called(client, "pay", {"amount": 5}, answer)
    assert desk.ran == []


async def test_j6_a_state_opens_with_an_older_key_and_ends_with_its_time(desk: Desk) -> None:
    old, new = b"a" * 32, b"b" * 32

    def file(*keys: bytes, ttl: float = 60) -> Suspension:
        return Suspension(desk.folder / "s", keys=KeyRing(keys), ttl=ttl)

    async with desk.started(suspended=file(old)) as client:
        answer = answer_to(await called(client, "pay", {"amount": 5}))
    async with desk.started(suspended=file(new)) as client:
        assert (await called(client, "pay", {"amount": 5}, answer)).input_requests, "it is asked anew"
    async with desk.started(suspended=file(new, old, ttl=-5)) as client:
        assert text_of(await called(client, "pay", {"amount": 5}, answer)) == "paid 5"
        late = answer_to(await called(client, "pay", {"amount": 6}))
        with pytest.raises(Exception, match="it came too late, and was due within -5 s"):
            await called(client, "pay", {"amount": 6}, late)
    assert desk.ran == ["pay"]


async def test_j6_what_waits_is_said_to_be_too_large(desk: Desk) -> None:
    @tool
    async def gather(context: ToolContext) -> str:
        """Ask twice."""
        first = await context.ask("Much?")
        await context.ask("More?")
        return first.content["answer"]

    server = ToolsetServer(Toolset(gather), capabilities=["ask"], suspended=desk.folder / "s")
    with anyio.fail_after(40):
        async with server, Client(server.lowlevel, elicitation_callback=Person()) as client:
            answer = answer_to(await called(client, "gather", {}))
            (key,) = answer["input_responses"]
            answer["input_responses"] = {key: {"action": "accept", "content": {"answer": "x" * 300_000}}}
            told = await called(client, "gather", {}, answer)
    assert told.is_error and "and 262144 are allowed; ask for less" in text_of(told)


async def test_j6_grants_hold_as_long_as_the_configuration_says(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    path.write_text(
        json.dumps({"toolset": {"suspended": {"path": "s", "grant_ttl": 604_800}}, "mcpServers": {}})
    )
    now = [0.0]
    ledger = GrantLedger(clock=lambda: now[0])
    ToolsetServer(load_toolset(path), grants=ledger)
    pay = Desk(tmp_path).tools("Pay.").bindings()[1]
    grant = ledger.issue(pay, ToolContext())
    assert grant.expires == 604_800


async def test_j6_grants_that_end_with_the_process_are_told_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tools = Desk(tmp_path).tools("Pay.").deferred(code=True)
    async with ToolsetServer(tools, suspended=tmp_path / "s"):
        assert "keep them in a file, as by `--grants FILE`" in caplog.text
