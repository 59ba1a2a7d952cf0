"""`MontySandbox`: snippets in processes of Monty, a Python interpreter without files and network.

No process is started before the first run. The processes are kept and shared by runs. Each run has a session
with its own globals: when a run has ended, its session is ended and the next is opened in a task of the
sandbox, so that no caller waits for either. A process whose run is cancelled, hangs or crashes is killed, and
another one takes its place.

Only texts leave the sandbox. An object of a snippet may be small there and endless outside: a tuple of which
each part is shared many times over takes forever to hash, as the key of a dictionary, in the server itself.
"""

from __future__ import annotations

import io
import json
import struct
import sys
import tokenize
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import field
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, Literal, cast

import anyio

from mcp_toolset._records import dataclass
from mcp_toolset.concurrency.backoff import Turn
from mcp_toolset.concurrency.tasks import TaskSet
from mcp_toolset.errors import DefinitionError
from mcp_toolset.extensions.code.sandbox import (
    CallAnswer,
    Called,
    CodeLimits,
    Ended,
    FaultKind,
    Paused,
    Program,
    SandboxFault,
)
from mcp_toolset.protocol.json_rpc import json_of
from mcp_toolset.tools.python_stub import Functions
from mcp_toolset.tools.result import encodable

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

CALL: Final = "_call"  # the function of the server that the functions of the tools call, with two texts
_LAST: Final = f'\n{CALL}("", f"{{_text(_value)}}")\n'
_STORED: Final = "_value = ("
PRELUDE: Final = f"""\
import json as _json
_value = None
def _plain(value):
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if value - value == 0 else None
    if isinstance(value, dict):
        return {{key if isinstance(key, str) else str(key): _plain(each) for key, each in value.items()}}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(each) for each in value]
    try:
        return value.isoformat()
    except AttributeError:
        return repr(value)
def _text(value):
    try:
        return _json.dumps(_plain(value), ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        return _json.dumps("<" + type(value).__name__ + " without a JSON form>")
async def _made(name, arguments):
    return _json.loads(await {CALL}(f"{{name}}", f"{{_json.dumps(arguments)}}"))
def _unclear(name, names):
    raise NameError(f"several tools would be {{name!r}}: use {{names}}")
"""
"""Code that is run by itself before every snippet and its functions."""

_STATEMENTS: Final = frozenset(
    "assert async break case class continue def del elif else except finally for from global if import match "
    "nonlocal pass raise return try type while with @".split()
)
_OPENED, _CLOSED = frozenset("([{"), frozenset(")]}")
_NO_CODE: Final = frozenset(
    {tokenize.COMMENT, tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
)


@dataclass(frozen=True, slots=True)
class Source:
    """A snippet between other lines; it ends at byte `end`, and `lines` are before it."""

    text: str
    end: int
    lines: int


def source_of(code: str, functions: Functions) -> Source:
    before = _functions(functions)
    kept = before + keeping_value(encodable(code))
    return Source(kept + _LAST, len(kept.encode()), before.count("\n"))


def _functions(functions: Functions) -> str:
    made = [
        f"async def {name}(**arguments):\n    return await _made({json.dumps(name)}, arguments)"
        for name in functions.tools
    ]
    unclear = [
        f"def {name}(**arguments):\n    _unclear({json.dumps(name)}, {json.dumps(_others(functions, name))})"
        for name in functions.ambiguous
    ]
    return "\n".join([*made, *unclear, ""])


def _others(functions: Functions, name: str) -> str:
    return " or ".join(f"{one} ({tool})" for one, tool in functions.ambiguous[name].items())


def keeping_value(code: str) -> str:
    """The snippet, which keeps the value of its last line, an expression or `return`; no line moves.

    It is split into tokens and not parsed: a parser of this process could be driven to its limits.
    """
    try:
        last = _last_expression(list(tokenize.generate_tokens(io.StringIO(code).readline)))
    # What cannot be split into tokens, the sandbox refuses with a better message.
    except (tokenize.TokenError, SyntaxError, ValueError):
        return code
    if not last:
        return code
    lines = code.splitlines(keepends=True)
    (row, column), (end_row, end_column) = last[0].start, last[-1].end
    lines[end_row - 1] = f"{lines[end_row - 1][:end_column]}){lines[end_row - 1][end_column:]}"
    rest = lines[row - 1][column:]
    rest = rest.removeprefix("return") if last[0].string == "return" else rest
    lines[row - 1] = f"{lines[row - 1][:column]}{_STORED}{rest}"
    return "".join(lines)


def without_marks(line: str) -> str:
    """A line of a snippet as it was before `keeping_value`."""
    before, mark, after = line.partition(_STORED)
    return before + after.rstrip().removesuffix(")") if mark else line


def _last_expression(tokens: Sequence[tokenize.TokenInfo]) -> Sequence[tokenize.TokenInfo]:
    """The tokens of the last statement, if it stands by itself and is an expression."""
    last: Sequence[tokenize.TokenInfo] = ()
    for level, statement in _statements(tokens):
        last = statement if level == 0 else ()
    if not last or last[0].string in _STATEMENTS and not (last[0].string == "return" and len(last) > 1):
        return ()
    depth = 0
    for token in last:
        depth += (token.string in _OPENED) - (token.string in _CLOSED) if token.type == tokenize.OP else 0
        is_assigning = token.string.endswith("=") and token.string not in {"==", "!=", "<=", ">="}
        if depth == 0 and token.type == tokenize.OP and is_assigning:
            return ()
        if depth == 0 and token.string == ":" and last[0].string != "lambda":
            return ()
    return last


def _statements(tokens: Sequence[tokenize.TokenInfo]) -> Iterator[tuple[int, Sequence[tokenize.TokenInfo]]]:
    level = depth = 0
    found: list[tokenize.TokenInfo] = []
    for token in tokens:
        level += (token.type == tokenize.INDENT) - (token.type == tokenize.DEDENT)
        if token.type == tokenize.OP:
            depth += (token.string in _OPENED) - (token.string in _CLOSED)
        ends = token.type == tokenize.NEWLINE or (depth == 0 and token.string == ";")
        if ends and found:
            yield level, found
            found = []
        elif not ends and token.type not in _NO_CODE:
            found.append(token)
    if found:
        yield level, found


_RECURSION: Final = 200


class MontySessions:
    """Sessions of one open pool."""

    def __init__(self, pool: AsyncMonty) -> None:
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
        from pydantic_monty import MontyError

        limits: Any = {
            "max_feed_duration_secs": mode.max_compute_seconds,
            "max_memory": mode.max_memory_mb * 1_000_000,
            "max_recursion_depth": _RECURSION,
            "max_suspensions": mode.max_stops,
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
    """End a session, if its process lives."""
    from pydantic_monty import MontyError

    with suppress(MontyError):
        await session.__aexit__(None, None, None)


MAX_ARGUMENTS: Final = 1_000_000  # bytes of JSON of the arguments of one call
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
    ("max_compute_seconds", "time limit exceeded"),
    ("max_memory_mb", "memory limit"),
    ("max_stops", "suspension limit"),
)


class MontySandbox:
    """A pool of Monty's processes, which starts with the first run."""

    def __init__(self, workers: int) -> None:
        if find_spec("pydantic_monty") is None:
            raise DefinitionError(
                "code mode needs a sandbox, which is not installed: pip install 'mcp-toolset[code]', "
                "or give another one as CodeMode(sandbox=…)"
            )
        self._workers = workers
        self._pool: AsyncMonty | None = None
        self._sessions: MontySessions | None = None
        self._starting = anyio.Lock()

    @asynccontextmanager
    async def running(self, program: Program) -> AsyncGenerator[MontyExecution]:
        sessions = self._sessions or await self._started()
        async with sessions.opened(program.mode, restores=program.state is not None) as session:
            yield MontyExecution(session, program)

    async def close(self) -> None:
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
        turn, settled = Turn(), dict[int, Any]()
        for call, answer in answers.items():
            settled[call] = _settled(answer)
            await turn.pause()
        return await self._snapshot.resume(settled)

    async def _paused(self, snapshot: AsyncSnapshot) -> Paused | Ended:
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
        from pydantic_monty import AsyncFutureSnapshot

        if self._snapshot is None and self.program.state is not None:
            return self.program.state
        assert isinstance(self._snapshot, AsyncFutureSnapshot)
        source = self._source
        return _POSITIONS.pack(source.end, source.lines) + self._snapshot.dump()

    def _print(self, stream: str, text: str) -> None:
        room = self.program.mode.max_printed - len(self.printed)
        self.printed += text[:room]
        if len(text) > room:
            self._flooded = True
            raise RuntimeError("too much was printed")

    def _fault(self, fault: MontyError) -> SandboxFault:
        from pydantic_monty import MontyCrashedError, MontyRuntimeError, MontySyntaxError

        text = str(fault)
        if self._flooded:
            return SandboxFault("max_printed", text)
        if isinstance(fault, MontyCrashedError):
            kind: FaultKind = "max_compute_seconds" if fault.timed_out or "duration" in text else "died"
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
