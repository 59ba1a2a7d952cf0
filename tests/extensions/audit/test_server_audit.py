"""What a server records: calls, refusals, grants, changed definitions, logins; and what it never records."""

from __future__ import annotations

import hashlib
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import httpx2
import mcp
import mcp_types
import pytest
from mcp.shared.exceptions import MCPError
from tests.support.audit_logs import lines, unbroken
from tests.support.contexts import OnWire

from mcp_toolset import (
    CallReport,
    HookSet,
    Identity,
    Reject,
    Rules,
    RunNormally,
    ToolCall,
    ToolContext,
    Toolset,
    ToolsetServer,
    tool,
)
from mcp_toolset.audit import AuditLog
from mcp_toolset.auth import StaticToken, StaticTokens
from mcp_toolset.errors import AuditError, UnknownToolError

pytestmark = pytest.mark.anyio

SECRET = "tok-5f3b9a-very-secret-value"


@tool
def pay(amount: int) -> str:
    """Pay an amount."""
    if amount < 0:
        raise ValueError("negative")
    return f"paid {amount}"


@tool
def archive(number: int) -> str:
    """Find an invoice in the archive."""
    return f"invoice {number}"


ALICE = Identity.of(
    "desk", "alice", "https://idp.example", roles=["admin", "staff"], claims={"email": "a@b.c"}
)


def caller(session: str | None = None) -> OnWire:
    traced = {"traceparent": "00-" + "ab" * 16 + "-" + "cd" * 8 + "-01"}
    return OnWire(session, identity=ALICE, version=None, meta=traced)


async def test_i9_a_call_is_recorded_with_who_what_and_how_it_ended(tmp_path: Path):
    path = tmp_path / "audit.jsonl"
    log = AuditLog(path)
    async with ToolsetServer(Toolset(pay), audit=log, name="till") as server:
        await server.call(ToolCall("pay", {"amount": 5}), caller(SECRET))
        await server.call(ToolCall("pay", {"amount": -5}), caller())
        with pytest.raises(UnknownToolError):
            await server.call(ToolCall("nothing", {}), caller())
        digest = log.digest({"amount": 5})
    assert unbroken(path)
    assert [line["event"] for line in lines(path)] == ["started", *["call"] * 3, "stopped"]
    started = lines(path)[0]
    assert (started["server"], started["version"]) == ("till", "0.1.0")
    paid, failed, unknown = lines(path, "call")
    assert paid["who"] == "alice" and paid["roles"] == ["admin", "staff"] and paid["key"] == ALICE.key
    assert paid["tool"] == "pay" and paid["outcome"] == "result" and paid["ran"] is True
    assert paid["arguments"] == digest != "" and paid["trace"] == "ab" * 16
    assert 0 < paid["duration"] < 60 and len(paid["session"]) == 16
    assert failed["outcome"] == "error" and failed["arguments"] != digest
    assert (unknown["outcome"], unknown["reason"], unknown["called"]) == (
        "refused",
        "unknown tool",
        "nothing",
    )
    assert unknown["ran"] is False
    assert SECRET.encode() not in path.read_bytes() and b"a@b.c" not in path.read_bytes()
    assert b"amount" not in path.read_bytes() and b"paid 5" not in path.read_bytes()


async def test_i9_a_refusal_is_recorded_as_a_refusal_with_its_reason(tmp_path: Path):
    hooks = HookSet()

    @hooks.execution("pay")
    async def limit(call: ToolCall, input: dict[str, Any]) -> RunNormally | Reject:
        return Reject(f"too much, Bearer {SECRET}")

    path = tmp_path / "audit.jsonl"
    seen: list[str] = []
    rules = Rules(hooks=hooks, observers=[lambda report: seen.append(report.arguments)])
    async with ToolsetServer(Toolset(pay), audit=path, rules=rules) as server:
        await server.call_tool("pay", {"amount": 500})
    (call,) = lines(path, "call")
    assert call["outcome"] == "refused" and call["reason"] == "too much, Bearer ***" and call["ran"] is False
    assert call["decisions"] == ["Reject"]
    # The other observers of the server see the same report.
    assert seen == [call["arguments"]]


async def test_i9_grants_are_recorded_from_their_issue_to_their_end(tmp_path: Path):
    path = tmp_path / "audit.jsonl"
    async with ToolsetServer(Toolset(Toolset(archive).deferred()), audit=path) as server:
        alice = caller()
        resolved = await server.call(ToolCall("resolve_tools", {"ids": ["archive", "none"]}), alice)
        handle = resolved.structured["tools"][0]["grant"]
        called = ToolCall("call_tool", {"grant": handle, "arguments": {"number": 7}})
        await server.call(called, alice)
        server.grants.revoke(principal=ALICE.key)
        await server.call(called, alice)
        digest = server.extensions["audit"].log.digest({"number": 7})
    grants = lines(path, "grant")
    assert [one["outcome"] for one in grants] == ["issued", "refused", "used", "revoked"]
    key = hashlib.sha256(handle.encode()).hexdigest()[:16]
    assert grants[0]["grant"] == grants[2]["grant"] == key and grants[0]["key"] == ALICE.key
    assert grants[3]["count"] == 1
    calls = lines(path, "call")
    assert [one["outcome"] for one in calls] == ["result", "result", "refused"]
    assert (
        calls[1]["called"] == "call_tool"
        and calls[1]["tool"] == "archive"
        and calls[1]["arguments"] == digest
    )
    assert calls[2]["reason"] == "no valid grant"
    assert handle.encode() not in path.read_bytes()


async def test_i9_a_server_does_not_open_without_its_audit_log(tmp_path: Path):
    path = tmp_path / "notes.txt"
    path.write_text("my notes\n")
    with pytest.raises(AuditError, match="not an audit log"):
        async with ToolsetServer(Toolset(pay), audit=path):
            raise AssertionError("it opened")


async def test_u124_a_second_server_writes_a_log_beside_and_the_first_one_names_it(tmp_path: Path):
    path, beside = tmp_path / "audit.jsonl", tmp_path / "audit.2.jsonl"
    with anyio.fail_after(60):
        async with ToolsetServer(Toolset(pay), audit=path) as first:
            async with ToolsetServer(Toolset(pay), audit=path) as second:
                await first.call_tool("pay", {"amount": 1})
                await second.call_tool("pay", {"amount": 2})
    assert [line["event"] for line in lines(beside)] == ["started", "call", "stopped"]
    named = lines(path, "beside")
    assert [line["file"] for line in named] == [beside.name] and len(lines(path, "call")) == 1
    assert unbroken(path) and unbroken(beside)


def test_u124_a_hang_up_ends_a_server_in_order(tmp_path: Path):
    program, path = tmp_path / "server.py", tmp_path / "audit.jsonl"
    program.write_text(
        "from mcp_toolset import Toolset, ToolsetServer, serve\n"
        f"serve(ToolsetServer(Toolset(), audit={str(path)!r}))\n"
    )
    process = subprocess.Popen(
        [sys.executable, str(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    with process:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n')
        process.stdin.flush()
        assert b'"id":1' in process.stdout.readline()
        process.send_signal(signal.SIGHUP)
        _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, b"")
    assert [line["event"] for line in lines(path)] == ["started", "stopped"]


async def test_i9_servers_of_one_process_share_a_log(tmp_path: Path):
    path = tmp_path / "audit.jsonl"
    log = AuditLog(path)
    first = ToolsetServer(Toolset(pay), audit=log, name="first")
    async with first, first.derived(name="second", toolset=Toolset(pay)) as second:
        await first.call_tool("pay", {"amount": 1})
        await second.call_tool("pay", {"amount": 2})
        async with first.derived(audit=False, toolset=Toolset(pay)) as third:
            await third.call_tool("pay", {"amount": 3})
    assert [line["event"] for line in lines(path)] == ["started"] * 2 + ["call"] * 2 + ["stopped"] * 2
    assert unbroken(path)


async def test_i9_logins_and_refusals_over_http_are_recorded_without_the_tokens(tmp_path: Path):
    path = tmp_path / "audit.jsonl"
    tokens = StaticTokens({"ci": StaticToken(SECRET, roles=["robot"])})
    server = ToolsetServer(Toolset(pay), audit=path, auth=tokens)
    ping = {"jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": {}}
    app = server.http_app()
    transport = httpx2.ASGITransport(app)
    with anyio.fail_after(60):
        async with (
            server,
            app.router.lifespan_context(app),
            httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client,
        ):
            for token in (None, "wrong-token-9f8e7d", SECRET, SECRET):
                headers = {"Authorization": f"Bearer {token}"} if token else {}
                await client.post("/mcp", json=ping, headers=headers)
    refused = lines(path, "refused")
    assert [one["status"] for one in refused] == [401, 401]
    assert "wants a bearer token" in refused[0]["reason"] and refused[1]["error"] == "invalid_token"
    (login,) = lines(path, "login")
    assert login["who"] == "ci" and login["roles"] == ["robot"] and login["path"] == "/mcp"
    assert SECRET.encode() not in path.read_bytes() and b"9f8e7d" not in path.read_bytes()


async def test_i9_calls_of_clients_name_the_client_and_its_protocol(tmp_path: Path):
    path = tmp_path / "audit.jsonl"
    with anyio.fail_after(60):
        async with ToolsetServer(Toolset(pay), audit=path) as server, mcp.Client(server.lowlevel) as client:
            await client.call_tool("pay", {"amount": 5})
    (call,) = lines(path, "call")
    assert call["client"] and call["protocol"] and "who" not in call


@tool
async def ship(context: ToolContext, number: int) -> str:
    """Ship an order."""
    return (await context.ask("To which address?")).content["answer"]


STATE = "the state of another call"


async def unasked(context: Any, params: Any) -> mcp_types.ElicitResult:
    raise AssertionError(params)


@pytest.mark.parametrize(
    ("mode", "name", "sent", "reason"),
    [
        ("legacy", "pay", {"arguments": {"amount": {"$result": "r_00"}}}, "invalid arguments"),
        ("auto", "pay", {"arguments": {"amount": {"$result": "r_00", "path": "a"}}}, "invalid arguments"),
        ("auto", "ship", {"arguments": {"number": 2}, "requestState": STATE}, "invalid request state"),
    ],
)
async def test_u82_a_call_that_refers_to_nothing_is_recorded_and_counted(
    tmp_path: Path, mode: Any, name: str, sent: dict[str, Any], reason: str
):
    path, heard = tmp_path / "audit.jsonl", list[CallReport]()
    server = ToolsetServer(
        Toolset(pay, ship).granting("ask"),
        audit=path,
        large_results=True,
        rules=Rules(observers=[heard.append]),
    )
    async with server, mcp.Client(server.lowlevel, mode=mode, elicitation_callback=unasked) as client:
        if sent.get("requestState") == STATE:
            asked = await client.session.call_tool("ship", {"number": 1}, allow_input_required=True)
            assert isinstance(asked, mcp_types.InputRequiredResult)
            sent = {**sent, "requestState": asked.request_state}
            heard.clear()
        params = mcp_types.CallToolRequestParams.model_validate({"name": name, **sent})
        with suppress(MCPError):
            result = await client.session.send_request(
                mcp_types.CallToolRequest(params=params), mcp_types.CallToolResult
            )
            assert result.is_error
    call = lines(path, "call")[-1]
    assert (call["tool"], call["outcome"], call["reason"]) == (name, "refused", reason)
    assert call["arguments"] and not call.get("ran")
    (report,) = heard
    assert (report.tool, report.outcome, report.reason, report.ran) == (name, "refused", reason, False)
