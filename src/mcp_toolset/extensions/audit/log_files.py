"""The files of an audit log, and the chain of their lines.

A line is one JSON object. Its first members are always `seq`, `prev` and `event`, its last one is `digest`:
a reader can follow the chain on bytes alone. `digest` is the SHA-256 of the line's bytes up to there, an
HMAC if the log has a key; `prev` is the `digest` of the line before. The head seals the end of the log.

The thread of an `AuditLog` owns its `LogFiles`. What cannot be written stays in `rest` and is written first
the next time, so that the chain on disk has no hole.
"""

from __future__ import annotations

import errno
import hashlib
import hmac
import json
import logging
import os
import re
import secrets
import stat
import sys
import time
from collections.abc import Generator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, cast

from mcp_toolset._records import dataclass
from mcp_toolset.concurrency.atomic_file import PRIVATE, locked
from mcp_toolset.errors import AuditError, DefinitionError

FIRST: Final = "0" * 64  # what the first line of a log has as the digest of the line before it
HEAD_SIZE: Final = 512  # bytes of the file of a head: it is overwritten in place, with one small write
LONGEST_LINE: Final = 65_536  # bytes of the longest line
_SHORTEST_KEY: Final = 16  # characters of the key of a log
OWN: Final = frozenset({"seq", "prev", "event", "time", "digest"})
"""Members that the chain itself gives to a line."""

_DIGEST: Final = b',"digest":"'
_ENDING: Final = len(_DIGEST) + len(FIRST) + len(b'"}')


@dataclass(frozen=True, slots=True)
class Seal:
    """The digests of a log: SHA-256, or HMAC-SHA-256 with keys that are derived from the log's key."""

    key: bytes | None = None

    def digest(self, data: bytes) -> str:
        if self.key is None:
            return hashlib.sha256(data).hexdigest()
        return hmac.digest(self.key, data, "sha256").hex()

    def digest_of(self, line: bytes) -> str:
        """The digest that a line, without its line feed, ends with; empty if the line is not its writer's."""
        body, ending = line[:-_ENDING], line[-_ENDING:]
        digest = self.digest(body)
        return digest if hmac.compare_digest(ending, b'%s%s"}' % (_DIGEST, digest.encode())) else ""

    def head(self, head: LogHead) -> str:
        """The digest of what a head says: one who has no key cannot make the head of a shorter log."""
        text = f"head {head.seq} {head.digest} {head.size} {head.salt}".encode(errors="replace")
        return self.digest(text)

    @property
    def is_keyed(self) -> bool:
        return self.key is not None


@dataclass(frozen=True, slots=True)
class LogHead:
    """The end of a log, in a small file beside it: without it, a cut end could not be seen."""

    seq: int = 0
    digest: str = FIRST
    size: int = 0
    salt: str = ""

    def encoded(self, seal: Seal) -> bytes:
        salt, keyed = json.dumps(self.salt), "true" if seal.is_keyed else "false"
        members = f'"seq": {self.seq}, "digest": "{self.digest}", "size": {self.size}, "salt": {salt}'
        text = f'{{{members}, "keyed": {keyed}, "seal": "{seal.head(self)}"}}'
        return text.ljust(HEAD_SIZE - 1).encode() + b"\n"

    @staticmethod
    def path_of(log: Path) -> Path:
        return log.with_name(f"{log.name}.head")


@dataclass(frozen=True, slots=True)
class ReadHead:
    """A head as it was read from its file; `seal` is the digest by which it can be checked."""

    head: LogHead
    keyed: bool
    seal: str

    @classmethod
    def of(cls, data: bytes) -> ReadHead | None:
        try:
            table = cast("dict[str, Any]", json.loads(data))
            head = LogHead(int(table["seq"]), str(table["digest"]), int(table["size"]), str(table["salt"]))
            return cls(head, bool(table["keyed"]), str(table["seal"]))
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
            return None

    def is_sealed(self, seal: Seal) -> bool:
        return self.keyed == seal.is_keyed and hmac.compare_digest(
            self.seal.encode(errors="replace"), seal.head(self.head).encode()
        )


class Chain:
    """Numbers the lines of a log and chains them; `seq` and `digest` are those of the last line."""

    def __init__(self, seal: Seal, seq: int = 0, digest: str = FIRST) -> None:
        self._seal = seal
        self.seq = seq
        self.digest = digest

    def expected(self) -> bytes:
        return b'{"seq":%d,"prev":"%s","event":' % (self.seq + 1, self.digest.encode())

    def line(self, event: str, time: str, fields: Mapping[str, Any]) -> bytes:
        members = {"event": event, "time": time, **{k: v for k, v in fields.items() if k not in OWN}}
        return self.line_of(_encode(members)[len('{"event":') :])

    def line_of(self, rest: str) -> bytes:
        """The next line, of the JSON text that follows `"event":`, up to the brace that ends the line."""
        body = f'{{"seq":{self.seq + 1},"prev":"{self.digest}","event":{rest[:-1]}'.encode()
        if len(body) + _ENDING > LONGEST_LINE:
            raise ValueError(f"a line of {len(body)} bytes; at most {LONGEST_LINE} are kept")
        self.seq += 1
        self.digest = self._seal.digest(body)
        return b'%s%s%s"}' % (body, _DIGEST, self.digest.encode())

    def follow(self, line: bytes) -> bool:
        """Go on after a line, if it is the next one and has its own digest."""
        if not line.startswith(self.expected()) or not (digest := self._seal.digest_of(line)):
            return False
        self.seq, self.digest = self.seq + 1, digest
        return True


_encode: Final = json.JSONEncoder(separators=(",", ":"), allow_nan=False, check_circular=True).encode


def seal_of(key: str | bytes | None) -> Seal:
    if key is None:
        return Seal()
    data = key.encode() if isinstance(key, str) else key
    if len(data) < _SHORTEST_KEY:
        raise DefinitionError(f"the key of an audit log has at least {_SHORTEST_KEY} characters")
    return Seal(hashlib.sha256(b"mcp-toolset audit log\n" + data).digest())


_APPEND: Final = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_BINARY", 0)
_NO_LINK: Final = getattr(os, "O_NOFOLLOW", 0)
"""A link that somebody else has put in place of a file would have another file overwritten."""

_NO_WAIT: Final = getattr(os, "O_NONBLOCK", 0)
"""A pipe without a reader then fails at once, instead of holding the thread; files ignore it."""

_ROTATED: Final = re.compile(
    rb'\{"seq":(\d{1,18}),"prev":"\w{64}","event":"rotated","time":"[^"]*","file":".*?\.(\d{12})"'
)
"""The first line of a file: its number, and that of the full file before it."""

MOST_BESIDE: Final = 64  # processes that write logs of the same name at the same time
_log = logging.getLogger("mcp_toolset.audit")


def files_of(path: Path) -> list[Path]:
    """The files with the names of a log, oldest first: full ones, named by their first line, then the newest.

    Whoever can write to the folder can give a file such a name; links and pipes are left out.
    """
    pattern = re.compile(re.escape(path.name) + r"\.\d{12}")
    with suppress(FileNotFoundError), os.scandir(path.parent) as every:
        files = (one.name for one in every if one.is_file(follow_symlinks=False))
        full = [path.with_name(name) for name in sorted(filter(pattern.fullmatch, files))]
        return [*full, *([path] if path.exists() else [])]
    return []


def open_file(path: Path, flags: int) -> int:
    """Open a file itself: a link, or a pipe, that somebody else has put in its place is an `OSError`."""
    file = os.open(path, flags | _NO_LINK | _NO_WAIT | getattr(os, "O_BINARY", 0), PRIVATE)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    return file


def content_of(path: Path, most: int = -1) -> bytes:
    with os.fdopen(open_file(path, os.O_RDONLY), "rb") as opened:
        return opened.read(most)


def stamp(seconds: float) -> str:
    """A moment as lines have it: UTC, to the millisecond."""
    whole = int(seconds)
    return f"{_second(whole)}.{int((seconds - whole) * 1000):03d}Z"


@lru_cache(8)
def _second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")


class LogFiles:
    """The files of one log, open for one writer; `rest` has lines that could not be written yet."""

    def __init__(self, path: Path, seal: Seal, max_bytes: int, max_files: int) -> None:
        """Files at `path` and beside it; nothing is opened yet."""
        self.path = path
        self.rest = b""
        # How an existing log is continued: `unclean`, and `torn`: bytes of its last line that were removed.
        self.resumed: dict[str, Any] = {}
        self._seal = seal
        self._max = self._limit = max_bytes
        self._max_files = max_files
        self._file: int | None = None
        self._head_file: int | None = None
        self._size = 0
        self._first = 1
        self._full: list[int] = []
        self._dirty = False
        self._doomed: list[Path] = []

    @contextmanager
    def opened(self, beside: bool = False) -> Generator[LogFiles]:
        """Lock the log and open it; `beside` another process's log, a log of its own is written."""
        with self._locked(MOST_BESIDE if beside else 1):
            try:
                self._resume()
                yield self
            finally:
                self._close()

    def _locked(self, most: int) -> AbstractContextManager[object]:
        """The lock of the first of `most` logs that no other process writes; `path` is that log then."""
        named = self.path
        for number in range(1, most + 1):
            # `audit.2.jsonl` is beside `audit.jsonl`.
            self.path = named if number == 1 else named.with_name(f"{named.stem}.{number}{named.suffix}")
            try:
                return locked(self.path.with_name(f"{self.path.name}.lock"), 0)
            except TimeoutError:
                continue
            except OSError as fault:
                raise self._unusable(fault) from None
        self.path = named
        cause = f"{most} other processes write" if most > 1 else "another process writes"
        raise AuditError(f"{named}: {cause} this audit log; give each process a file of its own")

    @property
    def is_full(self) -> bool:
        return self.room <= 0

    @property
    def room(self) -> int:
        return self._limit - self._size - len(self.rest) if self._is_regular else 1 << 30

    def append(self, lines: bytes) -> None:
        self.rest += lines
        self.flush()

    def flush(self) -> None:
        """Write what could not be written before, and the head."""
        if not self.rest:
            return
        if self._file is None:
            self._open_newest()
        assert self._file is not None
        while self.rest:
            count = os.write(self._file, self.rest)
            self.rest = self.rest[count:]
            self._size += count
            self._dirty = True
        self._write_head()
        while self._doomed:
            self._doomed.pop().unlink(missing_ok=True)

    def sync(self) -> None:
        if self._dirty and self._is_regular and self._file is not None and self._head_file is not None:
            os.fsync(self._file)
            os.fsync(self._head_file)
        self._dirty = False

    def rotate(self) -> None:
        """Set the newest file aside and begin another, with a line that says so."""
        self.flush()
        self.sync()
        self._close_newest()
        try:
            os.rename(self.path, self._named(self._first))
        except OSError as fault:
            # It is tried again when the file has grown by as much once more.
            self._limit += self._max
            _log.warning("%s: the audit log cannot be rotated: %s", self.path, fault)
            return
        self._limit, self._size = self._max, 0
        self._full.append(self._first)
        self._begin()

    def _begin(self) -> None:
        """Begin a file after the full ones; of these, the oldest are removed if there are too many."""
        self._first = self.chain.seq + 1
        last, removed = self._named(self._full[-1]).name, self._full[: -self._max_files]
        self._full = self._full[-self._max_files :]
        self._doomed = [self._named(number) for number in removed]
        fields = {"file": last, "removed": [one.name for one in self._doomed], "from": self._full[0]}
        self.append(self.chain.line("rotated", stamp(time.time()), fields) + b"\n")

    def _named(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{number:012d}")

    def _before(self, data: bytes) -> list[int]:
        """The numbers of the full files before a file with this content, oldest first.

        The first line of each file names the one before it; what else lies there is not of this log.
        """
        numbers = list[int]()
        with suppress(OSError):
            while (rotated := _ROTATED.match(data)) and self._seal.digest_of(data.partition(b"\n")[0]):
                number = int(rotated[2])
                data = content_of(self._named(number), LONGEST_LINE)
                if not number == _number_of(data) < int(rotated[1]):
                    break
                numbers.insert(0, number)
        return numbers

    def _all_full(self) -> list[int]:
        """The numbers of the full files, where the newest file has no line to name them."""
        for file in reversed(files_of(self.path)):
            data = content_of(file, LONGEST_LINE)
            number = _number_of(data)
            if file == self._named(number) and self._seal.digest_of(data.partition(b"\n")[0]):
                return [*self._before(data), number]
        return []

    def _resume(self) -> None:
        try:
            files = [one for one in files_of(self.path) if one.stat().st_size]
            self._is_regular = not self.path.exists() or stat.S_ISREG(self.path.stat().st_mode)
            known = self._read_head()
            head = known or LogHead(salt=secrets.token_hex(32))
            self.salt = head.salt
            self.chain = Chain(self._seal, head.seq, head.digest)
            self._size, self.resumed = 0, {}
            if self._is_regular and files:
                self._continue(files, known)
            self._head_file = os.open(LogHead.path_of(self.path), os.O_RDWR | os.O_CREAT | _NO_LINK, PRIVATE)
            with suppress(*([] if self._is_regular else [OSError])):
                self._open_newest()
            self._write_head()
            if not self._size and self._is_regular:
                self._first, self._full = self.chain.seq + 1, self._all_full()
                # The last run ended before the first line of this file was written.
                if self._full:
                    self._begin()
            if known is None:
                # A log without its head is not continued, so the head is on disk before the first line.
                os.fsync(self._head_file)
        except OSError as fault:
            raise self._unusable(fault) from None

    def _read_head(self) -> LogHead | None:
        try:
            data = content_of(LogHead.path_of(self.path))
        except FileNotFoundError:
            return None
        head = ReadHead.of(data) if data.strip() else None
        if head is None:
            return None
        if not head.is_sealed(self._seal):
            what = "has a key" if head.keyed else "has no key"
            cause = (
                f"was begun differently: it {what}"
                if head.keyed != self._seal.is_keyed
                else "cannot be continued: its head was changed, or the key is another one"
            )
            raise AuditError(
                f"{self.path}: this audit log {cause}; give the log's own key, or check it with "
                "`mcp-toolset audit verify` and begin a new file"
            )
        return head.head

    def _continue(self, files: list[Path], known: LogHead | None) -> None:
        """Go on after the last whole line, whether or not the head has it."""
        newest = files[-1]
        data = content_of(newest)
        if known is None:
            if not _number_of(data):
                raise AuditError(f"{newest}: this is not an audit log; give the audit log another file")
            raise AuditError(
                f"{self.path}: the head of this audit log is missing or unreadable, so its last lines may be "
                f"gone; bring {self.path.name}.head back from a copy, or move all files of the log"
            )
        start = known.size if newest == self.path and known.size <= len(data) else 0
        start += self._followed(data[start:])
        torn = 0 if b"\n" in data[start:] or newest != self.path else len(data) - start
        if torn:
            os.truncate(newest, start)
        elif newest == self.path and not data.endswith(b"\n"):
            self.rest = b"\n"
        whole = data[: len(data) - torn]
        last = whole[whole.rstrip(b"\n").rfind(b"\n") + 1 :]
        clean = not whole or b'"event":"stopped"' in last[:200]
        state = {"unclean": not clean, "torn": torn}
        self.resumed = {name: value for name, value in state.items() if value}
        if newest == self.path:
            self._size, self._first, self._full = len(whole), _number_of(data), self._before(data)

    def _followed(self, data: bytes) -> int:
        at = 0
        while (end := data.find(b"\n", at)) >= 0 and self.chain.follow(data[at:end]):
            at = end + 1
        return at

    def _open_newest(self) -> None:
        self._file = os.open(self.path, _APPEND | _NO_WAIT | _NO_LINK, PRIVATE)

    def _write_head(self) -> None:
        assert self._head_file is not None
        head = LogHead(self.chain.seq, self.chain.digest, self._size, self.salt)
        data = head.encoded(self._seal)
        if sys.platform == "win32":
            os.lseek(self._head_file, 0, os.SEEK_SET)
            os.write(self._head_file, data)
        else:
            os.pwrite(self._head_file, data, 0)

    def _close_newest(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            os.close(file)

    def _close(self) -> None:
        with suppress(OSError):
            self.sync()
        with suppress(OSError):
            self._close_newest()
        if self._head_file is not None:
            with suppress(OSError):
                os.close(self._head_file)
            self._head_file = None

    def _unusable(self, fault: OSError) -> AuditError:
        if fault.errno == errno.ELOOP:
            return AuditError(f"{fault.filename}: this is a symbolic link; give the path of the file itself")
        return AuditError(
            f"{self.path}: the audit log cannot be opened ({fault.strerror or fault}); "
            "give a file in a folder that this user can write to"
        )


def _number_of(line: bytes) -> int:
    match = re.match(rb'\{"seq":(\d{1,18}),"prev":"', line)
    return int(match[1]) if match else 0
