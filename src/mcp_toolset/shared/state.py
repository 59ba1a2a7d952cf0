"""`SharedState`: what several replicas of one server share, with a face for each kind of state.

Publishing in Redis is at most once: what is published while a replica is not connected is lost. So `Topics`
listens to a pulse of its own, and each subscriber is told when something may have been missed.
"""

from __future__ import annotations

import json
import logging
import time
from collections import defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import field
from secrets import randbelow, token_hex
from typing import Any, Final

import anyio
from anyio.abc import TaskGroup

from mcp_toolset._callbacks import Callbacks
from mcp_toolset._records import dataclass
from mcp_toolset.calls.suspended import SUSPENDED_TTL, SuspendedStore
from mcp_toolset.catalog.grants.cached_grants import CachedGrants
from mcp_toolset.catalog.grants.store import GRANTED, REVOKED, GrantFilter, StoredGrants
from mcp_toolset.catalog.registry.state_store import StoredState
from mcp_toolset.concurrency.tasks import STORE_TIMEOUT, beside
from mcp_toolset.errors import CallError, StoreError
from mcp_toolset.security.key_ring import KeyRing
from mcp_toolset.stores.redis import RedisStore, StoreConnection, StoreHealth
from mcp_toolset.stores.store import ABSENT, Put, Store, hashed

PULSE: Final = 1.0
"""Seconds between two pulses of a replica."""

DEAF_AFTER: Final = 3.0
"""Seconds without its own pulse after which a replica takes its connection for lost."""

ALIVE: Final = 5.0
"""Seconds for which a replica is taken to be alive after a pulse."""

_PULSE: Final = "pulse"
_log = logging.getLogger("mcp_toolset.stores")


Subscriber = Callable[[bytes], object]
"""A subscriber of a topic. It is called in the task that listens, and must not wait."""


class Topics:
    """The topics of one namespace.

    Attributes:
        replica: The name of this replica, different after each start.
        is_current: True if this process receives all that is published.
    """

    def __init__(self, connection: StoreConnection) -> None:
        # A number: what only this replica has is named by it.
        self.replica = str(10**8 + randbelow(9 * 10**8))
        self.is_current = False
        self._connection = connection
        self._subscribers: defaultdict[str, list[Subscriber]] = defaultdict(list)
        # Told when messages may be missed from now on (`False`), and when no more (`True`).
        self.on_change = Callbacks()
        self._heard_at = 0.0

    def subscribe(self, topic: str, subscriber: Subscriber) -> Callable[[], None]:
        """Pass a topic's messages on; returns what ends that."""
        listening = self._subscribers[topic]
        listening.append(subscriber)
        return lambda: listening.remove(subscriber)

    async def publish(self, topic: str, message: bytes, *, replica: str = "") -> int:
        """Tell all replicas, or one; how many there are that listen."""
        channel = self.channel(replica)
        body = topic.encode() + b"\n" + message
        return await self._connection.run("PUBLISH", channel, body, to=f"publish {topic}")

    async def is_listening(self, replica: str) -> bool:
        channel = self.channel(replica)
        answer = await self._connection.run("PUBSUB", "NUMSUB", channel, to="find a replica")
        return int(answer[1]) > 0

    async def replicas(self) -> list[str]:
        """The replicas that had a pulse lately."""
        key = self._connection.key("replicas")
        now = time.time()
        await self._connection.run("ZREMRANGEBYSCORE", key, "-inf", now - 10 * ALIVE, to="list replicas")
        ids = await self._connection.run("ZRANGEBYSCORE", key, now - ALIVE, "+inf", to="list replicas")
        return [each.decode() for each in ids]

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Listen for the length of a block."""
        async with beside(self._listen_again, self._beat, last=self._leave):
            yield

    async def _beat(self) -> None:
        while True:
            try:
                await self._connection.run(
                    "ZADD", self._connection.key("replicas"), time.time(), self.replica, to="keep its place"
                )
                await self.publish(_PULSE, b"", replica=self.replica)
            except StoreError:
                pass
            if self.is_current and time.monotonic() - self._heard_at > DEAF_AFTER:
                self._become(current=False)
            await anyio.sleep(PULSE)

    async def _leave(self) -> None:
        self.is_current = False
        try:
            await self._connection.run("ZREM", self._connection.key("replicas"), self.replica, to="leave")
        except StoreError as fault:
            _log.info("%s", fault)

    async def _listen_again(self) -> None:
        from redis.exceptions import RedisError

        while True:
            try:
                async with aclosing(self._connection.listener()) as listener:
                    await self._listen(listener)
            except (RedisError, OSError) as fault:
                _log.info("what replicas publish is not heard: %s", fault)
            self._become(current=False)
            await anyio.sleep(PULSE)

    async def _listen(self, listener: Any) -> None:
        """Listen until the connection is lost, or its own pulse is not heard."""
        await listener.subscribe(self.channel(""), self.channel(self.replica))
        self._heard_at = time.monotonic()
        while time.monotonic() - self._heard_at < DEAF_AFTER:
            # It gives nothing for the answers to its own commands too.
            message = await listener.get_message(timeout=PULSE)
            if message is None:
                continue
            self._heard_at = time.monotonic()
            topic, _, body = message["data"].partition(b"\n")
            if topic == _PULSE.encode():
                self._become(current=True)
                continue
            self._tell(topic.decode("utf-8", "replace"), body)

    def _tell(self, topic: str, body: bytes) -> None:
        for subscriber in list(self._subscribers.get(topic, ())):
            try:
                subscriber(body)
            # What others publish may be anything; the next message must be heard.
            except Exception:
                _log.exception("a message about %s could not be taken", topic)

    def _become(self, *, current: bool) -> None:
        if current == self.is_current:
            return
        self.is_current = current
        self.on_change.tell(current)

    def channel(self, replica: str = "") -> str:
        """The channel of a replica, or of all; a message is `topic`, a line feed, and the body."""
        return self._connection.key("channel", replica)


LOOK: Final = 1.0
"""Seconds after which it is looked whether the other replica is still there."""

MAX_MESSAGE: Final = 16_000_000
"""Bytes of one message; the store cuts off listeners that fall behind by more than 32 MB."""

Handler = Callable[[Mapping[str, Any]], Awaitable[Mapping[str, Any] | None]]
_STEP: Final = 0.02
_ASK: Final = "ask"
_ANSWER: Final = "answer"
_CANCEL: Final = "cancel"
_GONE: Final = "the replica of this server that has it is gone"


@dataclass(eq=False, slots=True)
class _PendingRequest:
    ended: anyio.Event = field(default_factory=anyio.Event)
    answer: Mapping[str, Any] | None = None


class Replicas:
    """The other replicas of this server, through the store."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        self.own = topics.replica
        self.lives = topics.is_listening
        self._handlers: dict[str, Handler] = {}
        self._asked: dict[str, _PendingRequest] = {}
        self._answering: dict[tuple[str, str], anyio.CancelScope] = {}
        self._group: TaskGroup | None = None
        self._is_heard = False

    def serve(self, method: str, handler: Handler) -> None:
        """Answer a method when other replicas ask; a `CallError` is raised again where it was asked."""
        self._handlers[method] = handler

    async def ask(
        self, replica: str, method: str, params: Mapping[str, Any], *, within: float
    ) -> dict[str, Any]:
        """The answer of a replica.

        Args:
            replica: Its name.
            method: The method of the request.
            params: JSON.
            within: Seconds that it may take.
        """
        number = token_hex(8)
        asked = self._asked[number] = _PendingRequest()
        body = {"id": number, "from": self.own, "method": method, "params": dict(params)}
        try:
            with anyio.fail_after(within):
                await self._until_heard()
                await self._send(replica, _ASK, body)
                while not asked.ended.is_set():
                    await self._look_after(replica, asked)
        except TimeoutError:
            await self._forget(replica, number)
            raise CallError(f"another replica of this server gave no answer within {within:g} s") from None
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True):
                await self._forget(replica, number)
            raise
        finally:
            del self._asked[number]
        answer = asked.answer or {}
        if (fault := answer.get("fault")) is not None:
            raise CallError(str(fault))
        return dict(answer.get("result") or {})

    async def tell(self, replica: str, method: str, params: Mapping[str, Any]) -> None:
        """Send a replica what needs no answer; `""` stands for all, this one included."""
        await self._send(
            replica, _ASK, {"id": "", "from": self.own, "method": method, "params": dict(params)}
        )

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Answer other replicas for the length of a block."""
        subscribe = self._topics.subscribe
        stops = [
            subscribe(_ASK, self._take),
            subscribe(_ANSWER, self._take_answer),
            subscribe(_CANCEL, self._take_cancel),
        ]
        async with anyio.create_task_group() as group:
            self._group = group
            try:
                yield
            finally:
                self._group = None
                for stop in stops:
                    stop()
                group.cancel_scope.cancel()

    async def _until_heard(self) -> None:
        """Wait until answers reach this replica, which may have begun just now."""
        while not self._is_heard:
            self._is_heard = await self._topics.is_listening(self.own)
            if not self._is_heard:
                await anyio.sleep(_STEP)

    async def _look_after(self, replica: str, asked: _PendingRequest) -> None:
        with anyio.move_on_after(LOOK):
            await asked.ended.wait()
            return
        if not await self._topics.is_listening(replica) and not asked.ended.is_set():
            raise CallError(f"{_GONE}; it is not known what came of the request")

    async def _send(self, replica: str, topic: str, body: Mapping[str, Any]) -> None:
        message = json.dumps(body, separators=(",", ":")).encode()
        if len(message) > MAX_MESSAGE:
            raise CallError(f"a message to another replica is longer than {MAX_MESSAGE} bytes")
        if not await self._topics.publish(topic, message, replica=replica) and replica:
            raise CallError(f"{_GONE}; call again")

    async def _forget(self, replica: str, number: str) -> None:
        try:
            await self._send(replica, _CANCEL, {"id": number, "from": self.own})
        except (CallError, StoreError) as fault:
            _log.info("another replica was not told of a cancelled request: %s", fault)

    def _take(self, message: bytes) -> None:
        if self._group is not None:
            self._group.start_soon(self._answer, json.loads(message))

    def _take_answer(self, message: bytes) -> None:
        body = json.loads(message)
        if (asked := self._asked.get(body["id"])) is not None:
            asked.answer = body
            asked.ended.set()

    def _take_cancel(self, message: bytes) -> None:
        body = json.loads(message)
        if (scope := self._answering.get((body["from"], body["id"]))) is not None:
            scope.cancel()

    async def _answer(self, body: Mapping[str, Any]) -> None:
        number, other = body["id"], body["from"]
        with anyio.CancelScope() as scope:
            self._answering[other, number] = scope
            try:
                answer = await self._handled(body)
            finally:
                self._answering.pop((other, number), None)
            if number:
                await self._send_answer(other, {"id": number, **answer})

    async def _handled(self, body: Mapping[str, Any]) -> dict[str, Any]:
        handler = self._handlers.get(body["method"])
        if handler is None:
            return {"fault": f"another replica of this server does not know {body['method']}; is it older?"}
        try:
            return {"result": await handler(body["params"])}
        except CallError as fault:
            return {"fault": str(fault)}
        # Whatever a handler fails by, it must not end this replica, and the asker must not wait for it.
        except Exception:
            _log.exception("a request of another replica failed")
            return {"fault": "another replica of this server failed at it; its log says why"}

    async def _send_answer(self, replica: str, body: Mapping[str, Any]) -> None:
        try:
            await self._send(replica, _ANSWER, body)
        except (CallError, StoreError) as fault:
            _log.warning("an answer for another replica is lost: %s", fault)


_LEASES = "lease"
_NUMBERS = "lease number"


def shared_registry_state(store: Store, topics: Topics, service: str) -> StoredState:
    """The names and members of the tools of a service, whose replicas follow each other."""
    topic = f"registry {hashed(service)}"

    def follow(told: Callable[[], object]) -> Callable[[], None]:
        def heard_again(current: bool) -> None:
            if current:
                told()

        stops = (topics.subscribe(topic, lambda message: told()), topics.on_change.add(heard_again))

        def stop() -> None:
            for each in stops:
                each()

        return stop

    return StoredState(store, service, told=f"{topic}\n".encode(), follow=follow)


class Leases:
    """Leases, each of which one replica has at a time, until it gives it back."""

    def __init__(self, store: Store, replica: str) -> None:
        self._store = store
        self._replica = replica

    async def take(self, name: str, *, ttl: float) -> int:
        """Take a lease, or renew it; its number, which grows with each new holder, or 0 if another has it."""
        while True:
            lease, last = await self._store.get((_LEASES, name), (_NUMBERS, name))
            if lease is not None:
                number, _, holder = lease.value.decode().partition(" ")
                if holder != self._replica:
                    return 0
                puts = [Put(_LEASES, name, lease.value, lease.tag, ttl=ttl)]
            else:
                number, known = (str(int(last.value) + 1), last.tag) if last else ("1", ABSENT)
                value = f"{number} {self._replica}".encode()
                puts = [
                    Put(_LEASES, name, value, ABSENT, ttl=ttl),
                    Put(_NUMBERS, name, number.encode(), known),
                ]
            if await self._store.write(*puts) is None:
                return int(number)

    async def release(self, name: str) -> None:
        """Give a lease back, if this replica has it."""
        [lease] = await self._store.get((_LEASES, name))
        if lease is not None and _holder(lease.value) == self._replica:
            await self._store.write(Put(_LEASES, name, None, lease.tag))

    async def holder(self, name: str) -> str:
        """The replica that has a lease; empty if none has."""
        [lease] = await self._store.get((_LEASES, name))
        return "" if lease is None else _holder(lease.value)


def _holder(lease: bytes) -> str:
    return lease.decode().partition(" ")[2]


HEARD_TTL: Final = 300.0
"""Seconds for which a replica uses a grant without asking, while it hears of revocations."""

DEAF_TTL: Final = 3.0
"""Seconds for which a replica uses a grant without asking, while it may miss revocations."""


def shared_grants(store: Store, topics: Topics) -> CachedGrants:
    """The grants in a store, with a copy in this process that follows what other replicas revoke."""
    cache = CachedGrants(StoredGrants(store, tells=True), ttl=HEARD_TTL)

    def heard(message: bytes) -> None:
        cache.heard(GrantFilter(**json.loads(message)))

    def granted(message: bytes) -> None:
        for owner, names in json.loads(message).items():
            cache.heard_of_grants(owner, names)

    def changed(current: bool) -> None:
        cache.doubt(HEARD_TTL if current else DEAF_TTL)

    changed(topics.is_current)
    topics.subscribe(REVOKED, heard)
    topics.subscribe(GRANTED, granted)
    topics.on_change.add(changed)
    return cache


KEYS_VARIABLE: Final = "MCP_TOOLSET_KEYS"
"""The variable with the keys of all replicas in base64, the current one first."""


class SharedState(SuspendedStore):
    """The state of one namespace in a store.

    Attributes:
        topics: The messages between replicas.
        replicas: Asks another replica.
        leases: The resources that one replica alone may own.
    """

    def __init__(
        self,
        url: str,
        *,
        keys: KeyRing | None = None,
        timeout: float = STORE_TIMEOUT,
        suspended_ttl: float = SUSPENDED_TTL,
    ) -> None:
        """Describe the state; nothing is opened yet.

        Args:
            url: The address of Redis 7 or Valkey: `redis://host:6379/0`, or `rediss://`, `unix://`; with
                `?namespace=` if several services use one store.
            keys: Seals what clients carry from one replica to another. Unless given, one key is made and kept
                in the store: then a program that can read the store can make session ids and request states.
            timeout: Seconds that the store has for one answer.
            suspended_ttl: Seconds for which a call that waits for an answer is kept.

        Raises:
            ConfigError: the URL cannot be used, or the extra `redis` is not installed.
        """
        self.connection = StoreConnection(url, timeout=timeout)
        self.topics = Topics(self.connection)
        self.replicas = Replicas(self.topics)
        super().__init__(RedisStore(self.connection), keys=keys, ttl=suspended_ttl)
        self.leases = Leases(self._store, self.topics.replica)

    def grants(self) -> CachedGrants:
        """Grants, with a copy here that follows what other replicas grant and revoke."""
        return shared_grants(self._store, self.topics)

    def registry_state(self, service: str) -> StoredState:
        """The names and members of the tools of a server; its replicas give the same name."""
        return shared_registry_state(self._store, self.topics, service)

    def store(self, name: str = "") -> RedisStore:
        """The store for what extensions keep in it, which errors call by a name."""
        return RedisStore(self.connection, name, owned=True)

    @property
    def health(self) -> StoreHealth:
        """True if the store answers."""
        return self.connection.health

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Listen to the other replicas for the length of a block.

        Raises:
            StoreError: the store is down, and has the keys.
        """
        try:
            async with super().running(), self.topics.running(), self.replicas.running():
                yield
        finally:
            await self.connection.aclose()
