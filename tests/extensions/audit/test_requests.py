"""Requests that call no tool, and requests refused for where they come from, have lines of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import anyio
import mcp
import pytest
from examples.offers.server import complete, prompts, resources
from mcp.shared.exceptions import MCPError
from mcp_types import PromptReference
from tests.support.audit_logs import lines
from tests.transports.authenticated import (
    ANN,
    BOB,
    INITIALIZE,
    JSON,
    MODERN,
    bearer,
    modern,
    serving_with_auth,
)

from mcp_toolset import Toolset, ToolsetServer

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_u82_requests_for_resources_prompts_and_completions_have_lines(
    tmp_path: Path, mode: Literal["legacy", "auto"]
):
    path = tmp_path / "audit.jsonl"
    server = ToolsetServer(Toolset(), resources=resources, prompts=prompts, completions=complete, audit=path)
    with anyio.fail_after(60):
        async with server, mcp.Client(server.lowlevel, mode=mode) as client:
            await client.read_resource("shop://handbook")
            with pytest.raises(MCPError):
                await client.read_resource("shop://none")
            await client.get_prompt("translate", {"text": "a secret text", "language": "German"})
            reference = PromptReference(type="ref/prompt", name="translate")
            await client.complete(reference, {"name": "language", "value": "F"})
            await client.list_resources()
    read, none, prompt, completion = lines(path, "request")
    assert [one["method"] for one in (read, none, prompt, completion)] == [
        *["resources/read"] * 2,
        "prompts/get",
        "completion/complete",
    ]
    assert (read["uri"], read["outcome"]) == ("shop://handbook", "result")
    assert (none["uri"], none["outcome"]) == ("shop://none", "error") and none["code"] < 0
    assert (prompt["prompt"], completion["prompt"]) == ("translate", "translate")
    assert len(prompt["arguments"]) == 32 and b"a secret text" not in path.read_bytes()
    assert all(one["client"] and one["protocol"] and one["duration"] >= 0 for one in (read, prompt))


async def test_u82_a_subscription_has_a_line_when_it_begins(tmp_path: Path):
    path = tmp_path / "audit.jsonl"
    server = ToolsetServer(Toolset(), resources=resources, audit=path)
    with anyio.fail_after(60):
        async with server, mcp.Client(server.lowlevel) as client:
            async with client.listen(resources_list_changed=True, tools_list_changed=True):
                pass
    (listening,) = lines(path, "request")
    assert listening["method"] == "subscriptions/listen"
    assert listening["changes"] == ["resourcesListChanged", "toolsListChanged"]


def test_u82_a_malformed_request_has_no_line(tmp_path: Path):
    # What is not promised; docs/audit.md and SECURITY.md say so.
    path = tmp_path / "audit.jsonl"
    call = {"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": {"name": "whoami", "arguments": "x"}}
    other = {"mcp-method": "tools/list"}
    with serving_with_auth(audit=path) as served:
        session = [*served.session(ANN), bearer(ANN)]
        assert "-32602" in served.asked("POST", "/mcp", session, call).text
        headers = [*{**MODERN, **other}.items(), bearer(ANN)]
        assert "-32020" in served.asked("POST", "/mcp", headers, modern()).text
    assert lines(path, "call") == lines(path, "request") == lines(path, "refused") == []


def test_u82_a_token_in_anothers_session_and_a_foreign_name_have_lines(tmp_path: Path):
    path = tmp_path / "audit.jsonl"
    ping = {"jsonrpc": "2.0", "id": 5, "method": "ping"}
    with serving_with_auth(audit=path) as served:
        session = served.session(ANN)
        name = dict(session)["mcp-session-id"]
        for method in ("POST", "GET", "DELETE"):
            message = ping if method == "POST" else None
            assert served.asked(method, "/mcp", [*session, bearer(BOB)], message).status == 404
        assert served.asked("POST", "/mcp", [*session, bearer(ANN)], ping).status == 200
        _, posts = served.events(ANN)
        assert served.asked("POST", posts, [*JSON.items(), bearer(BOB)], ping).status == 404
        for header, value, status in (("host", "evil.example", 421), ("origin", "https://evil.example", 403)):
            headers = [*JSON.items(), bearer(ANN), (header, value)]
            assert served.asked("POST", "/mcp", headers, INITIALIZE).status == status
    *foreign, host, origin = lines(path, "refused")
    assert [(one["who"], one["status"], one["path"]) for one in foreign] == [
        *[("bob", 404, "/mcp")] * 3,
        ("bob", 404, "/messages/"),
    ]
    assert len({one["session"] for one in foreign[:3]}) == 1 and name.encode() not in path.read_bytes()
    assert (host["status"], origin["status"]) == (421, 403)
    assert "evil.example" in host["reason"] and "evil.example" in origin["reason"]
