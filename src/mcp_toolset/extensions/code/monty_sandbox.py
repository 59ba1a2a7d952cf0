"""`MontySandbox`: snippets in processes of Monty, a Python interpreter without files and network.

No process is started before the first run. The processes are kept and shared by runs; each run has a session
of its own. A process whose run is cancelled, hangs or crashes is killed, and another one takes its place.
"""

from __future__ import annotations

import json
import struct
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import field
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, Literal, cast

import anyio

from mcp_toolset._records import dataclass
from mcp_toolset.errors import DefinitionError
from mcp_toolset.extensions.code.monty_sessions import MontySessions
from mcp_toolset.extensions.code.sandbox import (
    CallAnswer,
    Called,
    Ended,
    FaultKind,
    Paused,
    Program,
    SandboxFault,
)
from mcp_toolset.extensions.code.snippet import CALL, Source, source_of, without_marks
from mcp_toolset.protocol.codec import json_of

if TYPE_CHECKING:
    from pydantic_monty import (
        AsyncFunctionSnapshot,
        AsyncMonty,
        AsyncMontySession,
        AsyncSnapshot,
        MontyError,
        MontyRuntimeError,
        MontySyntaxError,
    )

MAX_ARGUMENTS: Final = 1_000_000
"""Bytes of JSON of the arguments of one call."""

_PRELUDE_FILE: Final = "<python-input-0>"
_FILE: Final = "<python-input-1>"
_POSITIONS: Final = struct.Struct(">II")
_CLOSING: Final = 5.0
_LETTING_GO: Final = 0.05
"""Seconds for Monty's threads to let go of objects of Python: a process that ends meanwhile is aborted."""

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
        require_monty()
        self._workers = workers
        self._pool: AsyncMonty | None = None
        self._sessions: MontySessions | None = None
        self._starting = anyio.Lock()

    @asynccontextmanager
    async def running(self, program: Program) -> AsyncGenerator[MontyExecution]:
        """A run in a session of its own; see `Sandbox`."""
        sessions = self._sessions or await self._started()
        async with sessions.opened(program.mode, restores=program.state is not None) as session:
            yield MontyExecution(session, program)

    async def close(self) -> None:
        """End every process; a later run starts some again."""
        pool, self._pool = self._pool, None
        sessions, self._sessions = self._sessions, None
        if pool is not None and sessions is not None:
            with anyio.move_on_after(_CLOSING / 2, shield=True):
                await sessions.close()
            with anyio.move_on_after(_CLOSING / 2, shield=True):
                await pool.__aexit__(None, None, None)
                await anyio.sleep(_LETTING_GO)

    async def _started(self) -> MontySessions:
        async with self._starting:
            if self._sessions is None:
                from pydantic_monty import AsyncMonty

                pool = AsyncMonty(
                    max_processes=self._workers,
                    max_checkouts_per_worker=_RECYCLED_AFTER,
                    feed_duration_limit_grace=_GRACE,
                )
                await pool.__aenter__()
                self._pool, self._sessions = pool, MontySessions(pool)
            return self._sessions


@dataclass(slots=True)
class MontyExecution:
    """One run in one session."""

    session: AsyncMontySession
    program: Program
    printed: str = field(default="", init=False)
    _source: Source = field(init=False)
    _snapshot: AsyncSnapshot | None = field(default=None, init=False)
    _flooded: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self.printed = self.program.printed
        if self.program.state is None:
            self._source = source_of(self.program.code, self.program.functions)
        else:
            self._source = Source("", *_POSITIONS.unpack_from(self.program.state))

    async def step(self, answers: Mapping[int, CallAnswer]) -> Paused | Ended:
        """Begin, or go on with answers; see `Execution`."""
        from pydantic_monty import MontyError

        try:
            return await self._paused(await self._resumed(answers))
        except MontyError as fault:
            raise self._fault(fault) from None

    async def _resumed(self, answers: Mapping[int, CallAnswer]) -> AsyncSnapshot:
        from pydantic_monty import AsyncFutureSnapshot

        program, session = self.program, self.session
        if self._snapshot is None and program.state is None:
            return await session.feed_start(self._source.text, print_callback=self._print)
        if self._snapshot is None:
            assert program.state is not None
            state = program.state[_POSITIONS.size :]
            self._snapshot = await session.load_snapshot(state, print_callback=self._print)
        assert isinstance(self._snapshot, AsyncFutureSnapshot)
        return await self._snapshot.resume({call: _settled(answer) for call, answer in answers.items()})

    async def _paused(self, snapshot: AsyncSnapshot) -> Paused | Ended:
        """Run to the next pause, or to the end."""
        from pydantic_monty import AsyncFunctionSnapshot, AsyncNameLookupSnapshot, MontyComplete

        fresh: list[Called] = []
        while not isinstance(snapshot, MontyComplete):
            if isinstance(snapshot, AsyncNameLookupSnapshot):
                snapshot = await snapshot.resume()
            elif not isinstance(snapshot, AsyncFunctionSnapshot):
                self._snapshot = snapshot
                return Paused(tuple(fresh), tuple(snapshot.pending_call_ids))
            elif snapshot.is_os_function:
                snapshot = await snapshot.resume_not_handled()
            # Nothing of a call from elsewhere is looked at: only our own lines are sure to give texts.
            elif (part := self._part(snapshot)) is None:
                told = f"name {snapshot.function_name!r} is not defined"
                snapshot = await snapshot.resume({"exc_type": "NameError", "message": told})
            elif part == "value":
                return Ended(snapshot.args[1])
            elif (called := _called(snapshot.call_id, snapshot.args, self.program)) is not None:
                fresh.append(called)
                snapshot = await snapshot.resume(_LATER)
            else:
                told = f"the arguments of a call have no JSON form of at most {MAX_ARGUMENTS} bytes"
                snapshot = await snapshot.resume({"exc_type": "ValueError", "message": told})
        # A `return` between other statements ends a snippet early, without a value.
        return Ended("null")

    def _part(self, snapshot: AsyncFunctionSnapshot) -> Literal["tool", "value"] | None:
        """Which of our own lines makes a call, if one does."""
        place = snapshot.position
        if snapshot.function_name != CALL:
            return None
        if place.filename == _PRELUDE_FILE:
            return "tool"
        return "value" if place.filename == _FILE and place.start > self._source.end else None

    def dump(self) -> bytes:
        """The paused run; see `Execution`."""
        from pydantic_monty import AsyncFutureSnapshot

        if self._snapshot is None and self.program.state is not None:
            return self.program.state
        assert isinstance(self._snapshot, AsyncFutureSnapshot)
        source = self._source
        return _POSITIONS.pack(source.end, source.lines) + self._snapshot.dump()

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
        own = isinstance(fault.exception(), TimeoutError | MemoryError | RuntimeError)
        found: list[FaultKind] = [kind for kind, mark in _MARKS if own and mark in text]
        if isinstance(fault, MontyRuntimeError | MontySyntaxError):
            text = self._traceback(fault)
        return SandboxFault(found[0] if found else "failed", text)

    def _traceback(self, fault: MontyRuntimeError | MontySyntaxError) -> str:
        """The lines of the snippet that lead to its exception."""
        lines = ["Traceback (most recent call last):"]
        before, after = self._source.lines, self._source.lines + self.program.code.count("\n") + 1
        for frame in fault.traceback():
            if frame.filename == _PRELUDE_FILE:
                continue
            if frame.filename != _FILE or before < frame.line <= after:
                number = frame.line - before if frame.filename == _FILE else frame.line
                lines.append(f'  File "code.py", line {number}, in {frame.function_name or "<module>"}')
                lines.append(f"    {without_marks(frame.source_line or '').strip()}")
        return "\n".join([*lines, fault.display("type-msg")])


def _called(id: int, args: tuple[Any, ...], program: Program) -> Called | None:
    """The call that one of our lines makes; `None` if there is no such tool, or no JSON in its arguments."""
    name, text = args
    if name not in program.functions.tools or len(text) > MAX_ARGUMENTS:
        return None
    try:
        arguments: object = json.loads(text, parse_constant=_refused)
    # Nested too deeply to be read, or not a number.
    except (RecursionError, ValueError):
        return None
    return Called(id, name, cast("dict[str, Any]", arguments)) if isinstance(arguments, dict) else None


def _refused(constant: str) -> None:
    raise ValueError(f"{constant} has no JSON form")


def _settled(answer: CallAnswer) -> Any:
    if answer.error is not None:
        return {"exc_type": "RuntimeError", "message": answer.error}
    try:
        return {"return_value": json_of(answer.value).decode()}
    # A text with half a character, which JSON of ASCII letters alone can carry.
    except ValueError:
        return {"return_value": json.dumps(answer.value)}
