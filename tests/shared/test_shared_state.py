"""Replicas hear, ask and replace each other through a real store; without the store nothing hangs."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from tests.support.valkey import valkey_process

from mcp_toolset.errors import CallError, ConfigError, StoreError
from mcp_toolset.shared import SharedState
from mcp_toolset.stores.redis import StoreConnection

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def replica(url: str, *, timeout: float = 2.0) -> AsyncIterator[SharedState]:
    """One that hears what is published."""
    shared = SharedState(url, timeout=timeout)
    async with shared.running():
        await current(shared)
        yield shared


async def current(shared: SharedState, wanted: bool = True) -> None:
    changed = anyio.Event()
    stop = shared.topics.on_change.add(lambda now: changed.set() if now == wanted else None)
    with anyio.fail_after(30):
        if shared.topics.is_current != wanted:
            await changed.wait()
    stop()


class Heard:
    def __init__(self) -> None:
        self.messages: list[bytes] = []
        self.event = anyio.Event()

    def __call__(self, message: bytes) -> None:
        self.messages.append(message)
        self.event.set()


async def test_r2_what_one_replica_publishes_the_others_hear(url: str) -> None:
    async with replica(url) as one, replica(url) as other:
        heard = Heard()
        other.topics.subscribe("revoked", heard)
        await one.topics.publish("revoked", b"a\nb")
        with anyio.fail_after(10):
            await heard.event.wait()
        assert heard.messages == [b"a\nb"]
        assert set(await one.topics.replicas()) == {one.topics.replica, other.topics.replica}


async def test_r1_namespaces_keep_services_apart(url: str) -> None:
    async with replica(url) as one, replica(f"{url}x") as other:
        assert await one.leases.take("notion", ttl=60)
        assert await other.leases.take("notion", ttl=60)
        assert await other.topics.replicas() == [other.topics.replica]


async def test_r4_a_replica_answers_another_one(url: str) -> None:
    async def double(params: Mapping[str, Any]) -> Mapping[str, Any]:
        if params["n"] < 0:
            raise CallError("the number is negative")
        return {"n": params["n"] * 2}

    async with replica(url) as one, replica(url) as other:
        other.replicas.serve("double", double)
        assert await one.replicas.ask(other.replicas.own, "double", {"n": 21}, within=10) == {"n": 42}
        with pytest.raises(CallError, match="the number is negative"):
            await one.replicas.ask(other.replicas.own, "double", {"n": -1}, within=10)
        with pytest.raises(CallError, match="does not know treble"):
            await one.replicas.ask(other.replicas.own, "treble", {}, within=10)


async def test_r4_a_replica_that_is_gone_is_known_at_once(url: str) -> None:
    async with replica(url) as one:
        async with replica(url) as other:
            name = other.replicas.own
        with pytest.raises(CallError, match="is gone; call again"):
            await one.replicas.ask(name, "double", {"n": 1}, within=60)


async def test_r4_a_replica_that_goes_while_it_is_asked_is_known(url: str) -> None:
    begun = anyio.Event()

    async def wait(params: Mapping[str, Any]) -> Mapping[str, Any]:
        begun.set()
        await anyio.sleep_forever()
        return {}

    async with replica(url) as one, anyio.create_task_group() as group:
        leave = anyio.Event()

        async def other() -> None:
            async with replica(url) as two:
                two.replicas.serve("wait", wait)
                names.append(two.replicas.own)
                there.set()
                await leave.wait()

        names: list[str] = []
        there = anyio.Event()
        group.start_soon(other)
        await there.wait()

        async def go() -> None:
            await begun.wait()
            leave.set()

        group.start_soon(go)
        with anyio.fail_after(30), pytest.raises(CallError, match="not known what came of the request"):
            await one.replicas.ask(names[0], "wait", {}, within=60)


async def test_r4_a_cancelled_request_is_cancelled_at_the_other_replica(url: str) -> None:
    begun, ended = anyio.Event(), anyio.Event()

    async def wait(params: Mapping[str, Any]) -> Mapping[str, Any]:
        begun.set()
        try:
            await anyio.sleep_forever()
        finally:
            ended.set()
        return {}

    async with replica(url) as one, replica(url) as other:
        other.replicas.serve("wait", wait)
        with anyio.fail_after(30):
            async with anyio.create_task_group() as group:
                group.start_soon(lambda: one.replicas.ask(other.replicas.own, "wait", {}, within=60))
                await begun.wait()
                group.cancel_scope.cancel()
            await ended.wait()


async def test_r5_a_lease_has_one_holder_and_a_growing_number(url: str) -> None:
    async with replica(url) as one, replica(url) as other:
        first = await one.leases.take("notion", ttl=60)
        assert first and await one.leases.take("notion", ttl=60) == first
        assert await other.leases.take("notion", ttl=60) == 0
        await other.leases.release("notion")
        assert await other.leases.holder("notion") == one.topics.replica
        await one.leases.release("notion")
        assert await other.leases.take("notion", ttl=60) > first


async def test_r1_a_store_that_is_away_fails_at_once_and_mends_itself() -> None:
    with valkey_process() as server:
        async with replica(server.url) as shared:
            server.kill()
            await current(shared, False)
            with anyio.fail_after(5), pytest.raises(StoreError, match="cannot be used now"):
                await shared.leases.holder("notion")
            assert shared.health.state == "down"
            server.start()
            await current(shared)
            assert await shared.leases.holder("notion") == ""
            assert shared.health.state == "ready"


async def test_r1_a_store_that_is_frozen_hangs_no_request() -> None:
    with valkey_process() as server:
        async with replica(server.url, timeout=0.2) as shared:
            server.freeze()
            with anyio.fail_after(20):
                with pytest.raises(StoreError, match="cannot be used now"):
                    await shared.leases.holder("notion")
                await current(shared, False)
            server.thaw()
            await current(shared)
            assert await shared.leases.holder("notion") == ""


async def test_r1_one_late_answer_refuses_its_request_alone() -> None:
    with valkey_process() as server:
        connection = StoreConnection(server.url, timeout=0.2)
        await connection.run("GET", "x", to="ask")
        server.freeze()
        for state in ("ready", "down"):
            with anyio.fail_after(20), pytest.raises(StoreError, match="cannot be used now"):
                await connection.run("GET", "x", to="ask")
            assert connection.health.state == state
        server.thaw()
        await connection.aclose()


@pytest.mark.parametrize(
    "url", ["http://localhost", "localhost:6379", "redis://localhost/?namespace=a%20b", ""]
)
async def test_r1_a_url_that_is_none_says_so(url: str) -> None:
    with pytest.raises(ConfigError, match="shared store"):
        SharedState(url)


async def test_r3_replicas_have_the_same_keys(url: str) -> None:
    async with replica(url) as one, replica(url) as other:
        token = one.keys.seal("session", b"who", bound="alice")
        assert other.keys.open("session", token, bound="alice") == b"who"
        assert other.keys.open("session", token, bound="bob") is None
