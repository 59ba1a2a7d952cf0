"""`Replicas`: one replica asks another one, and learns at once if that one is gone."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import field
from secrets import token_hex
from typing import Any, Final

import anyio
from anyio.abc import TaskGroup

from mcp_toolset._records import dataclass
from mcp_toolset.errors import CallError, StoreError
from mcp_toolset.shared.topics import Topics

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
_log = logging.getLogger("mcp_toolset.stores")


@dataclass(eq=False, slots=True)
class _Asked:
    ended: anyio.Event = field(default_factory=anyio.Event)
    answer: Mapping[str, Any] | None = None


class Replicas:
    """The other replicas of this server, through the store."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        self._handlers: dict[str, Handler] = {}
        self._asked: dict[str, _Asked] = {}
        self._answering: dict[tuple[str, str], anyio.CancelScope] = {}
        self._group: TaskGroup | None = None
        self._is_heard = False

    @property
    def own(self) -> str:
        return self._topics.replica

    def serve(self, method: str, handler: Handler) -> None:
        """Answer a method when other replicas ask; a `CallError` is raised again where it was asked."""
        self._handlers[method] = handler

    async def ask(
        self, replica: str, method: str, params: Mapping[str, Any], *, within: float
    ) -> dict[str, Any]:
        """The answer of a replica.

        Args:
            replica: Its name.
            method: What it is asked.
            params: JSON.
            within: Seconds that it may take.
        """
        number = token_hex(8)
        asked = self._asked[number] = _Asked()
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

    async def lives(self, replica: str) -> bool:
        return await self._topics.is_listening(replica)

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

    async def _look_after(self, replica: str, asked: _Asked) -> None:
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
                told = await self._handled(body)
            finally:
                self._answering.pop((other, number), None)
            if number:
                await self._send_answer(other, {"id": number, **told})

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
