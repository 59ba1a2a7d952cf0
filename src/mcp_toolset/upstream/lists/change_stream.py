"""`ChangeStream`: the stream on which a server of 2026-07-28 tells of changed lists (`subscriptions/listen`).

It is asked for before the lists are: what changes after the server has acknowledged it is told, so no
change falls between a list and the stream. Where the acknowledgement is late, or comes after a gap, the
lists are asked for again.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from itertools import count
from typing import Any, Final

import anyio

from mcp_toolset.concurrency.backoff import Backoff
from mcp_toolset.errors import UpstreamError, UpstreamProtocolError
from mcp_toolset.tools.text.hidden_text import in_log
from mcp_toolset.upstream.lists.resource_watches import ACKNOWLEDGED, subscription_in

ACKNOWLEDGING: Final = 1.0
"""Seconds for which the first list waits until the server has acknowledged the stream."""


class ChangeStream:
    """The stream of one mounted server, opened anew whenever it ends."""

    def __init__(
        self,
        name: str,
        *,
        request: Callable[..., Awaitable[dict[str, Any]]],
        outdated: Callable[[], None],
        refused: Callable[[], None],
    ) -> None:
        """Nothing is asked for before `hold`.

        Args:
            name: The name of the mount.
            request: Sends a request of our own.
            outdated: To be called when a change may have been missed.
            refused: To be called when the server has no such stream.
        """
        self._request = request
        self._outdated = outdated
        self._refused = refused
        self._numbers = count(1)
        self._id = ""
        self._settled = anyio.Event()
        self._late = False
        self._log = logging.getLogger(f"mcp_toolset.upstream.{name}")

    def begin(self) -> None:
        """Belong to a new connection."""
        self._settled, self._late = anyio.Event(), False

    async def settled(self, seconds: float) -> None:
        """Wait until the server has acknowledged or refused the stream; lists that come sooner may be old."""
        with anyio.move_on_after(seconds):
            await self._settled.wait()
        self._late = not self._settled.is_set()

    def heard(self, method: str, params: Mapping[str, Any] | None) -> bool:
        """Take in a notification; `False` if it does not acknowledge this stream."""
        if method != ACKNOWLEDGED or subscription_in(params) != self._id:
            return False
        self._settled.set()
        if self._late:
            self._late = False
            self._outdated()
        return True

    async def hold(self, wanted: Mapping[str, bool], lost: Callable[[], bool]) -> None:
        """Hold the stream open until the connection is lost; after a gap the lists are asked for again."""
        backoff = Backoff()
        while True:
            began = anyio.current_time()
            self._id = f"changes-{next(self._numbers)}"
            try:
                params = {"notifications": dict(wanted)}
                await self._request("subscriptions/listen", params, opts={"request_id": self._id})
            except UpstreamProtocolError as fault:
                self._log.debug("no change notifications: %s", in_log(fault))
                return self._refused()
            except UpstreamError:
                if lost():
                    return
            finally:
                self._settled.set()
            await anyio.sleep(backoff.after(anyio.current_time() - began))
            self._late = True
            self._outdated()
