"""A tool that changed while the bridge was down never runs on what was decided about the earlier one."""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import anyio
import pytest
from mcp import Client
from tests.extensions.suspended.test_suspended_calls import answer_to, called
from tests.hub.test_starting import Slow
from tests.support.asking import Person
from tests.support.configured import BOUND, Folder, label_of, text_of

from mcp_toolset import ToolsetServer, load_toolset
from mcp_toolset.config import load_config
from mcp_toolset.middleware import PermissionChecker

pytestmark = pytest.mark.anyio

Then = Callable[[Client], Awaitable[Any]]
CHANGES: dict[str, dict[str, Any]] = {
    "description": {"about": "The tool a, and more."},
    "schema": {"wide": True},
    "hints": {"hints": {"readOnlyHint": False, "title": "Another"}},
}


@asynccontextmanager
async def started(folder: Folder, *, asks: bool) -> AsyncIterator[tuple[Client, ToolsetServer]]:
    server = ToolsetServer(
        load_toolset(load_config(folder.config)),
        keep=folder.path / "kept",
        suspended=folder.path / "suspended",
        grants=folder.path / "grants",
        middleware=[PermissionChecker(lambda call: "ask" if asks and call.name == "up_a" else "allow")],
    )
    async with server.opened(), Client(server.lowlevel, cache=None, elicitation_callback=Person()) as client:
        yield client, server


async def released(slow: Slow) -> None:
    """Let go on whoever waits at the gate; no thread is left that waits for somebody to come."""
    while True:
        with suppress(OSError):
            os.close(os.open(slow.gate, os.O_WRONLY | os.O_NONBLOCK))
        await anyio.sleep(0.01)


async def granted(client: Client) -> Then:
    """A grant."""
    told: Any = await client.call_tool("resolve_tools", {"ids": ["up_a"]})
    call = {"grant": told.structured_content["tools"][0]["grant"]}
    return lambda later: later.call_tool("call_tool", call)


async def approved(client: Client) -> Then:
    """A call that the user has approved."""
    answer = answer_to(await called(client, "up_a", {}))
    return lambda later: called(later, "up_a", {}, answer)


async def suspended(client: Client) -> Then:
    """A run of code that waits for an approval, which the user has given."""
    told: Any = await client.call_tool("resolve_tools", {"ids": ["up_a"]})
    call = {"code": "await up_a()", "grants": [told.structured_content["tools"][0]["grant"]]}
    answer = answer_to(await called(client, "run_code", call))
    return lambda later: called(later, "run_code", call, answer)


@pytest.mark.parametrize("change", [None, *CHANGES])
@pytest.mark.parametrize("decided", [granted, approved, suspended])
async def test_u120_what_was_decided_holds_for_the_definition_it_was_decided_for(
    tmp_path: Any, decided: Callable[[Client], Awaitable[Then]], change: str | None
) -> None:
    folder = Folder(tmp_path)
    slow, asks = Slow(folder, "a"), decided is not granted
    section = {} if decided is approved else {"deferred": True, "code": True}
    folder.write({"up": slow.entry}, **section)
    with anyio.fail_after(BOUND / 2):
        async with started(folder, asks=asks) as (client, server):
            await server.settled()
            then = await decided(client)
        slow.become("a", held=True, label="2", **CHANGES.get(change or "", {}))
        async with started(folder, asks=asks) as (client, server):
            assert server.statuses()["up"].state == "starting"
            # Each session with the server is a process of its own.
            async with anyio.create_task_group() as group:
                group.start_soon(released, slow)
                result = await then(client)
                said = text_of(result)
                if change is None:
                    assert not result.is_error and "a of 2 by" in said
                else:
                    assert result.is_error and "a of 2 by" not in said
                    # By the list of tools, or by the word of the server that its list is another one.
                    assert re.search("has changed since|has just changed at its server", said)
                if decided is granted:
                    # What is granted once the definition is known holds.
                    again = await granted(client)
                    assert label_of(text_of(await again(client)))[0] == "2"
                group.cancel_scope.cancel()
