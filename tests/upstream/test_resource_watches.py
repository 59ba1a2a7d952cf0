"""Resources that are watched on the session that lists: each server is told in the way of its era."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from mcp_toolset.errors import UpstreamProtocolError, UpstreamUnavailableError
from mcp_toolset.upstream.lists import ResourceWatches

pytestmark = pytest.mark.anyio
ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
UPDATED = "notifications/resources/updated"


class Server:
    """What one server is asked; its streams stay open until they are given up."""

    def __init__(self, *, refuses: bool = False) -> None:
        self.asked: list[tuple[str, Any]] = []
        self.open: dict[str, list[str]] = {}
        self.watches = ResourceWatches("up", self.request, lambda capability, feature: True)
        self._refuses = refuses

    async def request(self, method: str, params: dict[str, Any], *, opts: Any = None) -> dict[str, Any]:
        if method != "subscriptions/listen":
            self.asked.append((method, params["uri"]))
            if self._refuses:
                raise UpstreamProtocolError("up", -32602, "no such resource")
            return {}
        number = opts["request_id"]
        self.open[number] = params["notifications"]["resourceSubscriptions"]
        try:
            meta = {"io.modelcontextprotocol/subscriptionId": number}
            assert self.watches.heard(ACKNOWLEDGED, {"_meta": meta})
            await anyio.sleep_forever()
            raise AssertionError("the sleep has an end")
        finally:
            del self.open[number]

    def tell(self, uri: str) -> None:
        assert self.watches.heard(UPDATED, {"uri": uri})


@asynccontextmanager
async def modern(server: Server) -> AsyncGenerator[None]:
    await server.watches.begin(modern=True)
    with anyio.fail_after(40):
        async with anyio.create_task_group() as group:
            group.start_soon(server.watches.keep_watching)
            await anyio.wait_all_tasks_blocked()
            yield
            group.cancel_scope.cancel()


async def test_an_older_server_is_subscribed_to_once_for_all_who_watch() -> None:
    server, told = Server(), list[str]()
    ends = [await server.watches.watch("a", lambda name=name: told.append(name)) for name in ("x", "y")]
    server.tell("a")
    server.tell("b")
    await ends[0]()
    server.tell("a")
    assert told == ["x", "y", "y"] and server.watches
    await ends[1]()
    await ends[1]()
    assert server.asked == [("resources/subscribe", "a"), ("resources/unsubscribe", "a")]
    assert not server.watches


async def test_an_older_server_that_is_back_is_told_again_what_is_watched() -> None:
    server = Server()
    await server.watches.watch("a", lambda: None)
    await server.watches.begin(modern=False)
    assert server.asked == [("resources/subscribe", "a")] * 2


async def test_a_watch_that_is_refused_is_none() -> None:
    server = Server(refuses=True)
    with pytest.raises(UpstreamProtocolError, match="no such resource"):
        await server.watches.watch("a", lambda: None)
    assert not server.watches and server.asked == [("resources/subscribe", "a")]


async def test_a_newer_server_holds_one_stream_for_all_that_is_watched() -> None:
    server, told = Server(), list[str]()
    async with modern(server):
        end = await server.watches.watch("a", lambda: told.append("a"))
        assert list(server.open.values()) == [["a"]]
        await server.watches.watch("b", lambda: told.append("b"))
        await anyio.wait_all_tasks_blocked()
        assert list(server.open.values()) == [["a", "b"]]
        server.tell("a")
        await end()
        await anyio.wait_all_tasks_blocked()
        assert list(server.open.values()) == [["b"]]
        server.tell("a")
    assert told == ["a"] and server.asked == []


async def test_what_is_watched_moves_to_the_next_connection_and_is_told_once() -> None:
    before, after, told = Server(), Server(), list[str]()
    end = await before.watches.watch("a", lambda: told.append("a"))
    await after.watches.follow(before.watches)
    assert told == ["a"] and after.asked == [("resources/subscribe", "a")]
    after.tell("a")
    await end()
    assert told == ["a", "a"] and after.asked[-1] == ("resources/unsubscribe", "a")
    assert not before.watches and not after.watches


async def test_the_end_of_a_watch_needs_no_server() -> None:
    server = Server()
    end = await server.watches.watch("a", lambda: None)

    async def gone(*_: Any, **__: Any) -> dict[str, Any]:
        raise UpstreamUnavailableError("up", "the connection was lost")

    server.watches._request = gone
    await end()
    assert not server.watches


async def test_other_notifications_are_left_to_others() -> None:
    watches = Server().watches
    assert not watches.heard("notifications/tools/list_changed", None)
    assert not watches.heard(ACKNOWLEDGED, {"_meta": {"io.modelcontextprotocol/subscriptionId": "changes-1"}})
