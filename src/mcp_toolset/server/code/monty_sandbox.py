"""`MontySandbox`: snippets in processes of Monty, a Python interpreter without files and network.

No process is started before the first run. The processes are kept and shared by runs; each run has a session
of its own. A process whose run is cancelled, hangs or crashes is killed, and another one takes its place.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, Literal

import anyio

from mcp_toolset.calls.code.plain_value import plain_value
from mcp_toolset.calls.code.sandbox import (
    Answer,
    Called,
    Ended,
    FaultKind,
    Paused,
    Program,
    SandboxFault,
)
from mcp_toolset.errors import DefinitionError

if TYPE_CHECKING:
    from pydantic_monty import AsyncMonty, AsyncMontySession, AsyncSnapshot, MontyError

MAX_ARGUMENTS: Final = 1_000_000
"""Bytes of JSON of the arguments of one call."""

_CLOSING: Final = 5.0
_RECURSION: Final = 200
_RECYCLED_AFTER: Final = 500
_GRACE: Final = 1.0
_LATER: Final[Any] = {"future": ...}
_MARKS: Final[tuple[tuple[FaultKind, str], ...]] = (
    ("seconds", "time limit exceeded"),
    ("memory_mb", "memory limit"),
    ("suspensions", "suspension limit"),
)


def require_monty() -> None:
    """Check that the extra is installed.

    Raises:
        DefinitionError: it is not.
    """
    if find_spec("pydantic_monty") is None:
        raise DefinitionError(
            "code mode needs a sandbox, which is not installed: pip install 'mcp-toolset[code]', "
            "or give another one as CodeMode(sandbox=…)"
        )


class MontySandbox:
    """A pool of Monty's processes, which starts with the first run."""

    def __init__(self, workers: int) -> None:
        """Run at most so many snippets at once.

        Raises:
            DefinitionError: the extra `code` is not installed.
        """
        require_monty()
        self._workers = workers
        self._pool: AsyncMonty | None = None
        self._starting = anyio.Lock()

    @asynccontextmanager
    async def running(self, program: Program) -> AsyncGenerator[MontyExecution]:
        """A run in a session of its own; see `Sandbox`."""
        pool = await self._started()
        mode = program.mode
        limits: Any = {
            "max_feed_duration_secs": mode.seconds,
            "max_memory": mode.memory_mb * 1_000_000,
            "max_recursion_depth": _RECURSION,
            "max_suspensions": mode.suspensions,
        }
        async with pool.checkout(limits=limits, os_policy={"sleep": "zero"}) as session:
            yield MontyExecution(session, program)

    async def close(self) -> None:
        """End every process; a later run starts some again."""
        pool, self._pool = self._pool, None
        if pool is not None:
            with anyio.move_on_after(_CLOSING, shield=True):
                await pool.__aexit__(None, None, None)

    async def _started(self) -> AsyncMonty:
        async with self._starting:
            if self._pool is None:
                from pydantic_monty import AsyncMonty

                pool = AsyncMonty(
                    max_processes=self._workers,
                    max_checkouts_per_worker=_RECYCLED_AFTER,
                    feed_duration_limit_grace=_GRACE,
                )
                await pool.__aenter__()
                self._pool = pool
            return self._pool


@dataclass(slots=True)
class MontyExecution:
    """One run in one session."""

    session: AsyncMontySession
    program: Program
    printed: str = field(default="", init=False)
    _snapshot: AsyncSnapshot | None = field(default=None, init=False)
    _flooded: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self.printed = self.program.printed

    async def step(self, answers: Mapping[int, Answer]) -> Paused | Ended:
        """Begin, or go on with answers; see `Execution`."""
        from pydantic_monty import MontyError

        try:
            return await self._stepped(answers)
        except MontyError as fault:
            raise self._fault(fault) from None
        # Monty raises these for values that cannot leave its process, such as an integer of 5,000 digits.
        except (ValueError, TypeError, OverflowError) as fault:
            raise SandboxFault("failed", f"{type(fault).__name__}: {fault}") from None

    async def _stepped(self, answers: Mapping[int, Answer]) -> Paused | Ended:
        from pydantic_monty import AsyncFunctionSnapshot, AsyncNameLookupSnapshot, MontyComplete

        snapshot = await self._resumed(answers)
        fresh: list[Called] = []
        while True:
            self._snapshot = snapshot
            if isinstance(snapshot, MontyComplete):
                return Ended(snapshot.output)
            if isinstance(snapshot, AsyncNameLookupSnapshot):
                known = snapshot.object_id is None and snapshot.variable_name in self.program.functions.tools
                name = snapshot.variable_name
                snapshot = await (snapshot.resume(value=_function(name)) if known else snapshot.resume())
            elif not isinstance(snapshot, AsyncFunctionSnapshot):
                return Paused(tuple(fresh), tuple(snapshot.pending_call_ids))
            elif snapshot.is_os_function:
                snapshot = await snapshot.resume_not_handled()
            elif refusal := self._refusal(snapshot.function_name, snapshot.args):
                snapshot = await snapshot.resume({"exc_type": refusal[0], "message": refusal[1]})
            else:
                arguments, is_whole = plain_value(snapshot.kwargs, MAX_ARGUMENTS)
                if not is_whole:
                    told = f"the arguments of {snapshot.function_name} have more than {MAX_ARGUMENTS} bytes"
                    snapshot = await snapshot.resume({"exc_type": "ValueError", "message": told})
                    continue
                fresh.append(Called(snapshot.call_id, snapshot.function_name, arguments))
                snapshot = await snapshot.resume(_LATER)

    async def _resumed(self, answers: Mapping[int, Answer]) -> AsyncSnapshot:
        from pydantic_monty import AsyncFutureSnapshot

        if self._snapshot is None and self.program.state is None:
            return await self.session.feed_start(self.program.code, print_callback=self._print)
        if self._snapshot is None:
            assert self.program.state is not None
            self._snapshot = await self.session.load_snapshot(self.program.state, print_callback=self._print)
        assert isinstance(self._snapshot, AsyncFutureSnapshot)
        return await self._snapshot.resume({call: _settled(answer) for call, answer in answers.items()})

    def _refusal(
        self, name: str, args: tuple[Any, ...]
    ) -> tuple[Literal["NameError", "TypeError"], str] | None:
        functions = self.program.functions
        if name in functions.ambiguous:
            names = " or ".join(f"{one} ({tool})" for one, tool in functions.ambiguous[name].items())
            return "NameError", f"several tools would be {name!r}: use {names}"
        if name not in functions.tools:
            return "NameError", f"name {name!r} is not defined"
        if args:
            return "TypeError", f"{name}() takes keyword arguments only: {name}(name=value)"
        return None

    def dump(self) -> bytes:
        """The paused run; see `Execution`."""
        from pydantic_monty import AsyncFutureSnapshot

        if self._snapshot is None and self.program.state is not None:
            return self.program.state
        assert isinstance(self._snapshot, AsyncFutureSnapshot)
        return self._snapshot.dump()

    def _print(self, stream: str, text: str) -> None:
        room = self.program.mode.printed - len(self.printed)
        self.printed += text[:room]
        if len(text) > room:
            self._flooded = True
            raise RuntimeError("too much was printed")

    def _fault(self, fault: MontyError) -> SandboxFault:
        from pydantic_monty import MontyCrashedError, MontyRuntimeError, MontySyntaxError

        text = str(fault)
        if self._flooded:
            return SandboxFault("printed", text)
        if isinstance(fault, MontyCrashedError):
            kind: FaultKind = "seconds" if fault.timed_out or "duration" in text else "died"
            return SandboxFault(kind, "the process of the sandbox died; run the code again")
        if isinstance(fault, MontyRuntimeError | MontySyntaxError):
            text = fault.display()
        own = isinstance(fault.exception(), TimeoutError | MemoryError | RuntimeError)
        found: list[FaultKind] = [kind for kind, mark in _MARKS if own and mark in text]
        return SandboxFault(found[0] if found else "failed", text)


def _settled(answer: Answer) -> Any:
    if answer.error is None:
        return {"return_value": answer.value}
    return {"exc_type": "RuntimeError", "message": answer.error}


def _function(name: str) -> Callable[[], None]:
    """A stand-in for a function of the snippet: Monty passes its name on, and never calls it."""

    def stand_in() -> None:
        return None

    stand_in.__name__ = name
    return stand_in
