"""`Topics`: what replicas tell each other through the store, and whether all of it was heard.

Publishing in Redis is at most once: what is published while a replica is not connected is lost. So a replica
listens to a pulse of its own, and each subscriber is told when something may have been missed.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, asynccontextmanager
from secrets import randbelow
from typing import Any, Final, Protocol

import anyio

from mcp_toolset.concurrency.tasks import beside
from mcp_toolset.errors import StoreError
from mcp_toolset.stores.connection import StoreConnection

PULSE: Final = 1.0
"""Seconds between two pulses of a replica."""

DEAF_AFTER: Final = 3.0
"""Seconds without its own pulse after which a replica takes its connection for lost."""

ALIVE: Final = 5.0
"""Seconds for which a replica is taken to be alive after a pulse."""

_PULSE: Final = "pulse"
_log = logging.getLogger("mcp_toolset.stores")


class Subscriber(Protocol):
    """What hears a topic. It is called in the task that listens, and must not wait."""

    def __call__(self, message: bytes, /) -> object: ...


class Topics:
    """The topics of one namespace.

    Attributes:
        replica: The name of this replica, different after each start.
        is_current: Whether all that is published is heard.
    """

    def __init__(self, connection: StoreConnection) -> None:
        # A number: what only this replica has is named by it.
        self.replica = str(10**8 + randbelow(9 * 10**8))
        self.is_current = False
        self._connection = connection
        self._subscribers: defaultdict[str, list[Subscriber]] = defaultdict(list)
        self._gaps: list[Callable[[bool], object]] = []
        self._heard_at = 0.0

    def subscribe(self, topic: str, subscriber: Subscriber) -> Callable[[], None]:
        """Have a topic's messages passed on; what is returned ends it."""
        listening = self._subscribers[topic]
        listening.append(subscriber)
        return lambda: listening.remove(subscriber)

    def on_change(self, told: Callable[[bool], object]) -> Callable[[], None]:
        """Have it told when messages may be missed from now on (`False`), and when no more (`True`)."""
        self._gaps.append(told)
        return lambda: self._gaps.remove(told)

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
        found = await self._connection.run("ZRANGEBYSCORE", key, now - ALIVE, "+inf", to="list replicas")
        return [each.decode() for each in found]

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
        for told in list(self._gaps):
            told(current)

    def channel(self, replica: str = "") -> str:
        """The channel of a replica, or of all; a message is `topic`, a line feed, and the body."""
        return self._connection.key("channel", replica)
