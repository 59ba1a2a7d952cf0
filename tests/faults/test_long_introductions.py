"""Servers that say or ask more than anybody reads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.faults.harness import tool
from tests.support.bounds import bound
from tests.transports.client.raw_server import Request, raw_server

from mcp_toolset import RemoteToolset, Toolset, ToolsetServer
from mcp_toolset.testing import Client
from mcp_toolset.upstream import mount_state

pytestmark = pytest.mark.anyio

STAMP = {"resultType": "complete", "ttlMs": 60_000, "cacheScope": "public"}


def handler(said: dict[str, Any], result: dict[str, Any]) -> Callable[[Request], Any]:
    """A modern server that introduces itself so, and answers calls so."""

    async def handle(request: Request) -> None:
        match request.message["method"]:
            case "server/discover":
                about = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, **said}
                about["serverInfo"] = {"name": "up", "version": "1"}
                await request.answer(request.result({**STAMP, **about}))
            case "tools/list":
                await request.answer(request.result({**STAMP, "tools": [tool("ask")]}))
            case _:
                await request.answer(request.result(result))

    return handle


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_u113_a_call_that_asks_for_thousands_of_things_at_once_ends(mode: str) -> None:
    form = {"message": "m", "requestedSchema": {"type": "object", "properties": {}}}
    asked = {str(number): {"method": "elicitation/create", "params": form} for number in range(3000)}
    result = {"resultType": "input_required", "inputRequests": asked, "requestState": "s"}
    questions = 0

    async def answer(context: Any, params: Any) -> Any:
        nonlocal questions
        questions += 1

    async with raw_server(handler({}, result)) as raw:
        up = RemoteToolset(raw.url, name="up", protocol="modern")
        async with Client(ToolsetServer(Toolset(up)), mode=mode, elicitation_callback=answer) as client:
            told = await client.call_tool("ask", {})
    assert told.is_error
    assert "asks for 3000 things at once" in str(told.content)
    assert not questions


async def test_u113_long_instructions_are_not_looked_through_for_each_client(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lengths: list[int] = []
    clean = mount_state.clean_instructions

    def noted(text: str, *more: Any) -> str:
        lengths.append(len(text))
        return clean(text, *more)

    monkeypatch.setattr(mount_state, "clean_instructions", noted)
    async with raw_server(handler({"instructions": "Read me. " * 500_000}, {"content": []})) as raw:
        async with Client(
            ToolsetServer(Toolset(RemoteToolset(raw.url, name="up", protocol="modern")))
        ) as client:
            assert "Read me." in (client.instructions or "")
    assert lengths
    assert max(lengths) <= bound("instructions")
