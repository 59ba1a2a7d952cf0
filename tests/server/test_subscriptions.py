"""Modern clients that listen are told what was granted, in order, and each change once while it waits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import anyio
import pytest

from mcp_toolset.context.connection import Connection, RequestContext
from mcp_toolset.protocol.json_rpc import MCPError
from mcp_toolset.server import resource_handlers as module
from mcp_toolset.server.resource_handlers import Subscriptions
from mcp_toolset.transports.requests import OneWayContext

INTERNAL_ERROR = -32603
INVALID_REQUEST = -32600
PROMPTS_CHANGED = "notifications/prompts/list_changed"
RESOURCES_CHANGED = "notifications/resources/list_changed"
TOOLS_CHANGED = "notifications/tools/list_changed"
UPDATED = "notifications/resources/updated"

pytestmark = pytest.mark.anyio
ID_KEY = "io.modelcontextprotocol/subscriptionId"


class Way(OneWayContext):
    """A client that takes a message only when it is let."""

    def __init__(self, *, reads: bool = True) -> None:
        self.sent: list[tuple[str, Any]] = []
        self.begun = anyio.Event()
        self.open = anyio.Event()
        if reads:
            self.open.set()

    async def notify(self, method: str, params: Mapping[str, Any] | None, opts: Any = None) -> None:
        self.begun.set()
        await self.open.wait()
        assert params is not None
        assert params["_meta"] == {ID_KEY: "l"}
        self.sent.append((method, params.get("uri", params.get("notifications"))))


def request(way: Way, number: str | None = "l") -> RequestContext:
    connection = Connection(protocol_version="2026-07-28", initialize_accepted=True)
    return RequestContext("subscriptions/listen", {}, number, connection, way)


async def heard(granted: dict[str, Any], *changes: tuple[str, str | None], reads: bool = True) -> list[Any]:
    """What a client is sent of these changes, which come while it reads or does not."""
    subscriptions, way = Subscriptions(), Way(reads=reads)
    results: list[dict[str, Any]] = []

    async def listen() -> None:
        results.append(await subscriptions.listen(request(way), granted))

    with anyio.fail_after(30):
        async with anyio.create_task_group() as group:
            group.start_soon(listen)
            await way.begun.wait()
            for method, uri in changes:
                subscriptions.publish(method, uri)
            way.open.set()
            subscriptions.end_streams()
    assert results == [{"_meta": {ID_KEY: "l"}}]
    first, *rest = way.sent
    assert first == ("notifications/subscriptions/acknowledged", granted)
    return rest


async def test_a_client_hears_what_it_was_granted_and_nothing_else() -> None:
    granted = {"toolsListChanged": True, "resourceSubscriptions": ["a://1"]}
    changes = [
        (TOOLS_CHANGED, None),
        (PROMPTS_CHANGED, None),
        (UPDATED, "a://1"),
        (UPDATED, "a://2"),
        (RESOURCES_CHANGED, None),
    ]
    assert await heard(granted, *changes) == [(TOOLS_CHANGED, None), (UPDATED, "a://1")]


async def test_a_client_that_granted_nothing_hears_nothing() -> None:
    assert await heard({}, (TOOLS_CHANGED, None), (UPDATED, "a://1")) == []


async def test_a_slow_client_loses_nothing_but_what_is_still_to_be_told() -> None:
    granted = {
        "toolsListChanged": True,
        "promptsListChanged": True,
        "resourceSubscriptions": ["a://1", "a://2"],
    }
    changes = [
        (TOOLS_CHANGED, None),
        (UPDATED, "a://2"),
        (TOOLS_CHANGED, None),
        (PROMPTS_CHANGED, None),
        (UPDATED, "a://1"),
    ] * 2000
    told = await heard(granted, *changes, reads=False)
    assert told == [(TOOLS_CHANGED, None), (UPDATED, "a://2"), (PROMPTS_CHANGED, None), (UPDATED, "a://1")]


async def test_a_change_after_one_was_told_is_told_again() -> None:
    subscriptions, way = Subscriptions(), Way()
    with anyio.fail_after(30):
        async with anyio.create_task_group() as group:
            group.start_soon(subscriptions.listen, request(way), {"toolsListChanged": True})
            await way.begun.wait()
            for count in range(1, 4):
                subscriptions.publish(TOOLS_CHANGED)
                while len(way.sent) < count + 1:
                    await anyio.lowlevel.checkpoint()
            subscriptions.end_streams()
    assert [method for method, _ in way.sent[1:]] == [TOOLS_CHANGED] * 3


async def test_r4_a_client_that_comes_from_another_replica_hears_of_the_changes_of_the_last_seconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 100.0
    monkeypatch.setattr(module, "monotonic", lambda: now)
    subscriptions = Subscriptions(overlap=15)

    async def told(at: float) -> list[str]:
        nonlocal now
        now, way = at, Way()
        async with anyio.create_task_group() as group:
            group.start_soon(subscriptions.listen, request(way), {"toolsListChanged": True})
            await way.begun.wait()
            for listener in list(subscriptions._listeners):
                listener.end()
        return [method for method, _ in way.sent[1:]]

    with anyio.fail_after(30):
        assert await told(114.9) == [TOOLS_CHANGED]
        assert await told(115) == []
        subscriptions.publish(TOOLS_CHANGED)
        subscriptions.publish(PROMPTS_CHANGED)
        assert await told(129.9) == [TOOLS_CHANGED]
        assert await told(130) == []
        subscriptions.publish(TOOLS_CHANGED, to=lambda identity: identity is not None)
        assert await told(131) == []


async def test_a_client_that_leaves_listens_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_STREAMS", 1)
    subscriptions, way = Subscriptions(), Way()
    with anyio.fail_after(30):
        async with anyio.create_task_group() as group:
            group.start_soon(subscriptions.listen, request(way), {"toolsListChanged": True})
            await way.begun.wait()
            with pytest.raises(MCPError) as refused:
                await subscriptions.listen(request(Way()), {})
            assert refused.value.code == INTERNAL_ERROR
            group.cancel_scope.cancel()
        # There is room again.
        assert subscriptions.end_streams() is None
        async with anyio.create_task_group() as group:
            group.start_soon(subscriptions.listen, request(again := Way()), {})
            await again.begun.wait()
            group.cancel_scope.cancel()


async def test_a_notification_cannot_listen() -> None:
    with pytest.raises(MCPError) as refused:
        await Subscriptions().listen(request(Way(), number=None), {})
    assert refused.value.code == INVALID_REQUEST
