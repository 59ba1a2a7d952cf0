"""`Dormancy`: when a mounted server is started, and when it is stopped because nothing uses it.

A server whose lists are known can be left alone until a call needs it (`lazy`), and any server can be stopped
once it was not used for a while. Its tools stay listed; the next call starts it again, and runs only if the
tool is still what was listed (docs/starting.md).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import anyio

from mcp_toolset._records import dataclass
from mcp_toolset.config import StartRule
from mcp_toolset.upstream.known_server import MountState
from mcp_toolset.upstream.resting import SETTLING

IDLE: Final = 300.0
"""Seconds without a request after which a lazy server is stopped, unless its mount says otherwise."""

_LOOKS: Final = 4
"""Looks in a row that find a server unused before it is stopped."""


@dataclass(frozen=True, slots=True)
class StartOptions:
    """What a mount says about the start of its server, and about its end.

    Attributes:
        rule: `lazy` starts it at its first call, `background` at once, `eager` too, and lists wait for it.
        idle_timeout: Seconds without a request after which it is stopped; by default `IDLE` if it is lazy.
    """

    rule: StartRule = "background"
    idle_timeout: float | None = None

    @property
    def stops_after(self) -> float | None:
        """Seconds without use after which it is stopped; `None` for never."""
        return IDLE if self.idle_timeout is None and self.rule == "lazy" else self.idle_timeout


DEFAULT: Final = StartOptions()


class Dormancy:
    """Whether one server is to run.

    Attributes:
        asleep: Whether it is stopped, and the next call starts it.
        resting: Whether its connection was ended for want of use, and is not begun again yet.
        stops: How often it was stopped because nothing used it.
    """

    def __init__(
        self,
        state: MountState,
        options: StartOptions,
        *,
        is_known: Callable[[], bool],
        in_use: Callable[[], bool],
    ) -> None:
        """Stop nothing yet.

        Args:
            state: How the server is doing.
            options: What the mount says.
            is_known: Whether its lists are known.
            in_use: Whether it works for a client at the moment, or keeps something for one.
        """
        self.asleep = self.resting = False
        self.stops = 0
        self._state = state
        self._options = options
        self._is_known = is_known
        self._in_use = in_use
        state.wake = self.wake
        self._wanted = self._settled = anyio.Event()
        self._started_at = float("-inf")
        self._was_called = self._has_changed = False

    @property
    def is_lazy(self) -> bool:
        """Whether it is started by calls alone."""
        return self._options.rule == "lazy"

    def settle(self, options: StartOptions) -> None:
        if options != self._options:
            self._options = options
            self._settled.set()

    def begin(self) -> None:
        """Have the server left alone at first, if calls start it and its lists are known."""
        if self.is_lazy and self._is_known():
            self._sleep("it is not started; a call starts it")
        else:
            self._state.set("starting", "connecting")

    def end(self) -> None:
        """Start it no more: the mount is closed."""
        self.asleep = self.resting = False

    def started(self) -> None:
        self._started_at, self._has_changed = anyio.current_time(), False

    def has_changed(self) -> None:
        """Its lists have changed; by a call, unless that is how it starts: another process would not know."""
        called = self._was_called or self._state.used
        if called and anyio.current_time() > self._started_at + SETTLING:
            self._has_changed = True

    def wake(self) -> None:
        """Have it started, as something needs it."""
        if self.asleep:
            self.asleep, self._was_called = False, True
            self._state.set("starting", "a call starts it")
            self._wanted.set()

    async def until_wanted(self) -> None:
        """Wait until something needs it; at once if it is not stopped."""
        if self.resting:
            await self._wanted.wait()
            self.resting = False

    async def until_unused(self) -> None:
        """Return once nothing has used it for long enough."""
        quiet = 0
        while quiet < _LOOKS:
            self._settled, self._state.used = anyio.Event(), False
            with anyio.move_on_after(self._until_look):
                await self._settled.wait()
                continue
            self._was_called |= self._state.used
            if self._state.used or self._has_changed or self._in_use():
                quiet = 0
            else:
                quiet += _LOOKS if self._only_listed else 1

    def sleep(self) -> None:
        """Count it as stopped from now on."""
        seconds = self._options.stops_after or 0
        reason = "it was only listed" if self._only_listed else f"nothing used it for {seconds:g} s"
        self.stops += 1
        self._sleep(f"{reason}; a call starts it")

    @property
    def _only_listed(self) -> bool:
        """Whether it is lazy and was started without a call, so that it need not stay."""
        return self.is_lazy and not self._was_called

    @property
    def _until_look(self) -> float | None:
        """Seconds until it is looked at next; `None` for never."""
        after = self._options.stops_after
        if after is None:
            return None
        return min(SETTLING, after) if self._only_listed else after / _LOOKS

    def _sleep(self, reason: str) -> None:
        self.asleep = self.resting = True
        self._was_called, self._wanted = False, anyio.Event()
        self._state.set("stopped", reason)
