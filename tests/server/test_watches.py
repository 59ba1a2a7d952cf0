"""A resource is watched once for each client, and no longer than its client wants it."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.faults.harness import received, until
from tests.interaction import details_server
from tests.interaction.raw_client import RawClient, raw_client

from mcp_toolset import RemoteToolset, Toolset, ToolsetServer
from mcp_toolset.server import resource_handlers

pytestmark = pytest.mark.anyio
UP = "made:up"


class Upstream:
    """A server of 2025-11-25, and what it was sent."""

    def __init__(self, folder: Path) -> None:
        self.log = folder / "log"

    def got(self, method: str) -> list[Any]:
        return [each["params"] for each in received(self.log) if each.get("method") == method]

    def has(self, method: str, times: int = 1) -> Callable[[], bool]:
        return lambda: len(self.got(method)) == times

    @asynccontextmanager
    async def client(self, era: str, capabilities: Any = None) -> AsyncGenerator[RawClient]:
        """A client of a bridge before it."""
        command = [sys.executable, "-S", details_server.__file__, "legacy", str(self.log)]
        server = ToolsetServer(Toolset(RemoteToolset(command, name="up")), keep=False)
        with anyio.fail_after(60):
            async with server:
                await server.settled()
                async with raw_client(server, era, capabilities) as client:
                    yield client


@pytest.fixture
def upstream(tmp_path: Path) -> Upstream:
    return Upstream(tmp_path)


async def answered(client: RawClient, number: int) -> dict[str, Any]:
    return await client.until(lambda message: message.get("id") == number and "method" not in message)


async def test_u117_two_subscriptions_at_once_are_one(upstream: Upstream) -> None:
    async with upstream.client("legacy") as client:
        for number in [await client.begin("resources/subscribe", uri=UP) for _ in range(4)]:
            assert (await answered(client, number))["result"] == {}
        assert await client.ask("resources/unsubscribe", uri=UP) == {}
        assert upstream.got("resources/unsubscribe") == [{"uri": UP}]
    assert upstream.got("resources/subscribe") == [{"uri": UP}]


async def test_u117_a_subscription_that_is_ended_before_it_has_begun_ends(upstream: Upstream) -> None:
    async with upstream.client("legacy") as client:
        begun = await client.begin("resources/subscribe", uri=UP)
        ended = await client.begin("resources/unsubscribe", uri=UP)
        assert (await answered(client, begun))["result"] == {}
        assert (await answered(client, ended))["result"] == {}
        assert upstream.got("resources/unsubscribe") == [{"uri": UP}]


async def test_u117_subscriptions_at_once_do_not_exceed_those_of_one_client(
    upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource_handlers, "MAX_WATCHED", 2)
    async with upstream.client("legacy") as client:
        uris = [f"made:{number}" for number in range(5)]
        numbers = [await client.begin("resources/subscribe", uri=uri) for uri in uris]
        answers = [await answered(client, number) for number in numbers]
    assert ["result" in answer for answer in answers] == [True, True, False, False, False]


async def test_u117_a_client_that_listens_to_a_resource_twice_leaves_no_watch(upstream: Upstream) -> None:
    async with upstream.client("modern") as client:
        number = await client.begin("subscriptions/listen", notifications={"resourceSubscriptions": [UP, UP]})
        granted = await client.told("notifications/subscriptions/acknowledged")
        assert granted["notifications"] == {"resourceSubscriptions": [UP]}
        await client.send(method="notifications/cancelled", params={"requestId": number})
        await until(upstream.has("resources/unsubscribe"))


async def test_u117_a_client_that_leaves_while_it_subscribes_on_its_own_session_watches_nothing(
    upstream: Upstream,
) -> None:
    async with upstream.client("legacy", {"elicitation": {}}) as client:
        number = await client.begin("resources/subscribe", uri=details_server.HANGING)
        await until(upstream.has("resources/subscribe"))
        await client.send(method="notifications/cancelled", params={"requestId": number})
        await until(upstream.has("notifications/cancelled"))


async def test_u117_a_stream_beyond_the_limit_has_its_resources_watched_by_nobody(
    upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource_handlers, "OWN_STREAMS", 1)
    async with upstream.client("modern") as client:
        await client.begin("subscriptions/listen", notifications={"toolsListChanged": True})
        await client.told("notifications/subscriptions/acknowledged")
        refused = await client.ask("subscriptions/listen", notifications={"resourceSubscriptions": [UP]})
        assert "1 streams of this caller are open; end one" in refused["error"]["message"]
    assert upstream.got("resources/subscribe") == []
