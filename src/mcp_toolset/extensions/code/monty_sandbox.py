"""`MontySandbox`: runs snippets in processes of Monty, a Python interpreter without files and network.

The first run starts the pool of processes, which all runs share. Each run has a session with its own globals.
A background task ends the session of a finished run and prepares the next session, so that no caller waits
for either. If a run is cancelled, hangs or crashes, its process is killed and replaced.

Only texts leave the sandbox, since an object of a snippet could stall the server: a small nested tuple whose
parts are shared many times takes forever to hash as the key of a dictionary.
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
from mcp_toolset.extensions.code import sandbox
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

CALL: Final = "_call"  # the server's function in the sandbox: it takes a tool's name and JSON arguments
_SEND_VALUE: Final = f'\n{CALL}("", f"{{_text(_value)}}")\n'
_STORE_VALUE: Final = "_value = ("
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
"""The code that is run in each session before the snippet."""

_STATEMENTS: Final = frozenset(
    "assert async break case class continue def del elif else except finally for from global if import match "
    "nonlocal pass raise return try type while with @".split()
)
_OPENING_BRACKETS, _CLOSING_BRACKETS = frozenset("([{"), frozenset(")]}")
_NO_CODE: Final = frozenset(
    {tokenize.COMMENT, tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
)


@dataclass(frozen=True, slots=True)
class Source:
    """A snippet with our code around it: it ends at byte `end`, after `lines` lines of ours."""

    text: str
    end: int
    lines: int


def source_of(code: str, functions: Functions) -> Source:
    """A snippet after the functions of its tools, and before a line that sends its value."""
    before = _functions(functions)
    kept = before + keeping_value(encodable(code))
    return Source(kept + _SEND_VALUE, len(kept.encode()), before.count("\n"))


def _functions(functions: Functions) -> str:
    """The code of the functions that call tools; a name of several tools raises an error."""
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
    """A snippet that stores the value of its last line, an expression or `return`, without moving a line.

    The snippet is split into tokens and not parsed: hostile code could overload a parser in this process.
    """
    try:
        last = _last_expression(list(tokenize.generate_tokens(io.StringIO(code).readline)))
    # The sandbox refuses such code with a better message.
    except (tokenize.TokenError, SyntaxError, ValueError):
        return code
    if not last:
        return code
    lines = code.splitlines(keepends=True)
    (row, column), (end_row, end_column) = last[0].start, last[-1].end
    lines[end_row - 1] = f"{lines[end_row - 1][:end_column]}){lines[end_row - 1][end_column:]}"
    rest = lines[row - 1][column:]
    rest = rest.removeprefix("return") if last[0].string == "return" else rest
    lines[row - 1] = f"{lines[row - 1][:column]}{_STORE_VALUE}{rest}"
    return "".join(lines)


def without_marks(line: str) -> str:
    """A line of a snippet without the changes of `keeping_value`."""
    before, mark, after = line.partition(_STORE_VALUE)
    return before + after.rstrip().removesuffix(")") if mark else line


def _last_expression(tokens: Sequence[tokenize.TokenInfo]) -> Sequence[tokenize.TokenInfo]:
    """The tokens of the last statement, if it is an expression or `return` on the top level."""
    last: Sequence[tokenize.TokenInfo] = ()
    for level, statement in _statements(tokens):
        last = statement if level == 0 else ()
    if not last or last[0].string in _STATEMENTS and not (last[0].string == "return" and len(last) > 1):
        return ()
    depth = 0
    for token in last:
        depth += (
            (token.string in _OPENING_BRACKETS) - (token.string in _CLOSING_BRACKETS)
            if token.type == tokenize.OP
            else 0
        )
        is_assigning = token.string.endswith("=") and token.string not in {"==", "!=", "<=", ">="}
        if depth == 0 and token.type == tokenize.OP and is_assigning:
            return ()
        if depth == 0 and token.string == ":" and last[0].string != "lambda":
            return ()
    return last


def _statements(tokens: Sequence[tokenize.TokenInfo]) -> Iterator[tuple[int, Sequence[tokenize.TokenInfo]]]:
    """The statements of a snippet, each with its level of indentation."""
    level = depth = 0
    found: list[tokenize.TokenInfo] = []
    for token in tokens:
        level += (token.type == tokenize.INDENT) - (token.type == tokenize.DEDENT)
        if token.type == tokenize.OP:
            depth += (token.string in _OPENING_BRACKETS) - (token.string in _CLOSING_BRACKETS)
        ends = token.type == tokenize.NEWLINE or (depth == 0 and token.string == ";")
        if ends and found:
            yield level, found
            found = []
        elif not ends and token.type not in _NO_CODE:
            found.append(token)
    if found:
        yield level, found


_RECURSION: Final = 200  # the depth of calls in a snippet


class MontySessions:
    """Opens and ends the sessions of one open pool; one session is prepared for the next run."""

    def __init__(self, pool: AsyncMonty) -> None:
        self._pool = pool
        self._tasks = TaskSet(lambda: None)
        self._ready: tuple[sandbox.CodeLimits, AsyncMontySession] | None = None
        self._preparing: anyio.Event | None = None
        self._waiting = 0
        self._closed = False

    @asynccontextmanager
    async def opened(self, mode: sandbox.CodeLimits, *, restores: bool) -> AsyncGenerator[AsyncMontySession]:
        """A session for one run; a session that restores a dump gets no prelude."""
        session = await self._taken(mode, restores)
        try:
            yield session
        except BaseException:
            # A cancelled run may hang, so its process is killed here at once.
            try:
                await session.__aexit__(*sys.exc_info())
            finally:
                self._prepare_soon(mode)
            raise
        if self._closed:
            await _ended(session)
        self._prepare_soon(mode, session)

    async def close(self) -> None:
        """End the prepared session, and wait for the end of the others."""
        self._closed = True
        await self._tasks.done()
        ready, self._ready = self._ready, None
        if ready is not None:
            await _ended(ready[1])

    async def _taken(self, mode: sandbox.CodeLimits, restores: bool) -> AsyncMontySession:
        """The prepared session if it suits a run, else a new one."""
        if self._preparing is not None:
            await self._preparing.wait()
        ready, self._ready = self._ready, None
        if ready is not None and not restores and ready[0] is mode:
            return ready[1]
        # While a run waits, no session is prepared: it could take the last process of the pool.
        self._waiting += 1
        try:
            if ready is not None:
                await _ended(ready[1])
            return await self._made(mode, "" if restores else PRELUDE)
        finally:
            self._waiting -= 1

    def _prepare_soon(self, mode: sandbox.CodeLimits, ended: AsyncMontySession | None = None) -> None:
        """End a session, and prepare the next one, in a background task."""
        if self._closed:
            return
        prepared = None
        if self._preparing is None and self._ready is None:
            prepared = self._preparing = anyio.Event()
        self._tasks.begin(partial(self._end_and_prepare, mode, ended, prepared))

    async def _end_and_prepare(
        self, mode: sandbox.CodeLimits, ended: AsyncMontySession | None, prepared: anyio.Event | None
    ) -> None:
        try:
            if ended is not None:
                await _ended(ended)
            if prepared is not None and not self._waiting and not self._closed:
                self._ready = mode, await self._made(mode, PRELUDE)
        # The next run opens a session itself, and reports the error.
        except sandbox.SandboxFault:
            pass
        finally:
            if prepared is not None:
                self._preparing = None
                prepared.set()

    async def _made(self, mode: sandbox.CodeLimits, prelude: str, *, again: bool = True) -> AsyncMontySession:
        """Open a session, with a second try if its process has died."""
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
            # A process may have died since its last run; the pool has replaced it by now.
            if again:
                return await self._made(mode, prelude, again=False)
            raise sandbox.SandboxFault("died", f"the sandbox does not start: {fault}") from None


async def _ended(session: AsyncMontySession) -> None:
    """End a session, if its process lives."""
    from pydantic_monty import MontyError

    with suppress(MontyError):
        await session.__aexit__(None, None, None)


MAX_ARGUMENTS: Final = 1_000_000  # bytes of JSON of the arguments of one call
_PRELUDE_FILE: Final = "<python-input-0>"
_FILE: Final = "<python-input-1>"
_SOURCE_POSITIONS: Final = struct.Struct(">II")
_CLOSE_TIMEOUT: Final = 5.0  # seconds for closing the sandbox
_RELEASE_TIME: Final = 0.05
"""Seconds in which Monty's threads release Python objects; if this process ended before, it would abort."""

_RECYCLED_AFTER: Final = 500  # runs after which a process is replaced
_GRACE: Final = 1.0  # seconds after the limit of a run until its process is killed
_LATER: Final[Any] = {"future": ...}  # Monty's form of an answer that comes later
_LIMIT_TEXTS: Final[tuple[tuple[sandbox.FaultKind, str], ...]] = (
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
    async def running(self, program: sandbox.Program) -> AsyncGenerator[MontyExecution]:
        sessions = self._sessions or await self._started()
        async with sessions.opened(program.mode, restores=program.state is not None) as session:
            yield MontyExecution(session, program)

    async def close(self) -> None:
        pool, self._pool = self._pool, None
        sessions, self._sessions = self._sessions, None
        if pool is not None and sessions is not None:
            with anyio.move_on_after(_CLOSE_TIMEOUT / 2, shield=True):
                await sessions.close()
            with anyio.move_on_after(_CLOSE_TIMEOUT / 2, shield=True):
                await pool.__aexit__(None, None, None)
                await anyio.sleep(_RELEASE_TIME)

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
    program: sandbox.Program
    printed: str = field(default="", init=False)
    _source: Source = field(init=False)
    _snapshot: AsyncSnapshot | None = field(default=None, init=False)
    _flooded: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self.printed = self.program.printed
        if self.program.state is None:
            self._source = source_of(self.program.code, self.program.functions)
        else:
            self._source = Source("", *_SOURCE_POSITIONS.unpack_from(self.program.state))

    async def step(self, answers: Mapping[int, sandbox.CallAnswer]) -> sandbox.Paused | sandbox.Ended:
        """Run until the snippet waits for answers or ends; `answers` are by the ids of calls."""
        from pydantic_monty import MontyError

        try:
            return await self._paused(await self._resumed(answers))
        except MontyError as fault:
            raise self._fault(fault) from None

    async def _resumed(self, answers: Mapping[int, sandbox.CallAnswer]) -> AsyncSnapshot:
        """Start the snippet, or continue it with answers, up to its next stop."""
        from pydantic_monty import AsyncFutureSnapshot

        program, session = self.program, self.session
        if self._snapshot is None and program.state is None:
            return await session.feed_start(self._source.text, print_callback=self._print)
        if self._snapshot is None:
            assert program.state is not None
            state = program.state[_SOURCE_POSITIONS.size :]
            self._snapshot = await session.load_snapshot(state, print_callback=self._print)
        assert isinstance(self._snapshot, AsyncFutureSnapshot)
        turn, settled = Turn(), dict[int, Any]()
        for call, answer in answers.items():
            settled[call] = _settled(answer)
            await turn.pause()
        return await self._snapshot.resume(settled)

    async def _paused(self, snapshot: AsyncSnapshot) -> sandbox.Paused | sandbox.Ended:
        """Collect the calls of the snippet, until it waits for their answers or ends."""
        from pydantic_monty import AsyncFunctionSnapshot, AsyncNameLookupSnapshot, MontyComplete

        fresh: list[sandbox.Called] = []
        while not isinstance(snapshot, MontyComplete):
            if isinstance(snapshot, AsyncNameLookupSnapshot):
                snapshot = await snapshot.resume()
            elif not isinstance(snapshot, AsyncFunctionSnapshot):
                self._snapshot = snapshot
                return sandbox.Paused(tuple(fresh), tuple(snapshot.pending_call_ids))
            elif snapshot.is_os_function:
                snapshot = await snapshot.resume_not_handled()
            # The arguments of other calls are not read: only our own code is sure to pass texts.
            elif (purpose := self._purpose_of(snapshot)) is None:
                message = f"name {snapshot.function_name!r} is not defined"
                snapshot = await snapshot.resume({"exc_type": "NameError", "message": message})
            elif purpose == "value":
                return sandbox.Ended(snapshot.args[1])
            elif (called := _called(snapshot.call_id, snapshot.args, self.program)) is not None:
                fresh.append(called)
                snapshot = await snapshot.resume(_LATER)
            else:
                message = f"the arguments of a call have no JSON form of at most {MAX_ARGUMENTS} bytes"
                snapshot = await snapshot.resume({"exc_type": "ValueError", "message": message})
        # A `return` between other statements ends a snippet early, without a value.
        return sandbox.Ended("null")

    def _purpose_of(self, snapshot: AsyncFunctionSnapshot) -> Literal["tool", "value"] | None:
        """The purpose of a call by our own code: to call a tool, or to send the value; else `None`."""
        place = snapshot.position
        if snapshot.function_name != CALL:
            return None
        if place.filename == _PRELUDE_FILE:
            return "tool"
        return "value" if place.filename == _FILE and place.start > self._source.end else None

    def dump(self) -> bytes:
        """The state of the paused snippet, from which another run can continue."""
        from pydantic_monty import AsyncFutureSnapshot

        if self._snapshot is None and self.program.state is not None:
            return self.program.state
        assert isinstance(self._snapshot, AsyncFutureSnapshot)
        source = self._source
        return _SOURCE_POSITIONS.pack(source.end, source.lines) + self._snapshot.dump()

    def _print(self, stream: str, text: str) -> None:
        """Take printed text; if it is too much, the error ends the snippet."""
        room = self.program.mode.max_printed - len(self.printed)
        self.printed += text[:room]
        if len(text) > room:
            self._flooded = True
            raise RuntimeError("too much was printed")

    def _fault(self, fault: MontyError) -> sandbox.SandboxFault:
        """The fault of the sandbox for an error of Monty: the limit that was reached, or a traceback."""
        from pydantic_monty import MontyCrashedError, MontyRuntimeError, MontySyntaxError

        text = str(fault)
        if self._flooded:
            return sandbox.SandboxFault("max_printed", text)
        if isinstance(fault, MontyCrashedError):
            kind: sandbox.FaultKind = (
                "max_compute_seconds" if fault.timed_out or "duration" in text else "died"
            )
            return sandbox.SandboxFault(kind, "the process of the sandbox died; run the code again")
        own = isinstance(fault.exception(), TimeoutError | MemoryError | RuntimeError)
        found: list[sandbox.FaultKind] = [kind for kind, mark in _LIMIT_TEXTS if own and mark in text]
        if isinstance(fault, MontyRuntimeError | MontySyntaxError):
            text = self._traceback(fault)
        return sandbox.SandboxFault(found[0] if found else "failed", text)

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


def _called(id: int, args: tuple[Any, ...], program: sandbox.Program) -> sandbox.Called | None:
    """The call of a tool by our code; `None` if the tool is unknown, or the arguments are no JSON object."""
    name, text = args
    if name not in program.functions.tools or len(text) > MAX_ARGUMENTS:
        return None
    try:
        arguments: object = json.loads(text, parse_constant=_refused)
    # The JSON is nested too deeply, or has a number such as NaN.
    except (RecursionError, ValueError):
        return None
    return (
        sandbox.Called(id, name, cast("dict[str, Any]", arguments)) if isinstance(arguments, dict) else None
    )


def _refused(constant: str) -> None:
    raise ValueError(f"{constant} has no JSON form")


def _settled(answer: sandbox.CallAnswer) -> Any:
    """An answer in Monty's form."""
    if answer.error is not None:
        return {"exc_type": "RuntimeError", "message": answer.error}
    try:
        return {"return_value": json_of(answer.value).decode()}
    # A text has a lone surrogate, which only JSON in ASCII can carry.
    except ValueError:
        return {"return_value": json.dumps(answer.value)}
