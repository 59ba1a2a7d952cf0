"""Metrics and spans reach a collector by OTLP, with the names of the conventions; sampling, and logs."""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import Client, MCPError
from mcp.server.lowlevel import Server
from opentelemetry.trace import NoOpTracerProvider
from tests.extensions.telemetry.test_metrics import INNER, Waiting, audited, desk, pay, read, use
from tests.support.asking import ERAS
from tests.support.code_client import code_client
from tests.support.collector import attributes, collecting

from mcp_toolset import HookSet, RemoteToolset, RunNormally, Toolset, ToolsetServer, tool
from mcp_toolset.errors import DefinitionError
from mcp_toolset.extensions.telemetry.extension import Traces
from mcp_toolset.extensions.telemetry.sampling import Sampling
from mcp_toolset.serving.log_lines import json_line
from mcp_toolset.telemetry import Telemetry

pytestmark = pytest.mark.anyio

TRACE = "ab" * 16
PARENT: Any = {"traceparent": f"00-{TRACE}-{'cd' * 8}-01"}
UNSAMPLED: Any = {"traceparent": f"00-{TRACE}-{'cd' * 8}-00"}


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES", "OTEL_TRACES_SAMPLER", "OTEL_SDK_DISABLED"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("mode", ERAS)
async def test_e5_a_collector_gets_the_metrics_of_every_call(tmp_path: Path, mode: Any) -> None:
    path, waiting = tmp_path / "audit.jsonl", Waiting()
    with anyio.fail_after(120), collecting() as (url, received):
        async with desk(path, waiting, Telemetry(otlp=url, max_spans_per_second=0)) as server:
            await use(server, waiting, mode)
    found = audited(path)
    for labels, count in received.counts("gen_ai.execute_tool.duration").items():
        told = dict(labels)
        names = (told.get("gen_ai.tool.name", ""), told.get("mcp_toolset.server", ""))
        found[*names, told["mcp_toolset.outcome"]] -= count
    assert not any(found.values())
    assert received.services == {"mcp-toolset"} and not received.spans
    assert received.gauge("mcp_toolset.server.up")["erp"] == 1


def mounted(telemetry: Any, **options: Any) -> ToolsetServer:
    erp = RemoteToolset(ToolsetServer(Toolset(read)).lowlevel, name="erp").prefixed("erp")
    return ToolsetServer(Toolset(pay, erp), name="desk", telemetry=telemetry, **options)


@pytest.mark.parametrize("mode", ERAS)
async def test_e5_a_traced_call_has_the_spans_of_its_request_and_of_the_one_to_the_server(mode: Any) -> None:
    with anyio.fail_after(60), collecting() as (url, received):
        async with mounted(Telemetry(otlp=url)) as server:
            async with Client(server.lowlevel, mode=mode, cache=None) as client:
                await client.call_tool("erp_read", {"number": 1}, meta=PARENT)
                await client.call_tool("pay", {"amount": -1}, meta=PARENT)
                await client.call_tool("pay", {"amount": 1}, meta=UNSAMPLED)
    spans = {(span.kind, span.name): span for span in received.spans if span.trace_id.hex() == TRACE}
    served, sent = spans[2, "tools/call erp_read"], spans[3, "tools/call read"]
    assert served.parent_span_id.hex() == "cd" * 8 and sent.parent_span_id == served.span_id
    told = attributes(served)
    assert told["mcp.method.name"] == "tools/call" and told["gen_ai.operation.name"] == "execute_tool"
    assert told["gen_ai.tool.name"] == "erp_read" and told["mcp_toolset.server"] == "erp"
    assert told["mcp.protocol.version"] == ("2025-11-25" if mode == "legacy" else "2026-07-28")
    assert told["jsonrpc.request.id"] and told["network.transport"] == "pipe"
    assert attributes(sent)["gen_ai.tool.name"] == "read"
    failed = [span for span in received.spans if span.name == "tools/call pay"]
    assert [(attributes(span)["error.type"], span.status.code) for span in failed] == [("tool_error", 2)]
    assert received.services == {"desk"}


async def test_e5_inner_calls_of_code_have_spans_within_that_of_the_run() -> None:
    with anyio.fail_after(120), collecting() as (url, received):
        async with code_client(Toolset(pay), "pay", telemetry=Telemetry(otlp=url)) as (client, _):
            await client.run(INNER.replace(", erp_read(number=7)", ""))
    (run,) = [span for span in received.spans if span.name == "tools/call run_code"]
    inner = [span for span in received.spans if span.name == "execute_tool pay"]
    assert len(inner) == 2 and {span.parent_span_id for span in inner} == {run.span_id}
    assert attributes(run)["gen_ai.tool.name"] == "run_code"
    assert {attributes(span)["gen_ai.tool.name"] for span in inner} == {"pay"}


async def test_e5_no_argument_and_no_text_of_an_error_reaches_the_collector() -> None:
    secret = "a-very-secret-text"

    @tool
    async def fail(text: str) -> str:
        """Fail."""
        raise ValueError(text)

    hooks = HookSet()

    @hooks.execution("fail")
    async def passed(call: Any, input: dict[str, Any]) -> RunNormally:
        return RunNormally(input)

    async def listed(ctx: Any, params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[types.Tool(name="fail", input_schema={"type": "object"})])

    async def refuse(ctx: Any, params: Any) -> types.CallToolResult:
        raise MCPError(-31001, f"refused {secret}")

    other = Server("other", on_call_tool=refuse, on_list_tools=listed)
    tools = Toolset(fail, RemoteToolset(other, name="other").prefixed("other"))
    with anyio.fail_after(60), collecting() as (url, received):
        async with ToolsetServer(tools, hooks=hooks, telemetry=Telemetry(otlp=url)) as server:
            async with Client(server.lowlevel, cache=None) as client:
                await client.call_tool("fail", {"text": secret})
                with pytest.raises(MCPError, match=secret):
                    await client.call_tool("other_fail", {"text": secret})
    names = {span.name for span in received.spans}
    assert {"tools/call fail", "tools/call other_fail"} <= names
    assert any(event.name == "mcp_toolset.decision" for span in received.spans for event in span.events)
    assert secret.encode() not in received.bytes


async def test_e5_calls_of_the_program_begin_traces_and_the_audit_log_names_them(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    with anyio.fail_after(60), collecting() as (url, received):
        async with mounted(Telemetry(otlp=url), audit=path) as server:
            await server.call_tool("pay", {"amount": 1})
    (span,) = received.spans
    lines = [json.loads(line) for line in path.read_bytes().splitlines()]
    assert span.name == "execute_tool pay"
    assert [line["trace"] for line in lines if line["event"] == "call"] == [span.trace_id.hex()]


async def test_e5_calls_go_on_while_a_thread_imports_opentelemetry(monkeypatch: pytest.MonkeyPatch) -> None:
    # What other threads see of a module that is being imported.
    monkeypatch.setitem(sys.modules, "opentelemetry.trace", ModuleType("opentelemetry.trace"))
    for telemetry in (None, "prometheus"):
        async with mounted(telemetry) as server, Client(server.lowlevel, cache=None) as client:
            assert not (await client.call_tool("erp_read", {"number": 1})).is_error


async def test_e5_no_more_requests_than_allowed_are_traced_but_those_that_continue_a_trace() -> None:
    traces = Traces(3)
    assert not traces.sampled(None) and not traces.sampled(PARENT)
    traces.begin(NoOpTracerProvider())
    # The clock may move on between two of them, by which more become allowed.
    assert [traces.sampled(None) for _ in range(3)] == [True] * 3
    assert sum(traces.sampled(None) for _ in range(10_000)) < 10_000
    assert all(traces.sampled(PARENT) for _ in range(10)) and not traces.sampled(UNSAMPLED)
    for odd in ("", "00", "x" * 60, f"00-{TRACE}-{'cd' * 8}", 7):
        assert not traces.sampled({"traceparent": odd})


@pytest.mark.parametrize(
    ("name", "ratio", "root", "sampled", "unsampled"),
    [
        ("always_on", "", True, True, True),
        ("always_off", "", False, False, False),
        ("parentbased_always_off", "", False, True, False),
        ("parentbased_traceidratio", "1", True, True, False),
        ("traceidratio", "0", False, False, False),
    ],
)
def test_e5_the_sampler_of_the_environment_holds(
    monkeypatch: pytest.MonkeyPatch, name: str, ratio: str, root: bool, sampled: bool, unsampled: bool
) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", name)
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", ratio)
    traces = Traces(1)
    traces.begin(NoOpTracerProvider())
    assert [traces.sampled(meta) for meta in (None, PARENT, UNSAMPLED)] == [root, sampled, unsampled]


def test_e5_a_sampler_that_is_unknown_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "jaeger_remote")
    with pytest.raises(DefinitionError, match="OTEL_TRACES_SAMPLER=jaeger_remote"):
        Sampling.of_environment()


def test_e5_an_interval_that_is_no_number_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    for wrong in ("soon", "0", "nan"):
        monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", wrong)
        with pytest.raises(DefinitionError, match=f"OTEL_METRIC_EXPORT_INTERVAL={wrong}"):
            mounted("otlp")


async def test_e5_variables_of_opentelemetry_name_the_collector_and_the_service(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with anyio.fail_after(60), collecting() as (url, received):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
        monkeypatch.setenv("OTEL_SERVICE_NAME", "till")
        monkeypatch.setenv("OTEL_TRACES_EXPORTER", "none")
        async with mounted("otlp") as server:
            await server.call_tool("pay", {"amount": 1})
    assert received.services == {"till"} and not received.spans
    assert sum(received.counts("gen_ai.execute_tool.duration").values()) == 1


async def test_e5_a_collector_that_is_away_delays_no_call_and_the_close_by_seconds_at_most() -> None:
    with anyio.fail_after(60):
        async with mounted(Telemetry(otlp="http://127.0.0.1:9")) as server:
            assert (await server.call_tool("pay", {"amount": 1})).structured == {"paid": 1}


async def test_e5_a_line_of_the_log_names_the_trace_of_its_request() -> None:
    lines: list[str] = []

    @tool
    async def warn() -> str:
        """Log a warning."""
        record = logging.LogRecord("orders", logging.WARNING, "", 0, "late", (), None)
        lines.append(json_line(record, str))
        return ""

    with anyio.fail_after(60), collecting() as (url, received):
        async with ToolsetServer(Toolset(warn), telemetry=Telemetry(otlp=url)) as server:
            async with Client(server.lowlevel, cache=None) as client:
                await client.call_tool("warn", {}, meta=PARENT)
                await client.call_tool("warn", {}, meta=UNSAMPLED)
    (span,) = [span for span in received.spans if span.name == "tools/call warn"]
    traced, other = [json.loads(line) for line in lines]
    assert (traced["trace"], traced["span"]) == (TRACE, span.span_id.hex())
    assert "trace" not in other and "span" not in other
