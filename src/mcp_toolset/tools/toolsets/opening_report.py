"""`OpeningReport`: what a program prints on a terminal while it waits for mounted servers to start."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final

import anyio

from mcp_toolset.tools.core.source import ToolSource
from mcp_toolset.tools.text.hidden_text import visible

QUIET: Final = 1.0
"""Seconds of waiting before the first line; most servers are ready earlier."""


class OpeningReport:
    """Lines on stderr: the servers that are waited for, then the outcome of each.

    Nothing is written unless stderr is a terminal and the waiting takes longer than `QUIET` seconds.
    """

    def __init__(self, sources: Sequence[ToolSource]) -> None:
        """Watch `sources`; without sources, nothing is written."""
        self._all = len(sources)
        self._waiting = list(sources)
        self._speaks = False
        self._done = anyio.Event()
        if not sources:
            self._done.set()

    async def run(self) -> None:
        """Write the first line after a while, unless every source has answered or failed."""
        with anyio.move_on_after(QUIET):
            await self._done.wait()
            return
        self._speaks = sys.stderr.isatty()
        self._say(f"waiting for {self._names()} {self._count()} …")

    def settled(self, source: ToolSource) -> None:
        """Note that a first attempt has succeeded or failed."""
        if source not in self._waiting:
            return
        self._waiting.remove(source)
        status = source.status
        outcome = f"{status.tools} tools" if status.state == "ready" else status.reason
        self._say(f"{source.source_name}: {status.state} ({outcome}) {self._count()}")
        if not self._waiting:
            self._done.set()

    def ended(self) -> None:
        """Write which servers are no longer waited for."""
        if self._waiting:
            self._say(f"going on without {self._names()}: still starting")

    def _names(self) -> str:
        return ", ".join(source.source_name for source in self._waiting)

    def _count(self) -> str:
        return f"({self._all - len(self._waiting)} of {self._all} servers settled)"

    def _say(self, line: str) -> None:
        if self._speaks:
            sys.stderr.write(f"mcp-toolset: {visible(line)}\n")
            sys.stderr.flush()
