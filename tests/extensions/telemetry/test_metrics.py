"""Metrics agree with the audit log to the call, and a reader of Prometheus gets what it may know."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from click import UsageError
from mcp import Client, MCPError
from prometheus_client.parser import text_string_to_metric_families
from tests.support.asking import ERAS
from tests.support.callers import Callers
from tests.support.code_client import CodeClient
from tests.support.served import served

from mcp_toolset import (
    CallReport,
    HookSet,
    Reject,
    RemoteToolset,
    Rules,
    RunNormally,
    Toolset,
    ToolsetServer,
    tool,
)
from mcp_toolset.cli.commands.serve import serve_command
from mcp_toolset.cli.mount import MountOptions, mount
from mcp_toolset.cli.target import parse_target
from mcp_toolset.errors import ConfigError, DefinitionError, UnknownToolError
from mcp_toolset.policy import Policy
from mcp_toolset.serving.serve import server_of
from mcp_toolset.telemetry import Telemetry

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[3]
CALLS = "gen_ai_execute_tool_duration_seconds"
SERVED = "mcp_server_operation_duration_seconds"
SENT = "mcp_client_operation_duration_seconds"

INNER = """
import asyncio
await asyncio.gather(pay(amount=1), pay(amount=500), erp_read(number=7))
"""


@tool
async def pay(amount: int) -> dict[str, int]:
    """Pay an amount."""
    if amount < 0:
        raise ValueError("negative")
    return {"paid": amount}


@tool(read_only=True)
async def read(number: int) -> dict[str, int]:
    """Read an invoice."""
    return {"number": number}


class Waiting:
    """Tools that do not answer, and the news that one was called, and cancelled."""

    def __init__(self) -> None:
        self.called, self.cancelled = anyio.Event(), anyio.Event()

    def told(self, report: CallReport) -> None:
        if report.outcome == "cancelled":
            self.cancelled.set()

    def tool(self, name: str) -> Any:
        @tool(name=name)
        async def wait() -> str:
            """Wait for ever."""
            self.called.set()
            await anyio.sleep_forever()
            return ""

        return wait


hooks = HookSet()


@hooks.execution("pay")
async def limit(call: Any, input: dict[str, Any]) -> RunNormally | Reject:
    return RunNormally(input) if input["amount"] <= 100 else Reject(f"more than 100: {input['amount']}")


def audited(path: Path) -> Counter[tuple[str, str, str]]:
    """The calls of an audit log, by tool, server and outcome."""
    lines = [json.loads(line) for line in path.read_bytes().splitlines()]
    calls = [line for line in lines if line["event"] == "call"]
    return Counter((one.get("tool", ""), one.get("server", ""), one["outcome"]) for one in calls)


def counted(text: str, metric: str, *labels: str) -> Counter[tuple[str, ...]]:
    """The counts of a page of Prometheus by some labels, as its own parser reads them."""
    found: Counter[tuple[str, ...]] = Counter()
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name == f"{metric}_count":
                found[tuple(sample.labels.get(label, "") for label in labels)] += int(sample.value)
    return found


@asynccontextmanager
async def desk(path: Path, waiting: Waiting, telemetry: Any) -> AsyncGenerator[ToolsetServer]:
    erp = RemoteToolset(ToolsetServer(Toolset(read)).lowlevel, name="erp").prefixed("erp")
    silent = ToolsetServer(Toolset(Waiting().tool("hang")))
    slow = RemoteToolset(silent.lowlevel, name="slow", timeout=0.05).prefixed("slow")
    tools = Toolset(Toolset(pay, waiting.tool("wait"), erp, slow).deferred(code=True))
    rules = Rules(hooks=hooks, observers=[waiting.told])
    async with ToolsetServer(tools, rules=rules, audit=path, telemetry=telemetry) as server:
        await server.settled()
        yield server


async def use(server: ToolsetServer, waiting: Waiting, mode: Any) -> None:
    """Calls of every outcome: by a client, by its code, and by the program."""
    async with Client(server.lowlevel, mode=mode, cache=None) as client:
        desk = CodeClient(client)
        ids = ("pay", "wait", "erp_read", "slow_hang")
        by_name: dict[str, str] = dict(zip(ids, await desk.grant(*ids), strict=True))

        async def call(name: str, **arguments: Any) -> Any:
            sent = {"grant": by_name[name], "arguments": arguments}
            return await client.call_tool("call_tool", sent)

        for amount in (5, -5, 500):
            await call("pay", amount=amount)
        await call("pay", amount="much")
        await call("erp_read", number=1)
        await call("slow_hang")
        with pytest.raises(MCPError):
            await client.call_tool("nothing", {})
        await client.call_tool("call_tool", {"grant": "pay.no-grant", "arguments": {}})
        await desk.run(INNER)
        async with anyio.create_task_group() as group:
            group.start_soon(call, "wait")
            await waiting.called.wait()
            group.cancel_scope.cancel()
        await waiting.cancelled.wait()
        await client.list_tools()
    await server.call_as_host("pay", {"amount": 7})


@pytest.mark.parametrize("mode", ERAS)
async def test_e5_metrics_agree_with_the_audit_log_to_the_call(tmp_path: Path, mode: Any) -> None:
    path, waiting = tmp_path / "audit.jsonl", Waiting()
    with anyio.fail_after(120):
        async with desk(path, waiting, "prometheus") as server:
            await use(server, waiting, mode)
            text = page(server)
    labels = ("gen_ai_tool_name", "mcp_toolset_server", "mcp_toolset_outcome")
    found = counted(text, CALLS, *labels)
    assert found == audited(path)
    # 5, an inner 1 and 7 of the program; 500 twice and a text; -5.
    assert (found["pay", "", "result"], found["pay", "", "refused"], found["pay", "", "error"]) == (3, 3, 1)
    assert found["erp_read", "erp", "result"] == 2 and found["wait", "", "cancelled"] == 1
    assert found["slow_hang", "slow", "error"] == 1 and found["run_code", "", "error"] == 1
    errors = counted(text, CALLS, "gen_ai_tool_name", "error_type")
    assert errors["pay", "refused by a rule"] == 2 and errors["pay", "invalid arguments"] == 1
    assert errors["slow_hang", "UpstreamTimeoutError"] == 1 and errors["", "unknown tool"] == 1
    assert "more than 100" not in text


def page(server: ToolsetServer) -> str:
    return server.extensions.http_pages()["/metrics"].answer(None, "")[0].decode()


@pytest.mark.parametrize("mode", ERAS)
async def test_e5_requests_are_counted_by_the_conventions_for_mcp(tmp_path: Path, mode: Any) -> None:
    waiting, version = Waiting(), "2025-11-25" if mode == "legacy" else "2026-07-28"
    with anyio.fail_after(120):
        async with desk(tmp_path / "audit.jsonl", waiting, "prometheus") as server:
            await use(server, waiting, mode)
            text = page(server)
    served = counted(text, SERVED, "mcp_method_name", "mcp_protocol_version", "error_type")
    handshake = "initialize" if mode == "legacy" else "server/discover"
    assert served["tools/list", version, ""] >= 1 and served[handshake, version, ""] >= 1
    by_tool = counted(text, SERVED, "mcp_method_name", "gen_ai_tool_name", "error_type")
    # Inner calls, and that of the program, are no requests of a client.
    assert by_tool["tools/call", "pay", ""] == 1 and by_tool["tools/call", "pay", "tool_error"] == 3
    assert by_tool["tools/call", "", "-32602"] == 1
    sent = counted(text, SENT, "mcp_method_name", "gen_ai_tool_name", "mcp_toolset_server", "error_type")
    assert sent == {("tools/call", "read", "erp", ""): 2, ("tools/call", "hang", "slow", "timeout"): 1}


async def test_e5_the_page_of_metrics_needs_a_token_and_shows_what_exists_for_the_caller() -> None:
    tools = Toolset(pay, RemoteToolset(ToolsetServer(Toolset(read)).lowlevel, name="erp").prefixed("erp"))
    policy = Policy(deny=["erp/*"])
    server = ToolsetServer(tools, auth=Callers(), policy=policy, telemetry="prometheus")
    token, elsewhere = {"Authorization": "Bearer token-of-alice"}, {"Host": "10.1.2.3:8000"}
    async with served(server) as url, httpx2.AsyncClient(timeout=30) as http:
        await server.call_as_host("pay", {"amount": 1})
        with pytest.raises(UnknownToolError):
            await server.call_as_host("erp_read", {"number": 1})
        refused = await http.get(f"{url}/metrics")
        scraped = await http.get(f"{url}/metrics", headers={**token, **elsewhere})
        browsed = await http.get(
            f"{url}/metrics", headers={**token, **elsewhere, "Origin": "https://a.example"}
        )
    assert (refused.status_code, browsed.status_code) == (401, 421)
    assert scraped.status_code == 200 and "pay" in scraped.text and "erp" not in scraped.text


async def test_u83_the_page_of_metrics_has_no_denied_tool_by_the_servers_own_name() -> None:
    @tool
    async def wipe_ledger() -> str:
        """Wipe the ledger."""
        return "wiped"

    upstream = ToolsetServer(Toolset(read, wipe_ledger)).lowlevel
    policy = Policy(principals={"alice": Policy(deny=["destroy"])})
    tools = RemoteToolset(upstream, name="erp").renamed({"wipe_ledger": "destroy"})
    server = ToolsetServer(tools, auth=Callers(), policy=policy, telemetry="prometheus")
    async with served(server) as url, httpx2.AsyncClient(timeout=30) as http:
        await server.call_as_host("destroy", {})
        await server.call_as_host("read", {"number": 1})
        pages = {
            name: (
                await http.get(f"{url}/metrics", headers={"Authorization": f"Bearer token-of-{name}"})
            ).text
            for name in ("alice", "bob")
        }
    assert "wipe_ledger" in pages["bob"] and "destroy" in pages["bob"]
    assert "wipe_ledger" not in pages["alice"] and "destroy" not in pages["alice"]
    sent = counted(pages["alice"], SENT, "gen_ai_tool_name", "mcp_toolset_server")
    assert sent == {("read", "erp"): 1}


@pytest.mark.parametrize("public", [False, True])
async def test_e5_metrics_are_for_everyone_only_where_that_was_chosen(public: bool) -> None:
    chosen = Telemetry(prometheus=True, public=public)
    server = ToolsetServer(Toolset(pay), auth=Callers(), telemetry=chosen)
    async with served(server) as url, httpx2.AsyncClient(timeout=30) as http:
        probed = await http.get(f"{url}/metrics", headers={"Host": "10.1.2.3:8000"})
        posted = await http.post(f"{url}/metrics")
    assert (probed.status_code, posted.status_code) == ((200, 405) if public else (401, 401))
    async with served(ToolsetServer(Toolset(pay))) as url, httpx2.AsyncClient(timeout=30) as http:
        assert (await http.get(f"{url}/metrics")).status_code == 404


async def test_e5_a_choice_that_cannot_be_used_is_an_error_that_says_why() -> None:
    wrongs: list[tuple[Any, str]] = [
        ("promethius", "write one or more of prometheus, otlp, public"),
        ("public", "prometheus=True or otlp=True"),
        (True, "does not say where to"),
        (5, "takes a Telemetry or a text such as 'otlp', not 5"),
    ]
    for wrong, told in wrongs:
        with pytest.raises(DefinitionError, match=told):
            ToolsetServer(Toolset(pay), telemetry=wrong)
    with pytest.raises(DefinitionError, match="max_spans_per_second"):
        Telemetry(prometheus=True, max_spans_per_second=-1)
    with pytest.raises(DefinitionError, match="export_interval"):
        Telemetry(prometheus=True, export_interval=0)


async def test_e5_the_program_of_the_page_has_metrics() -> None:
    server: ToolsetServer = runpy.run_path(str(ROOT / "examples/observing/telemetry.py"))["server"]
    async with server:
        await server.call_tool("pay", {"amount": 1})
        assert counted(page(server), CALLS, "gen_ai_tool_name") == {("pay",): 1}


async def test_e5_a_configuration_or_the_option_says_where_metrics_go(tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    for said in ("prometheus", {"prometheus": True, "public": True}):
        file.write_text(json.dumps({"mcpServers": {}, "toolset": {"telemetry": said}}))
        pages = server_of(file).extensions.http_pages()
        assert pages["/metrics"].public is isinstance(said, dict)
    looked = mount(parse_target(str(file)), MountOptions().looking)
    assert not looked.extensions.http_pages() and looked.answers.traces is None
    for wrong, told in (("promethius", "promethius"), ({"public": True}, "says nothing to send to")):
        file.write_text(json.dumps({"mcpServers": {}, "toolset": {"telemetry": wrong}}))
        with pytest.raises(ConfigError, match=told):
            server_of(file)
    option = {one.name: one for one in serve_command.params}["telemetry"]
    assert option.envvar == "MCP_TOOLSET_TELEMETRY"


@pytest.mark.parametrize("over", [[], ["--transport", "stdio"]])
def test_e5_a_page_without_http_is_refused_but_not_for_a_child_that_is_loaded_again(
    over: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MCP_TOOLSET_TELEMETRY", "prometheus")
    with pytest.raises(UsageError, match="is a page over HTTP: add --transport http"):
        serve_command.make_context("serve", ["app.py", *over])
    for given in (["--reported-to", "x"], ["--telemetry", "prometheus,otlp"]):
        serve_command.make_context("serve", ["app.py", *over, *given])
    serve_command.make_context("serve", ["--telemetry", "prometheus", "app.py", "--transport", "http"])


def test_e5_a_server_without_telemetry_loads_nothing_for_it() -> None:
    program = (
        "import sys; from mcp_toolset import Toolset, ToolsetServer; ToolsetServer(Toolset()).answers;"
        "print([name for name in sys.modules if 'telemetry' in name or 'prometheus' in name])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "[]"
