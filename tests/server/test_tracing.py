"""Whoever collects traces gets the spans of the SDK, and calls come the same short way as without."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PROGRAM = """
import json
import anyio
from mcp import Client
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tests.support.asking import text_of
from tests.interaction import doors_server
from tests.support.served import listening

exporter = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
trace.set_tracer_provider(provider)

async def heard(*_):
    pass

async def deferred():
    from tests.server.test_observing import add, hub
    from mcp_toolset import Rules, ToolCall, Toolset; from mcp_toolset.rounds import ToolRound
    async with hub([], deferred=True) as server:
        for mode in ("legacy", "2026-07-28"):
            async with Client(server.lowlevel, mode=mode) as client:
                found = await client.call_tool("resolve_tools", {"ids": ["erp_read"]})
                grant = found.structured_content["tools"][0]["grant"]
                await client.call_tool("call_tool", {"grant": grant, "arguments": {"number": 1}})
    calls = [ToolCall("add", {"a": 1}, "c1")]
    plan = await ToolRound.from_calls(calls, Toolset(add).view()).apply(Rules())
    await plan.run_pending()

async def main():
    ways = {}
    await deferred()
    async with doors_server.make() as server:
        await server.settled()
        async with listening(server.http_app()) as url:
            for mode in ("legacy", "2026-07-28"):
                for name, target in (("http", f"{url}/mcp"), ("memory", server.lowlevel)):
                    async with Client(target, mode=mode, cache=None) as client:
                        ways[f"{name} {mode}"] = text_of(await client.call_tool("way", {}))
                        await client.call_tool("explode", {})
                        await client.call_tool("up_steps", {"tag": "t"}, progress_callback=heard)
    spans = [
        {
            "name": span.name,
            "kind": span.kind.name,
            "id": span.context.span_id,
            "parent": span.parent.span_id if span.parent else None,
            "error": (span.attributes or {}).get("error.type"),
            "facts": {
                key: fact
                for key, fact in (span.attributes or {}).items()
                if key.startswith(("gen_ai.", "mcp_toolset."))
            },
        }
        for span in exporter.get_finished_spans()
    ]
    print(json.dumps([ways, spans]))

anyio.run(main)
"""


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, str], list[dict[str, Any]]]:
    log = tmp_path_factory.mktemp("traced") / "log"
    # A tracer provider is set once for a whole process.
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "PYTHONPATH": str(ROOT), "DOORS_LOG": str(log)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    ways, spans = json.loads(done.stdout.splitlines()[-1])
    return ways, spans


@pytest.mark.needs("telemetry")
def test_u6_calls_come_the_same_short_way_while_traces_are_collected(
    traced: tuple[dict[str, str], list[dict[str, Any]]],
) -> None:
    ways, _ = traced
    assert (ways["http legacy"], ways["http 2026-07-28"]) == ("sessions", "endpoint")
    assert ways["memory legacy"] == "message_dispatcher"


@pytest.mark.needs("telemetry")
def test_u6_each_call_has_its_span_and_so_has_the_call_to_the_upstream_within_it(
    traced: tuple[dict[str, str], list[dict[str, Any]]],
) -> None:
    _, spans = traced
    served = [span for span in spans if span["kind"] == "SERVER"]
    assert [span["name"] for span in served].count("tools/call way") == 4
    failed = [span["error"] for span in served if span["name"] == "tools/call explode"]
    assert failed == ["tool_error"] * 4
    outer = {span["id"] for span in served if span["name"] == "tools/call up_steps"}
    sent = [
        span["parent"] for span in spans if span["name"] == "tools/call steps" and span["kind"] == "CLIENT"
    ]
    assert len(outer) == len(sent) == 4
    assert set(sent) == outer


@pytest.mark.needs("telemetry")
def test_u60_the_trace_of_a_deferred_call_names_the_tool_that_ran_and_its_server(
    traced: tuple[dict[str, str], list[dict[str, Any]]],
) -> None:
    _, spans = traced
    found = [span for span in spans if span["name"] == "tools/call call_tool"]
    assert [span["kind"] for span in found] == ["SERVER"] * 2
    for span in found:
        assert span["facts"] == {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": "erp_read",
            "mcp_toolset.called": "call_tool",
            "mcp_toolset.server": "erp",
            "mcp_toolset.outcome": "result",
        }


@pytest.mark.needs("model_loop", "telemetry")
def test_u60_a_call_of_a_loop_has_a_span_of_its_own(
    traced: tuple[dict[str, str], list[dict[str, Any]]],
) -> None:
    _, spans = traced
    (span,) = [span for span in spans if span["name"] == "execute_tool add"]
    assert span["facts"] == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "add",
        "gen_ai.tool.call.id": "c1",
        "mcp_toolset.outcome": "result",
    }
