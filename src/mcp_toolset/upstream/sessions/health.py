"""`Health`: checks whether a session's server still answers, once a call was left without an answer.

A call that is answered costs nothing here. One that is not has the server asked for something that it
answers at once: `ping`, or `server/discover` in 2026-07-28. See `circuit_breaker` for what follows.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import anyio

from mcp_toolset.errors import UpstreamProtocolError, UpstreamUnavailableError
from mcp_toolset.upstream.sessions.circuit_breaker import CLOSED, GIVEN_UP_AFTER, Circuit

READ_ON: Final = 0.05
"""Seconds in which an answer is read that came while this process had no time to read."""


class Health:
    """The circuit of one session, and the health checks that move it.

    Attributes:
        fault: Why calls fail at once; empty while they go through.
        on_change: Called when `fault` has changed.
    """

    def __init__(
        self, check: Callable[[], Awaitable[object]], reads: Callable[[], bool] = lambda: True
    ) -> None:
        """Trust a server until it misses a call.

        Args:
            check: Asks it for something small.
            reads: Whether its messages are read at the moment; while they are not, nothing can be told.
        """
        self._reads = reads
        self.fault = ""
        self.on_change: Callable[[], None] = _nothing
        self._check = check
        self._circuit = CLOSED
        self._moved: anyio.Event | None = None

    @property
    def waited(self) -> float:
        """Seconds that the overdue call had waited; 0 once something was heard."""
        return self._circuit.waited

    def missed(self, waited: float) -> None:
        """Take note that a call got no answer in `waited` seconds."""
        self._move(self._circuit.missed(anyio.current_time(), waited))

    def given_up(self, waited: float) -> None:
        """Take note that the client of a call cancelled it after `waited` seconds."""
        if waited >= GIVEN_UP_AFTER:
            self.missed(waited)

    def heard(self) -> None:
        """Take note that the server sent something."""
        if self._circuit is not CLOSED:
            self._move(self._circuit.heard())

    async def lost(self) -> str:
        """Check whenever a call was missed; returns once the session is to be given up, with the reason."""
        while self._circuit.state != "lost":
            if self._circuit.state == "closed":
                await self._changed()
            await self._settle(self._circuit)
        return self.fault

    async def _settle(self, begun: Circuit) -> None:
        """Follow one health check to its end."""
        async with anyio.create_task_group() as group:
            group.start_soon(self._ask)
            while (now := self._circuit).due < float("inf") and now.asked_at == begun.asked_at:
                await self._changed(now.due)
                if self._circuit is now:
                    await self._changed(anyio.current_time() + READ_ON)
                self._move(self._circuit.at(anyio.current_time()) if self._reads() else CLOSED)
            group.cancel_scope.cancel()

    async def _ask(self) -> None:
        try:
            await self._check()
        except UpstreamUnavailableError:
            # The connection has ended or broke off, which is found out and told elsewhere.
            return
        except UpstreamProtocolError:
            pass
        self.heard()

    async def _changed(self, until: float = float("inf")) -> None:
        """Wait for the circuit to change, until a time of the event loop at most."""
        before = self._circuit
        with anyio.move_on_after(until - anyio.current_time()):
            while self._circuit is before:
                self._moved = anyio.Event()
                await self._moved.wait()

    def _move(self, circuit: Circuit) -> None:
        if circuit == self._circuit:
            return
        self._circuit = circuit
        if self._moved is not None:
            self._moved.set()
        if circuit.reason != self.fault:
            self.fault = circuit.reason
            self.on_change()


def _nothing() -> None:
    return None
