"""`MountState`: the status of one mounted server, its listeners, and calls that wait for its start."""

from __future__ import annotations

from collections.abc import Callable

import anyio

from mcp_toolset.errors import UpstreamUnavailableError
from mcp_toolset.tools.core.source import SourceState
from mcp_toolset.upstream.target import Link


class MountState:
    """The state of one mounted server: its owner sets it, calls look at it.

    Attributes:
        now: The state.
        reason: Why it is in this state, cleared of secrets.
        retry_in: Seconds until the next attempt, if one is waited for.
    """

    def __init__(self, link: Link) -> None:
        """A server that is not open."""
        self.now: SourceState = "closed"
        self.reason = ""
        self.retry_in: float | None = None
        self._link = link
        self._listeners: dict[object, Callable[[], None]] = {}

    def set(self, now: SourceState, reason: str, retry_in: float | None = None) -> None:
        """Enter a state, and tell who listens."""
        self.now, self.reason, self.retry_in = now, self._link.scrubbed(reason), retry_in
        self.changed()

    def on_change(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` when the state, or what is listed, has changed; returns what ends that."""
        key = object()
        self._listeners[key] = callback
        return lambda: self._listeners.pop(key, None) and None

    def changed(self) -> None:
        """Tell who listens that something has changed."""
        for callback in list(self._listeners.values()):
            callback()

    async def arrived(self, within: float) -> None:
        """Wait for the first attempt to succeed or fail, for at most `within` seconds."""
        arrived = anyio.Event()

        def changed() -> None:
            if self.now != "starting":
                arrived.set()

        stop = self.on_change(changed)
        try:
            with anyio.move_on_after(within):
                await arrived.wait()
        finally:
            stop()

    def require_ready(self) -> None:
        """Refuse a request while the server is not ready.

        Raises:
            UpstreamUnavailableError: it is not ready; the message says why, and when it is tried again.
        """
        if self.now == "ready":
            return
        reason = f"the server is {self.now}" + (f": {self.reason}" if self.reason else "")
        again = f"; next attempt within {self.retry_in:g} s" if self.retry_in else ""
        raise UpstreamUnavailableError(self._link.name, reason + again)
