"""`Health`: checks whether a session's server still answers, once a call was left without an answer.

A call that is answered costs nothing here. One that is not has the server asked for something that it
answers at once: `ping`, or `server/discover` in 2026-07-28. What follows is a circuit breaker (`Circuit`):

| state | calls | what it waits for |
|---|---|---|
| `closed` | go through | a call that gets no answer |
| `checking` | go through | the answer to a health check, for `TELL` seconds |
| `open` | fail at once | the same answer: it closes the circuit (half-open) |
| `lost` | fail at once | nothing more: the session is ended, and a new one decides |

A slow server answers the health check and stays. One that answers nothing is told within `TELL` seconds
after its first overdue call, which costs nothing should it recover, and is given `PATIENCE` before what
it holds in memory is given up.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, Literal

import anyio

from mcp_toolset._records import dataclass
from mcp_toolset.errors import UpstreamProtocolError, UpstreamUnavailableError

TELL: Final = 0.75  # seconds that a health check may take before calls fail at once
PATIENCE: Final = 5.0  # seconds that a health check may take before the session is given up

SILENCE: Final = 10.0
"""Seconds that the server must have been silent by then, counted from when the overdue call was sent."""

GIVEN_UP_AFTER: Final = 5.0
"""Seconds after which a call that its client cancels counts as one that got no answer."""

State = Literal["closed", "checking", "open", "lost"]


@dataclass(frozen=True, slots=True)
class Circuit:
    """What holds at a moment; each event gives another one. It knows no event loop: it is told the time."""

    state: State = "closed"  # one of the four in the table
    waited: float = 0.0  # seconds that the overdue call had waited
    asked_at: float = 0.0  # when the health check was sent

    @property
    def refuses(self) -> bool:
        return self.state in ("open", "lost")

    @property
    def due(self) -> float:
        """When `at` has something else to say, if nothing is heard; infinity for never."""
        if self.state == "checking":
            return self.asked_at + TELL
        if self.state == "open":
            return self.asked_at + max(PATIENCE, SILENCE - self.waited)
        return float("inf")

    def missed(self, now: float, waited: float) -> Circuit:
        """A call got no answer in `waited` seconds; from `closed` this begins a health check."""
        return Circuit("checking", waited, now) if self.state == "closed" else self

    def heard(self) -> Circuit:
        """The server sent something; what is lost stays so, as its session is ending."""
        return self if self.state == "lost" else CLOSED

    def at(self, now: float) -> Circuit:
        if now < self.due:
            return self
        later: State = "open" if self.state == "checking" else "lost"
        return Circuit(later, self.waited, self.asked_at).at(now)

    @property
    def reason(self) -> str:
        if not self.refuses:
            return ""
        if self.state == "open":
            checked, then = (TELL, "; calls go through once it answers; if it does not, it is given up")
        else:
            checked, then = max(PATIENCE, SILENCE - self.waited), ""
        return (
            f"it does not answer: a call got no answer within {self.waited:.3g} s, "
            f"nor did a health check within {checked:.3g} s{then}"
        )


CLOSED: Final = Circuit()


READ_ON: Final = 0.05  # seconds in which an answer is read that came while this process had no time to read


class Health:
    """The circuit of one session, and the health checks that move it."""

    def __init__(
        self, check: Callable[[], Awaitable[object]], reads: Callable[[], bool] = lambda: True
    ) -> None:
        self._reads = reads
        self.fault = ""  # why calls fail at once; empty while they go through
        self.on_change: Callable[[], None] = lambda: None  # called when `fault` has changed
        self._check = check
        self._circuit = CLOSED
        self._moved: anyio.Event | None = None

    @property
    def waited(self) -> float:
        return self._circuit.waited

    def missed(self, waited: float) -> None:
        self._move(self._circuit.missed(anyio.current_time(), waited))

    def given_up(self, waited: float) -> None:
        """Take note that the client of a call cancelled it after `waited` seconds."""
        if waited >= GIVEN_UP_AFTER:
            self.missed(waited)

    def heard(self) -> None:
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
