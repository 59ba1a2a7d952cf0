"""Hostile snippets: none escapes, none is left running, and each answer names what has stopped it."""

from __future__ import annotations

import json
import os
import re
import signal
import tomllib
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.code_client import CodeClient, code_client, workers

from mcp_toolset import Toolset, tool
from mcp_toolset.code import CodeMode

pytestmark = pytest.mark.anyio

FILE = Path(__file__).with_name("hostile_snippets.toml")
SNIPPETS: list[dict[str, Any]] = tomllib.loads(FILE.read_text())["snippet"]
LIMITS = CodeMode(
    max_compute_seconds=30,
    max_memory_mb=32,
    max_calls=20,
    max_stops=60,
    max_printed=2000,
    max_value_bytes=2000,
    workers=2,
)
SHORT = replace(LIMITS, max_compute_seconds=0.1)
"""For what never ends; the time of all else is no matter of how busy this machine is."""
BRIEF = replace(LIMITS, max_compute_seconds=4)
"""For what never ends either, but reaches another limit first."""

SECRET = "swordfish-7431"
deleted: list[str] = []


@tool
async def echo(value: Any) -> Any:
    """Say it again."""
    return value


@tool
async def refuse() -> str:
    """Fail."""
    raise ValueError("no")


@tool
async def secret_delete() -> str:
    """Delete everything."""
    deleted.append("everything")
    return "deleted"


@tool
async def kill_workers() -> str:
    """Kill the sandbox, as a person at the machine would."""
    for pid in workers():
        os.kill(pid, signal.SIGKILL)
    return "killed"


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def attackers(anyio_backend: str) -> AsyncGenerator[dict[str, CodeClient]]:
    os.environ["SECRET_OF_THE_SERVER"] = SECRET
    toolset = Toolset(echo, refuse, secret_delete, kill_workers)
    granted = ("echo", "refuse", "kill_workers")
    async with AsyncExitStack() as stack:
        clients: dict[str, CodeClient] = {}
        for name, limits in (("long", LIMITS), ("short", SHORT), ("brief", BRIEF)):
            clients[name], _ = await stack.enter_async_context(
                code_client(toolset, *granted, code=limits, alone=False)
            )
        yield clients
    assert workers() == []
    del os.environ["SECRET_OF_THE_SERVER"]


def test_m6_there_are_enough_of_them() -> None:
    assert len(SNIPPETS) >= 60 and len({each["about"] for each in SNIPPETS}) == len(SNIPPETS)


@pytest.mark.parametrize("snippet", SNIPPETS, ids=[each["about"].replace(" ", "_") for each in SNIPPETS])
async def test_m6_a_hostile_snippet_escapes_nothing_and_leaves_nothing(
    snippet: dict[str, Any], attackers: dict[str, CodeClient]
) -> None:
    short = "`max_compute_seconds`" in snippet.get("error", "")
    attacker = attackers[snippet.get("limits", "short" if short else "long")]
    code = "(" * 20000 if snippet["code"] == "BRACKETS" else snippet["code"]
    told = await attacker.run(f"left_behind = 1\n{code}" if not snippet.get("error") else code)
    said = json.dumps(told, ensure_ascii=False)
    assert SECRET not in said and "root:" not in said and __file__ not in said and "site-packages" not in said
    assert len(said) < 30_000 and deleted == [] and len(workers()) <= 6
    if "error" in snippet:
        assert re.search(snippet["error"], told.get("error", "")), told
    if "value" in snippet:
        assert told["value"] == snippet["value"]
    if "preview" in snippet:
        assert told["preview"] and "`max_value_bytes`" in told["note"]
    for character in snippet.get("printed_without", ""):
        assert character not in told["printed"]
    assert await attacker.value("1 + 1") == 2


async def test_m6_a_killed_sandbox_ends_its_run_and_is_replaced(attackers: dict[str, CodeClient]) -> None:
    attacker = attackers["long"]
    told = await attacker.run("await echo(value=1)\nawait kill_workers()\nawait echo(value=2)")
    assert "died" in told["error"]
    assert [(each["name"], each["ok"]) for each in told["calls"]] == [("echo", True), ("kill_workers", True)]
    assert await attacker.value("await echo(value='x')") == "x"
    assert len(workers()) <= 6
