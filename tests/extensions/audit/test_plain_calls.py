"""Calls like one that is in the log already take a shorter way into it; their lines say the same."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from tests.faults.harness import until
from tests.support.audit_logs import lines, unbroken
from tests.support.contexts import OnWire

from mcp_toolset import Identity, ToolCall, Toolset, ToolsetServer, tool
from mcp_toolset.audit import AuditLog

pytestmark = pytest.mark.anyio

ALICE = Identity.of("desk", "alice", "https://idp.example", roles=["staff"])
PROMOTED = Identity.of("desk", "alice", "https://idp.example", roles=["staff", "admin"])
BOB = Identity.of("desk", "bob", "https://idp.example", roles=["staff"])


def caller(who: Identity, session: str | None = None, **more: Any) -> OnWire:
    return OnWire(session, identity=who, **{"client": {"name": "desk", "version": "1"}, **more})


@tool
def pay(amount: int) -> str:
    """Pay an amount."""
    if amount < 0:
        raise ValueError("negative")
    return f"paid {amount}"


@tool
def look(text: str = "") -> str:
    """Look a text up."""
    return text


def calls(path: Path) -> list[dict[str, Any]]:
    return lines(path, "call")


def emptied(folder: Path) -> None:
    for file in folder.iterdir():
        file.unlink()


def said(line: dict[str, Any]) -> dict[str, Any]:
    return {name: line[name] for name in line if name not in ("seq", "prev", "time", "duration", "digest")}


async def test_i9_a_call_like_one_before_has_a_line_like_it(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    alice = caller(ALICE, "the-id-of-a-session")
    async with ToolsetServer(Toolset(pay), audit=path) as server:
        await server.call(ToolCall("pay", {"amount": 5}), alice)
        await until(lambda: calls(path))
        for amount in (5, 6, -1):
            await server.call(ToolCall("pay", {"amount": amount}), alice)
    first, same, other, failed = calls(path)
    assert said(same) == said(first)
    assert list(same) == list(first), "in the same order"
    assert said(other) == {**said(first), "arguments": other["arguments"]}
    assert other["arguments"] != first["arguments"]
    assert (failed["outcome"], failed["ran"]) == ("error", True)
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line["time"]) for line in calls(path))
    assert [line["time"] for line in calls(path)] == sorted(line["time"] for line in calls(path))
    assert all(0 < line["duration"] < 60 for line in calls(path))
    assert unbroken(path) and b"the-id-of" not in path.read_bytes()


async def test_i9_callers_that_differ_in_anything_have_lines_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    contexts = [
        caller(ALICE),
        caller(PROMOTED),
        caller(BOB),
        caller(ALICE, "one"),
        caller(ALICE, "two"),
        caller(ALICE, client={"name": "desk", "version": "2"}),
        caller(ALICE, client={"name": "desk None"}),
        caller(ALICE, client={"name": "desk"}),
        caller(ALICE, client={}),
        caller(ALICE, meta={"traceparent": "00-" + "ab" * 16 + "-" + "cd" * 8 + "-01"}),
    ]
    async with ToolsetServer(Toolset(pay, look), audit=path) as server:
        for count in (1, 2):
            for context in contexts:
                await server.call(ToolCall("pay", {"amount": 1}), context)
                await server.call(ToolCall("look", {}), context)
            wanted = count * 2 * len(contexts)
            await until(lambda wanted=wanted: len(calls(path)) == wanted)
    lines = [said(line) for line in calls(path)]
    half = len(lines) // 2
    assert lines[:half] == lines[half:]
    # An empty object of arguments has a digest, too.
    assert len({json.dumps(line) for line in lines}) == half
    assert [line["client"] for line in lines[10:16:2]] == ["desk 2", "desk None", "desk"]
    assert lines[2]["roles"] == ["admin", "staff"] and lines[0]["roles"] == ["staff"]
    assert lines[18]["trace"] == "ab" * 16


async def test_i9_a_secret_that_is_learned_later_is_blanked_in_later_lines(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    log = AuditLog(path)
    alice = caller(ALICE, client={"name": "desk-key", "version": "1"})
    async with ToolsetServer(Toolset(pay), audit=log) as server:
        await server.call(ToolCall("pay", {"amount": 5}), alice)
        await until(lambda: calls(path))
        log.texts.redact(server, lambda text: text.replace("desk-key", "***"))
        await server.call(ToolCall("pay", {"amount": 5}), alice)
        await until(lambda: len(calls(path)) == 2)
        await server.call(ToolCall("pay", {"amount": 5}), alice)
    assert [line["client"] for line in calls(path)] == ["desk-key 1", "*** 1", "*** 1"]


@pytest.mark.parametrize("times", [1, 2])
async def test_i9_a_log_that_is_opened_again_uses_its_new_secret(tmp_path: Path, times: int) -> None:
    path = tmp_path / "audit.jsonl"
    log = AuditLog(path)
    sessions: list[str] = []
    for _ in range(2):
        async with ToolsetServer(Toolset(pay), audit=log) as server:
            for _ in range(times):
                await server.call(ToolCall("pay", {"amount": 5}), caller(ALICE, "one"))
        sessions.append(calls(path)[-1]["session"])
        emptied(tmp_path)
    assert sessions[0] != sessions[1]
