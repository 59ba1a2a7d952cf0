"""`MontySessions`: the sessions of Monty's processes, each for one run, of which the next is kept ready.

A session has its own globals and serves one run only. When a run has ended, its session is ended and the next
is opened in a task of the sandbox, so that no caller waits for either. What is ready has seen nothing but the
prelude, which is the same for every run.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import anyio

from mcp_toolset.concurrency.task_set import TaskSet
from mcp_toolset.extensions.code.limits import CodeLimits
from mcp_toolset.extensions.code.sandbox import SandboxFault
from mcp_toolset.extensions.code.snippet import PRELUDE

if TYPE_CHECKING:
    from pydantic_monty import AsyncMonty, AsyncMontySession

_RECURSION: Final = 200


class MontySessions:
    """The sessions of one pool."""

    def __init__(self, pool: AsyncMonty) -> None:
        """Open sessions of `pool`, which is open."""
        self._pool = pool
        self._tasks = TaskSet(lambda: None)
        self._ready: tuple[CodeLimits, AsyncMontySession] | None = None
        self._preparing: anyio.Event | None = None
        self._waiting = 0
        self._closed = False

    @asynccontextmanager
    async def opened(self, mode: CodeLimits, *, restores: bool) -> AsyncGenerator[AsyncMontySession]:
        """A session of one run; one that restores a dump is given no prelude."""
        session = await self._taken(mode, restores)
        try:
            yield session
        except BaseException:
            # At once: the process of a run that is cancelled may hang, and is killed here.
            try:
                await session.__aexit__(*sys.exc_info())
            finally:
                self._begin(mode)
            raise
        if self._closed:
            await _ended(session)
        self._begin(mode, session)

    async def close(self) -> None:
        """End the session that is ready, and wait for those that are ending."""
        self._closed = True
        await self._tasks.done()
        ready, self._ready = self._ready, None
        if ready is not None:
            await _ended(ready[1])

    async def _taken(self, mode: CodeLimits, restores: bool) -> AsyncMontySession:
        """The session that is ready, else a new one."""
        if self._preparing is not None:
            await self._preparing.wait()
        ready, self._ready = self._ready, None
        if ready is not None and not restores and ready[0] is mode:
            return ready[1]
        # From here on no session is prepared, which could take the last process and leave this run without.
        self._waiting += 1
        try:
            if ready is not None:
                await _ended(ready[1])
            return await self._made(mode, "" if restores else PRELUDE)
        finally:
            self._waiting -= 1

    def _begin(self, mode: CodeLimits, ended: AsyncMontySession | None = None) -> None:
        """End a session and prepare the next, in a task."""
        if self._closed:
            return
        prepared = None
        if self._preparing is None and self._ready is None:
            prepared = self._preparing = anyio.Event()
        self._tasks.begin(partial(self._next, mode, ended, prepared))

    async def _next(
        self, mode: CodeLimits, ended: AsyncMontySession | None, prepared: anyio.Event | None
    ) -> None:
        try:
            if ended is not None:
                await _ended(ended)
            if prepared is not None and not self._waiting and not self._closed:
                self._ready = mode, await self._made(mode, PRELUDE)
        # The next run opens its session itself, and tells what is wrong.
        except SandboxFault:
            pass
        finally:
            if prepared is not None:
                self._preparing = None
                prepared.set()

    async def _made(self, mode: CodeLimits, prelude: str, *, again: bool = True) -> AsyncMontySession:
        """A session, with what every snippet finds."""
        from pydantic_monty import MontyError

        limits: Any = {
            "max_feed_duration_secs": mode.seconds,
            "max_memory": mode.memory_mb * 1_000_000,
            "max_recursion_depth": _RECURSION,
            "max_suspensions": mode.suspensions,
        }
        try:
            async with AsyncExitStack() as stack:
                checkout = self._pool.checkout(limits=limits, os_policy={"sleep": "zero"})
                session = await stack.enter_async_context(checkout)
                if prelude:
                    await session.feed_start(prelude)
                stack.pop_all()
                return session
        except MontyError as fault:
            # A process that has died since its last run is found out here, and has been replaced now.
            if again:
                return await self._made(mode, prelude, again=False)
            raise SandboxFault("died", f"the sandbox does not start: {fault}") from None


async def _ended(session: AsyncMontySession) -> None:
    """End a session; that of a process that has died has ended already."""
    from pydantic_monty import MontyError

    with suppress(MontyError):
        await session.__aexit__(None, None, None)
