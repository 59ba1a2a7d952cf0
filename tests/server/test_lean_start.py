"""A server on standard input answers without the SDK: neither its code nor its models are loaded."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

PROGRAM = """
import sys
from mcp_toolset import Toolset, ToolsetServer, serve, tool

@tool
def loaded() -> list[str]:
    "What of the SDK and of web servers is loaded."
    found = {name.partition(".")[0] for name in sys.modules}
    return sorted(found & {"mcp", "mcp_types", "starlette", "uvicorn"})

serve(ToolsetServer(Toolset(loaded)))
"""
ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "c", "version": "1"},
}
INITIALIZE = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "c", "version": "1"},
}
CALL = {"name": "loaded", "arguments": {}}
SENT: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "legacy": [("initialize", INITIALIZE), ("tools/list", {}), ("prompts/list", {}), ("tools/call", CALL)],
    "modern": [
        (method, {**params, "_meta": ENVELOPE})
        for method, params in [("server/discover", {}), ("tools/list", {}), ("tools/call", CALL)]
    ],
}


@pytest.mark.parametrize("era", SENT)
def test_serving_on_standard_input_loads_nothing_of_the_sdk(era: str) -> None:
    lines = [
        {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        for number, (method, params) in enumerate(SENT[era])
    ]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        input="".join(f"{json.dumps(line)}\n" for line in lines),
        capture_output=True,
        text=True,
        timeout=120,
    )
    answers = {answer["id"]: answer for answer in map(json.loads, done.stdout.splitlines())}
    assert answers.keys() == set(range(len(lines))), done.stderr
    assert answers[len(lines) - 1]["result"]["structuredContent"] == {"result": []}
