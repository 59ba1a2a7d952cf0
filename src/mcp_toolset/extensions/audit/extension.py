"""`Audit` and `AuditLog`: a chained line for each call, decision, grant and login, written beside the calls.

```python
server = ToolsetServer(tools, audit=AuditLog("audit.jsonl"))
```

`record` puts an event into a bounded queue and returns. A file that is slow or full delays no call: events
that find the queue full are lost, counted, logged, and named by a line of the log later.

A command such as `mcp-toolset login` appends its event to the file `….handed` beside the log. The process
that writes the log looks for the file every few seconds, puts the events into its chain and removes the file.
Each event is sealed with the key and the salt of the log, so no other log takes it.
"""

from __future__ import annotations

import errno
import hmac
import json
import logging
import math
import os
import secrets
import threading
from collections import deque
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from functools import lru_cache, partial, reduce
from hashlib import blake2b, sha256
from importlib.metadata import version
from os import PathLike
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Event
from time import monotonic, perf_counter, time
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self, cast

import anyio
import anyio.to_thread
from pydantic_core import to_json

from mcp_toolset._numbers import require_positive
from mcp_toolset._rule import Rule
from mcp_toolset.calls.observers import VIEW, CallReport, Common, DigestingObserver, common_of
from mcp_toolset.concurrency.atomic_file import LOCK_STEP, locked
from mcp_toolset.context.connection import RequestContext
from mcp_toolset.context.offer_kinds import MountedSource
from mcp_toolset.errors import AuditError, DefinitionError
from mcp_toolset.extending.extension import Extension
from mcp_toolset.extensions.audit import log_files
from mcp_toolset.protocol.json_rpc import MCPError
from mcp_toolset.security.facts import who_fields, without_credentials
from mcp_toolset.tools.call import Identity
from mcp_toolset.tools.source import Scrubbing, ToolSource

if TYPE_CHECKING:
    from mcp_toolset.config.extensions import Settings
    from mcp_toolset.extending.extension import Answer
    from mcp_toolset.extending.host import Host
    from mcp_toolset.extensions.audit.settings import AuditSettings


LONGEST: Final = 300
"""Characters of a text that a line keeps: a caller chooses some of them, such as the name of a tool."""

MOST: Final = 50  # items of a list or an object that a line keeps
DEEPEST: Final = 4  # how deep lists and objects are kept
_REPEATED: Final = (
    "key",
    "client",
    "protocol",
    "session",
    "tool",
    "server",
    "called",
    "reason",
    "rule",
    "view",
)


def own_text(call: CallReport, quoted: Callable[[str], str]) -> str:
    """The fields of a call's line that other lines do not have, as JSON text, each after a comma."""
    text = ""
    if call.trace or call.round or call.id:
        texts = (("trace", call.trace), ("round", call.round), ("id", call.id))
        text += "".join([f',"{name}":{quoted(value)}' for name, value in texts if value])
    if call.decisions:
        text += f',"decisions":[{",".join(map(quoted, call.decisions))}]'
    if call.usage:
        tokens = ",".join(f"{quoted(kind)}:{count:d}" for kind, count in call.usage)
        text += f',"usage":{{{tokens}}}'
    if call.arguments:
        text += f',"arguments":"{call.arguments}"'
    ran = "true" if call.ran else "false"
    return f'{text},"outcome":"{call.outcome}","ran":{ran},"duration":{call.duration:.6f}'


def repeated_of(call: CallReport, repeated: Callable[..., str]) -> str:
    """The fields of a call's line that many others have as well, as JSON text, each after a comma."""
    called = "" if call.called == call.tool else call.called
    return repeated(
        call.identity,
        call.principal,
        call.client,
        call.protocol_version,
        call.session,
        call.tool,
        call.server,
        called,
        call.reason,
        call.rule,
        call.view,
    )


def repeated_text(quoted: Callable[[str], str], digest: Callable[[str], str]) -> Callable[..., str]:
    """Make the text of these fields; `digest` hides the id of a session, which would let others use it."""

    def text_of(who: Identity | None, principal: str | None, *values: str | None) -> str:
        client, protocol, session, *others = values
        text, key = "", principal
        if who is not None:
            key = who.key
            text = f',"who":{quoted(who.name)},"roles":[{",".join(map(quoted, sorted(who.roles)))}]'
        found = (key, client, protocol, session and digest(session), *others)
        texts = zip(_REPEATED, found, strict=True)
        return text + "".join([f',"{name}":{quoted(value)}' for name, value in texts if value])

    return text_of


def cleaned_fields(fields: Mapping[str, Any], shown: Callable[[str], str]) -> dict[str, Any]:
    """The fields that say something, as plain data, every text passed through `shown`."""
    kept = {name: _plain(value, shown, DEEPEST) for name, value in fields.items()}
    return {name: value for name, value in kept.items() if value is not None and value != "" and value != []}


def shown_text(text: str) -> str:
    """A text of a line: short, and without what looks like a credential."""
    clear = without_credentials(text[: 4 * LONGEST])
    return clear if len(clear) <= LONGEST else f"{clear[:LONGEST]}…"


def _plain(value: object, shown: Callable[[str], str], depth: int) -> Any:
    match value:
        case str():
            return shown(value)
        case None | bool() | int():
            return value
        case float():
            return round(value, 6) if math.isfinite(value) else str(value)
        case Mapping() if depth:
            items = list(cast("Mapping[object, object]", value).items())[:MOST]
            return {shown(str(key)): _plain(item, shown, depth - 1) for key, item in items}
        case list() | tuple() | set() | frozenset() if depth:
            found = cast("Iterable[object]", value)
            items = sorted(found, key=str) if isinstance(value, AbstractSet) else list(found)
            return [_plain(item, shown, depth - 1) for item in items[:MOST]]
        case _:
            # Never its text: an object of an application may show a secret.
            return type(value).__name__


_TEXTS: Final = 4096  # texts of lines that are remembered
_CANONICAL: Final = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode
"""The text of nested arguments, whatever the order of their keys."""

_FLAT: Final = frozenset({str, int, bool, type(None)})
"""Types of the values whose text needs no order of keys; `to_json` makes it in a fraction of the time."""


class LineTexts:
    """The texts of lines. Those of earlier lines are remembered, as most lines repeat them."""

    known: dict[Common, tuple[str, Identity | None]]

    def __init__(self) -> None:
        self._salt = b""
        self._keyed = blake2b(digest_size=16)
        self._scrubbing: dict[int, Callable[[str], str]] = {}
        self._remember(self._scrubbed)

    def use_key(self, salt: bytes) -> None:
        self._salt = salt
        self._keyed = blake2b(key=salt, digest_size=16)
        self._remember(self._scrubbed)

    def redact(self, owner: object, scrubbed: Callable[[str], str]) -> None:
        self._scrubbing[id(owner)] = scrubbed
        self._remember(self._scrubbed)

    def digest(self, arguments: Mapping[str, Any]) -> str:
        try:
            text = _canonical(arguments)
        except (TypeError, ValueError, RecursionError):
            return ""
        # A copy costs half of what a new one with the key does.
        keyed = self._keyed.copy()
        keyed.update(text)
        return keyed.hexdigest()

    def short_digest(self, text: str) -> str:
        return blake2b(text.encode(), key=self._salt, digest_size=8).hexdigest()

    def line(self, chain: log_files.Chain, at: float, event: str, said: Any) -> bytes:
        told = log_files.stamp(at)
        try:
            if not isinstance(said, dict):
                call, known = cast("CallReport", said), self.known
                text = repeated_of(call, self._repeated)
                if not call.reason and not call.rule:
                    # For `note_plain`.
                    if len(known) >= _TEXTS:
                        known.clear()
                    known[common_of(call)] = text, call.identity
                return chain.line_of(f'"call","time":"{told}"{text}{own_text(call, self._quoted)}}}')
            fields = cast("dict[str, Any]", said)
            if session := fields.get("session"):
                # The id of a session lets others use it.
                fields = {**fields, "session": self.short_digest(str(session))}
            return chain.line(self._shown(event), told, cleaned_fields(fields, self._shown))
        # A recorded object may be anything; the line says what kind of error hid it.
        except Exception as fault:
            return chain.line(shown_text(str(event)), told, {"unreadable": type(fault).__name__})

    def _remember(self, shown: Callable[[str], str]) -> None:
        """Remember what texts of lines become: most of them are those of other lines too."""

        def quoted(text: str) -> str:
            return json.dumps(shown(text))

        self._shown: Callable[[str], str] = lru_cache(_TEXTS)(shown)
        self._quoted: Callable[[str], str] = lru_cache(_TEXTS)(quoted)
        self._repeated: Callable[..., str] = lru_cache(_TEXTS)(repeated_text(quoted, self.short_digest))
        # Set last, as it is read first: what was learned with the functions of before is not kept.
        self.known: dict[Common, tuple[str, Identity | None]] = {}

    def _scrubbed(self, text: str) -> str:
        for scrubbed in list(self._scrubbing.values()):
            text = scrubbed(text)
        return shown_text(text)


def _canonical(arguments: Mapping[str, Any]) -> bytes:
    for value in arguments.values():
        if type(value) not in _FLAT:
            break
    else:
        try:
            return to_json(dict(arguments if len(arguments) < 2 else sorted(arguments.items())))
        # A text with half of a surrogate pair is no UTF-8.
        except ValueError:
            pass
    return _CANONICAL(arguments).encode()


QUEUED: Final = 10_000  # events that wait at most; further ones are lost
_GATHER: Final = 0.1  # seconds in which events are gathered for one write
_RETRY: Final = 0.5  # seconds between attempts to write a file that cannot be written
_CHUNK: Final = 500  # lines of one write
_OPENING: Final = 10.0  # seconds in which the file must open
CLOSING: Final = 5.0  # seconds in which the last lines must be written
_MILLISECONDS: Final = tuple(f"{number:03d}" for number in range(1000))
"""To format a number takes longer than to look it up."""

_log = logging.getLogger("mcp_toolset.audit")


class AuditLog(Rule, DigestingObserver):
    """A file that records calls, decisions, grants and logins; docs/audit.md lists its lines and promises.

    A server opens the log and closes it at its end; a program can open it with a `with` block. Only one
    process writes a file. Several servers of this process may share an `AuditLog`.
    """

    def __init__(
        self,
        path: str | PathLike[str],
        *,
        max_bytes: int = 100_000_000,
        max_files: int = 10,
        key: str | bytes | None = None,
        fsync: float | None = 1.0,
        max_queued: int = QUEUED,
    ) -> None:
        """Set the file and its limits; the file is opened later.

        Args:
            path: The file. Its head (`….head`), its lock (`….lock`) and full files are in the same folder.
            max_bytes: The size in bytes at which a new file begins.
            max_files: The number of full files to keep.
            key: A secret of at least 16 characters. With it, a person who can write all files cannot change
                a line unseen; `mcp-toolset audit verify` then needs the key, too.
            fsync: Seconds until lines are on disk at the latest; `None` leaves this to the system.
            max_queued: The number of events that may wait for the file; further events are lost and counted.

        Raises:
            DefinitionError: a number is not positive, or the key is too short.
        """
        require_positive("AuditLog", max_bytes=max_bytes, max_files=max_files, max_queued=max_queued)
        if fsync is not None and not fsync >= 0:
            raise DefinitionError(f"AuditLog(fsync=…) takes seconds or None, not {fsync!r}")
        self.path = Path(os.path.abspath(path))
        self._seal = log_files.seal_of(key)
        self._files = log_files.LogFiles(self.path, self._seal, max_bytes, max_files)
        self._fsync = fsync
        self._limit = max_queued
        self._queue: deque[str | tuple[float, str, Any]] = deque()
        self._append = self._queue.append
        self._counting = threading.Lock()
        self._lost, self._lost_since, self._lost_ever = 0, 0.0, 0
        self._holders = 0
        self._holding = threading.Lock()
        self._thread: threading.Thread | None = None
        self._ready = threading.Event()
        # To wait for an `Event` takes Python code; calls and the thread share one interpreter.
        self._signals: SimpleQueue[None] = SimpleQueue()
        self._awake, self._ended = False, False
        self._fault: BaseException | None = None
        self._failing = ""
        self._until = 0.0
        self._synced = 0.0
        self._second = 0, ""
        self.texts = LineTexts()

    @property
    def lost(self) -> int:
        """The number of events that were lost since the process started."""
        return self._lost_ever

    def record(self, event: str, /, **fields: Any) -> None:
        """Record an event; returns at once and never raises.

        Args:
            event: The kind of event, such as `decision`.
            fields: The fields of the line: texts, numbers, lists and objects. Give names and reasons,
                never arguments, results or credentials; a digest replaces the `session`. Empty fields
                are left out.
        """
        if view := VIEW.get():
            fields = {**fields, "view": view}
        self._put(event, fields)

    def __call__(self, report: Any, /) -> None:
        """Record a call of its `CallReport`: the log is an observer of calls."""
        self._put("call", report)

    def note_plain(self, common: Common, arguments: str, outcome: str, ran: bool, duration: float, /) -> bool:
        """Record a call that was not refused, if a line of a similar call was written before."""
        known = self.texts.known.get(common)
        if known is None or not arguments or len(self._queue) >= self._limit:
            return False
        at = time()
        second, shown = self._second
        if not 0 <= at - second < 1:
            self._second = second, shown = int(at), log_files.stamp(int(at))[:-4]
        told = f"{shown}{_MILLISECONDS[int((at - second) * 1000)]}Z"
        self._append(
            f'"call","time":"{told}"{known[0]},"arguments":"{arguments}","outcome":"{outcome}",'
            f'"ran":{"true" if ran else "false"},"duration":{duration:f}}}'
        )
        if not self._awake:
            self._rouse()
        return True

    def digest(self, arguments: Mapping[str, Any]) -> str:
        """The digest of the arguments of a call, keyed with a secret of this log; empty without a JSON form.

        With the log alone, arguments cannot be found by trying values. With its head or key, known arguments
        can be compared with those of a call.
        """
        return self.texts.digest(arguments)

    def hand_over(self, event: str, /, **fields: Any) -> None:
        """Record an event; if another process writes the log, hand the event to that process. Blocks."""
        with suppress(AuditError), self.opened(lambda: {"command": event}):
            hand_over(self.path, self._seal, event, fields)
            return self.take_over()
        # Another process writes the log.
        hand_over(self.path, self._seal, event, fields)

    def take_over(self) -> None:
        """Record the events that other processes have handed over; blocks. The log must be open.

        A log beside the named one leaves them to the process that writes the named one.
        """
        if self._files.path != self.path:
            return
        for event, fields in handed_over(self.path, self._seal, self._files.salt):
            self.record(event, **fields)

    def open(self, facts: Callable[[], Mapping[str, Any]] | None = None, *, beside: bool = False) -> None:
        """Hold the log open, and record `started`, with what `facts` then says.

        Args:
            facts: More fields of the line.
            beside: True to write a log of its own, such as `audit.2.jsonl`, while another process writes
                the named one. A line `beside` of the named one then has its name.

        Raises:
            AuditError: another process writes it, it cannot be opened, or it has another key.
        """
        with self._holding:
            if not self._holders:
                self._start(beside)
                if (file := self._files.path) != self.path:
                    hand_over(self.path, self._seal, "beside", {"file": file.name, "process": os.getpid()})
                    _log.warning("%s: another process writes it; this process writes %s", self.path, file)
            self._holders += 1
        self.record("started", **(facts() if facts else {}))

    def close(self, timeout: float = CLOSING) -> None:
        """Record `stopped`; the last holder waits until everything is written, at most `timeout` seconds."""
        with self._holding:
            if not self._holders:
                return
            self.record("stopped")
            self._holders -= 1
            if not self._holders:
                self._end(timeout)

    @contextmanager
    def opened(self, facts: Callable[[], Mapping[str, Any]] | None = None) -> Generator[AuditLog]:
        """Hold the log open for the length of a block."""
        self.open(facts)
        try:
            yield self
        finally:
            self.close()

    def _put(self, event: str, said: Any) -> None:
        if len(self._queue) >= self._limit:
            self._lose(1)
            return
        self._append((time(), event, said))
        self._rouse()

    def _rouse(self) -> None:
        if not self._awake:
            self._awake = True
            self._signals.put(None)

    def _lose(self, count: int) -> None:
        with self._counting:
            if not self._lost:
                self._lost_since = time()
            self._lost += count
            self._lost_ever += count

    def _start(self, beside: bool) -> None:
        self._ready.clear()
        self._awake, self._ended = False, False
        self._fault = None
        self._thread = threading.Thread(
            target=self._run, args=(beside,), name="mcp-toolset audit log", daemon=True
        )
        self._thread.start()
        if not self._ready.wait(_OPENING):
            raise AuditError(f"{self.path}: the audit log did not open in {_OPENING:g} seconds")
        if self._fault is not None:
            self._thread.join()
            raise self._fault

    def _end(self, timeout: float) -> None:
        self._until = monotonic() + timeout
        self._ended = True
        self._signals.put(None)
        assert self._thread is not None
        self._thread.join(timeout + 1)
        if self._queue or self._files.rest or self._thread.is_alive():
            _log.error(
                "%s: the audit log was closed with %d or more lines unwritten", self.path, len(self._queue)
            )

    def _run(self, beside: bool) -> None:
        """The thread: it alone touches the files."""
        try:
            with self._files.opened(beside):
                self.texts.use_key(sha256(self._seal.digest(self._files.salt.encode()).encode()).digest())
                self._ready.set()
                if found := self._files.resumed:
                    self._queue.appendleft((time(), "resumed", found))
                while not self._ended:
                    if not self._write():
                        self._sleep()
                    self._pause(_RETRY if self._failing else _GATHER)
                self._write_last()
        # Whatever it is, `open` raises it in the thread that waits.
        except BaseException as fault:
            if self._ready.is_set():
                _log.exception("%s: writing the audit log has stopped", self.path)
            self._fault = fault
            self._ready.set()

    def _write_last(self) -> None:
        self._write()
        while self._failing and monotonic() < self._until:
            with suppress(Empty):
                self._signals.get(timeout=_GATHER)
            self._write()

    def _sleep(self) -> None:
        """Wait until there is something to write, or to have on disk."""
        self._awake = False
        # What was queued before that did not wake it.
        if not self._queue:
            left = None
            if self._fsync is not None and self._synced:
                left = max(0, self._synced + self._fsync - _GATHER - monotonic())
            self._pause(left)
        self._awake = True

    def _pause(self, seconds: float | None) -> None:
        with suppress(Empty):
            if not self._ended:
                self._signals.get(timeout=seconds)

    def _write(self) -> bool:
        """Write what is queued, and return whether more may follow soon."""
        count = 0
        try:
            self._files.flush()
            while lines := self._chunk():
                count += 1
                self._files.append(lines)
            self._sync()
        except OSError as fault:
            if not self._failing:
                _log.error(
                    "%s: the audit log cannot be written: %s; calls go on, up to %d events are kept",
                    self.path,
                    fault,
                    self._limit,
                )
            self._failing = str(fault)
            return True
        if self._failing:
            _log.warning("%s: the audit log can be written again", self.path)
        self._failing = ""
        return count > 0

    def _sync(self) -> None:
        if self._fsync is None:
            return
        now = monotonic()
        if not self._synced:
            self._synced = now
        if now - self._synced >= self._fsync or self._ended:
            self._files.sync()
            self._synced = 0.0

    def _chunk(self) -> bytes:
        if not self._queue and not self._lost:
            return b""
        if self._files.is_full:
            self._files.rotate()
        lines: list[bytes] = []
        room = self._files.room
        while self._queue and len(lines) < _CHUNK and room > 0:
            said = self._queue.popleft()
            lines.append(
                self._files.chain.line_of(said)
                if isinstance(said, str)
                else self.texts.line(self._files.chain, *said)
            )
            room -= len(lines[-1]) + 1
        if not self._queue and self._lost:
            lines.append(self._lost_line())
        return b"\n".join([*lines, b""])

    def _lost_line(self) -> bytes:
        with self._counting:
            count, since, self._lost = self._lost, self._lost_since, 0
        _log.error("%s: %d events of the audit log were lost", self.path, count)
        return self.texts.line(
            self._files.chain,
            time(),
            "lost",
            {"count": count, "since": log_files.stamp(since), "why": self._failing},
        )


_TIMEOUT: Final = 5.0  # seconds to wait for another process that writes or takes the file, or begins the log


def hand_over(log: Path, seal: log_files.Seal, event: str, fields: Mapping[str, Any]) -> None:
    named = {**fields, "at": log_files.stamp(time()), "id": secrets.token_hex(8)}
    said = json.dumps({"event": event, "fields": named})
    try:
        with locked(_place(log, ".handed.lock"), _TIMEOUT):
            sealed = {"said": said, "seal": _sealed(seal, _salt_of(log), said)}
            file = log_files.open_file(_place(log, ".handed"), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
            with os.fdopen(file, "wb") as handed:
                # Begun anew, whatever a process that was killed has left.
                handed.write(f"\n{json.dumps(sealed)}\n".encode())
                handed.flush()
                os.fsync(handed.fileno())
    # A lock that is not free in time is an OSError as well.
    except OSError as fault:
        raise AuditError(
            f"{log}: the event {event!r} cannot be recorded ({fault.strerror or 'the file is in use'}); "
            "let this user write to the folder of the audit log"
        ) from None


def handed_over(log: Path, seal: log_files.Seal, salt: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Events that other processes have kept for the log; they are removed after the last one."""
    place = _place(log, ".handed")
    if not os.path.lexists(place):
        return
    try:
        with locked(_place(log, ".handed.lock"), _TIMEOUT):
            for line in filter(None, log_files.content_of(place).splitlines()):
                if (found := _read(seal, salt, line)) is None:
                    _log.error("%s: a line is not for this log, or was changed; it is not recorded", place)
                else:
                    yield found
            place.unlink()
    except OSError as fault:
        _log.error("%s: its events cannot be taken over: %s", place, fault)


def _read(seal: log_files.Seal, salt: str, line: bytes) -> tuple[str, Mapping[str, Any]] | None:
    try:
        table: Any = json.loads(line)
        said = str(table["said"])
        found = cast("dict[str, Any]", json.loads(said))
        is_sealed = hmac.compare_digest(str(table["seal"]).encode(), _sealed(seal, salt, said).encode())
        return (str(found["event"]), dict(found["fields"])) if is_sealed else None
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


def _salt_of(log: Path) -> str:
    """The salt of a log that another process writes; it may have locked the log and not begun it yet."""
    until, pause = monotonic() + _TIMEOUT, Event()
    while monotonic() < until:
        with suppress(FileNotFoundError):
            if (
                read := log_files.ReadHead.of(log_files.content_of(log_files.LogHead.path_of(log)))
            ) is not None:
                return read.head.salt
        pause.wait(LOCK_STEP)
    raise OSError(errno.ENOENT, "its head is missing")


def _sealed(seal: log_files.Seal, salt: str, said: str) -> str:
    return seal.digest(f"handed {salt} {said}".encode())


def _place(log: Path, suffix: str) -> Path:
    return log.with_name(log.name + suffix)


TAKE_OVER: Final = 2.0  # seconds between two looks at what other processes have handed over
_STREAM: Final = "subscriptions/listen"
_READS: Final = (
    *("resources/read", "resources/subscribe", "resources/unsubscribe"),
    *("prompts/get", "completion/complete", _STREAM),
)
"""Methods whose requests are recorded; calls of tools are recorded where they are made."""


class Audit(Extension):
    """Records calls, and what else happens to one server, in `log`."""

    key: ClassVar = "audit"
    in_views: ClassVar = "shared"

    def __init__(self, log: AuditLog | str | PathLike[str]) -> None:
        """Record in a log, or in the file of this path."""
        self.log = log if isinstance(log, AuditLog) else AuditLog(log)
        self._seen: frozenset[tuple[str, str, str]] = frozenset()
        self._sources: tuple[Scrubbing, ...] = ()
        self._telling: tuple[MountedSource, ...] = ()
        self._ends: list[Callable[[], None]] = []

    @classmethod
    def of(cls, said: Any, stated: Settings | None, host: Host) -> Self:
        """`True` is the log of the configuration."""
        if said is not None and said is not True:
            given = cast("object", said)
            if not isinstance(given, AuditLog | str | PathLike):
                raise DefinitionError(f"audit takes an AuditLog or the path of its file, not {given!r}")
            path = given.path if isinstance(given, AuditLog) else Path(cast("str", given))
            if path.is_dir():
                raise DefinitionError(
                    f"audit={str(path)!r} is a folder, so no line could be written: name a file"
                )
            return cls(cast("AuditLog | str", given))
        if stated is None:
            raise DefinitionError("audit=True does not say where to: give the path of a file")
        return cls(_log_of(cast("AuditSettings", stated)))

    @classmethod
    def event_elsewhere(cls, stated: Settings, kind: str, /, **facts: Any) -> None:
        _log_of(cast("AuditSettings", stated)).hand_over(kind, **facts)

    def bind(self, host: Host) -> Self:
        bound = type(self)(self.log)
        bound.host = host
        return bound

    def observer(self) -> AuditLog:
        return self.log

    def event(self, kind: str, /, **facts: Any) -> None:
        self.log.record(kind, **facts, **(self._digests() if kind == "reloaded" else {}))

    @asynccontextmanager
    async def lifespan(self) -> AsyncGenerator[None]:
        """Hold the log open for the length of a block, and follow the grants."""
        async with AsyncExitStack() as stack:
            await anyio.to_thread.run_sync(partial(self.log.open, self._began, beside=True))
            stack.push_async_callback(self._close)
            stack.callback(self.host.grants.watchers.add(self._of_grant))
            stack.callback(self._follow_logins, ())
            group = await stack.enter_async_context(anyio.create_task_group())
            stack.callback(group.cancel_scope.cancel)
            group.start_soon(self._take_over)
            yield

    def _began(self) -> dict[str, Any]:
        server = {"server": self.host.name, "version": self.host.version}
        return {**server, **self._digests(), "toolset": version("mcp-toolset")}

    def _digests(self) -> dict[str, str]:
        """Digests of the configuration, by which its changes are seen; keyed, as a file may hold secrets."""
        path = self.host.configuration
        if path is None or not path.is_file():
            return {}
        return {"configuration": self.log.digest({"file": path.read_text(errors="replace")})}

    def intercept(self, method: str, answer: Answer) -> Answer:
        return self._recorded(answer) if method in _READS else answer

    def _recorded(self, answer: Answer) -> Answer:
        """An answer that records each request; a stream is recorded when it begins."""

        async def recorded(request: RequestContext) -> dict[str, Any]:
            record = partial(self.log.record, "request", **self._facts(request))
            if request.method == _STREAM:
                record()
                return await answer(request)
            outcome, code, began = "cancelled", None, perf_counter()
            try:
                result = await answer(request)
                outcome = "asked" if result.get("resultType") == "input_required" else "result"
                return result
            except MCPError as fault:
                outcome, code = "error", fault.code
                raise
            finally:
                record(outcome=outcome, code=code, duration=perf_counter() - began)

        return recorded

    def _facts(self, request: RequestContext) -> dict[str, Any]:
        """The caller and the request, without the values of arguments."""
        params, connection = request.params or {}, request.connection
        reference: Mapping[str, Any] = params.get("ref") or {}
        wanted: Mapping[str, Any] = params.get("notifications") or {}
        return {
            "method": request.method,
            "uri": params.get("uri") or reference.get("uri") or wanted.get("resourceSubscriptions"),
            "prompt": params.get("name") or reference.get("name"),
            "changes": sorted(kind for kind, is_wanted in wanted.items() if is_wanted is True),
            "arguments": self.log.digest(params.get("arguments") or {}) if "arguments" in params else None,
            **who_fields(request.identity),
            "client": (connection.client_info or {}).get("name"),
            "protocol": request.protocol_version,
            "session": connection.session_id,
        }

    def compiled(self, sources: Mapping[str, ToolSource]) -> None:
        """Record the definitions that differ from their pins by now, and learn which secrets to blank."""
        scrubbing = tuple(source for source in sources.values() if isinstance(source, Scrubbing))
        if scrubbing != self._sources:
            self._sources = scrubbing
            self.log.texts.redact(self, self._scrubbed)
        self._follow_logins(tuple(one for one in sources.values() if isinstance(one, MountedSource)))
        changes = {
            (name, change.name, change.offered.digest): change
            for name, source in sources.items()
            for change in source.status.changes
        }
        for (server, tool, digest), change in changes.items():
            if (server, tool, digest) not in self._seen:
                self.log.record(
                    "definition_changed",
                    server=server,
                    tool=tool,
                    held=change.held,
                    reason=change.reason,
                    gained=change.gained,
                    pinned=change.pinned.digest if change.pinned else None,
                    offered=digest,
                )
        self._seen = frozenset(changes)

    async def _take_over(self) -> None:
        """Record what commands in other processes do, such as logins to mounted servers."""
        # Other processes set no event here.
        while True:
            await anyio.to_thread.run_sync(self.log.take_over)
            await anyio.sleep(TAKE_OVER)

    def _follow_logins(self, telling: tuple[MountedSource, ...]) -> None:
        if telling == self._telling:
            return
        for end in self._ends:
            end()
        self._telling = telling
        self._ends = [
            source.watch_logins(lambda facts: self.log.record("login", **facts)) for source in telling
        ]

    def _of_grant(self, what: str, /, **facts: Any) -> None:
        kind, _, owner = (facts.pop("owner", None) or "").partition(":")
        who = {"key" if kind == "principal" else "session": owner}
        # The key of a grant is a digest of its string, so the grant cannot be used by it.
        grant = str(facts.pop("grant", None) or "")[:16]
        self.log.record("grant", outcome=what, **who, grant=grant, **facts)

    def _scrubbed(self, text: str) -> str:
        return reduce(lambda clear, source: source.scrubbed(clear), self._sources, text)

    async def _close(self) -> None:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self.log.take_over)
            await anyio.to_thread.run_sync(self.log.close)


def _log_of(settings: AuditSettings) -> AuditLog:
    return AuditLog(
        settings.path, max_bytes=settings.max_bytes, max_files=settings.max_files, key=settings.key
    )


EXTENSION = Audit
