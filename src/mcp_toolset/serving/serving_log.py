"""`logged`: what a process that serves keeps of its log records, also of those that stderr does not show.

The file is opened a moment after serving began, or with the first warning, so that the start takes no longer.
Other handlers get the records that they got before: this package's level is lowered for the file alone.
"""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any, Final

import anyio

from mcp_toolset import __version__
from mcp_toolset._records import dataclass
from mcp_toolset.tools.source import STDERR_LOGGER, Scrubbing

if TYPE_CHECKING:
    from mcp_toolset.server.server import ToolsetServer

VARIABLE: Final = "MCP_TOOLSET_LOG"
"""The environment variable that names another folder; `off` for no log."""

LEVEL_VARIABLE: Final = "MCP_TOOLSET_LOG_LEVEL"
"""The environment variable that names the least level of the lines that are kept."""

OFF: Final = "off"

PART: Final = 1 << 20
"""Bytes of a file."""

PARTS: Final = 4
"""Files that one process keeps."""

FOLDER: Final = 32 << 20
"""Bytes of all files in the folder; beyond that the oldest are removed."""

MOST: Final = 200
"""Files in the folder."""

AGE: Final = 14 * 86_400.0
"""Seconds after its last line after which a file is removed."""

NAME: Final = re.compile(r"(?P<run>\d{8}T\d{6}-\d+)\.(?P<part>\d{4,})\.jsonl")

_CREATE: Final = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL
_BINARY: Final = getattr(os, "O_BINARY", 0)


def log_folder() -> Path:
    """The folder, by `MCP_TOOLSET_LOG` or else by the convention of the platform."""
    path = os.environ.get(VARIABLE, "")
    if path and path != OFF:
        return Path(path)
    # It takes as long to import as this room, and the file is opened once a server serves.
    from platformdirs import user_log_path

    return user_log_path("mcp-toolset")


class LogFile:
    """The log of this process."""

    def __init__(self, folder: Path, first: Callable[[], bytes]) -> None:
        """Name the folder; the first line creates the file.

        Args:
            folder: The folder, which is made when it is needed.
            first: The line with which each file begins.
        """
        self.folder = folder  # the folder of the files
        self._first = first
        self._run = f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{os.getpid()}"
        self._part = 0
        self._file: int | None = None
        self._size = 0

    def write(self, line: bytes) -> None:
        """Add a line, which ends with a line break: all of it, or nothing."""
        if self._file is None or self._size + len(line) > PART or not os.fstat(self._file).st_nlink:
            self._next()
        assert self._file is not None
        data = line if self._size else self._first() + line
        written = os.write(self._file, data)
        if written < len(data):
            # The disk is full: half a line would spoil the next one.
            os.ftruncate(self._file, self._size)
            raise OSError("the disk is full")
        self._size += written

    def close(self) -> None:
        """Close the file; another line would open the next one."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _next(self) -> None:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.close()
        while self._file is None:
            self._part += 1
            with suppress(FileExistsError):
                self._file = os.open(self._path(self._part), _CREATE | _BINARY, 0o600)
        self._size = 0
        self._remove_old()

    def _path(self, part: int) -> Path:
        return self.folder / f"{self._run}.{part:04d}.jsonl"

    def _remove_old(self) -> None:
        # What another process removes at the same time is gone, and Windows keeps files that are open.
        with suppress(OSError):
            self._path(self._part - PARTS).unlink()
        try:
            files = [(one.stat(), one) for one in os.scandir(self.folder) if NAME.fullmatch(one.name)]
        except OSError:
            return
        files.sort(key=lambda each: each[0].st_mtime, reverse=True)
        size, oldest = 0, time.time() - AGE
        for number, (status, one) in enumerate(files):
            size += status.st_size
            if number >= MOST or size > FOLDER or status.st_mtime < oldest:
                with suppress(OSError):
                    os.unlink(one)


_OURS: Final = "mcp_toolset"
_DECISIONS: Final = "mcp_toolset.hooks"

Keep = Callable[[logging.LogRecord], None]


class Handlers:
    """The handlers of one log, and the levels that were changed for it."""

    def __init__(self, keep: Keep) -> None:
        """Nothing is changed yet; `keep` takes records."""
        self._package, self._root = logging.getLogger(_OURS), logging.getLogger()
        self._before: dict[str, int] = {}
        self._former = self._package.handlers[:], self._package.propagate
        self._others = _Others(keep)
        self._kept = _PackageHandler(keep, self._before, *self._former)

    def begin(self, level: int) -> None:
        self._root.addHandler(self._others)
        self._package.handlers, self._package.propagate = [self._kept], False
        self.lower(level)

    def lower(self, level: int) -> None:
        self._restore()
        decisions = logging.getLogger(_DECISIONS)
        is_told = decisions.isEnabledFor(logging.INFO)
        self._set(_OURS, min(level, self._package.getEffectiveLevel()))
        if level <= logging.INFO:
            # What servers write to stderr is kept as information.
            self._set(STDERR_LOGGER, logging.DEBUG)
        if level > logging.DEBUG and not is_told:
            # There is a record for each hook and call, which would cost every call.
            self._set(_DECISIONS, logging.WARNING)

    def end(self) -> None:
        self._restore()
        self._root.removeHandler(self._others)
        if self._kept in self._package.handlers:
            # Among them may be one that a program has added meanwhile.
            later = [handler for handler in self._package.handlers if handler is not self._kept]
            self._package.handlers = [*self._former[0], *later]
            self._package.propagate = self._former[1]

    def tell_others(self, message: str) -> None:
        """Give a warning to the handlers that are not of this log."""
        record = logging.LogRecord(_OURS, logging.WARNING, __file__, 0, message, (), None)
        self._kept.hand_on(record)

    def _set(self, name: str, level: int) -> None:
        logger = logging.getLogger(name)
        self._before[name] = logger.level
        logger.setLevel(level)

    def _restore(self) -> None:
        for name, level in self._before.items():
            logging.getLogger(name).setLevel(level)
        self._before.clear()


class _PackageHandler(logging.Handler):
    """At the logger of this package."""

    def __init__(
        self, keep: Keep, before: Mapping[str, int], handlers: list[logging.Handler], propagates: bool
    ) -> None:
        super().__init__()
        self._keep = keep
        self._before = before
        self._handlers = handlers
        self._propagates = propagates

    def emit(self, record: logging.LogRecord) -> None:
        self._keep(record)
        if record.levelno >= self._asked(record.name):
            self.hand_on(record)

    def hand_on(self, record: logging.LogRecord) -> None:
        for handler in self._handlers:
            if record.levelno >= handler.level:
                handler.handle(record)
        if self._propagates:
            logging.getLogger().callHandlers(record)

    def _asked(self, name: str) -> int:
        """The level of a logger without the changes that were made for the log."""
        logger: logging.Logger | None = logging.getLogger(name)
        while logger is not None:
            if level := self._before.get(logger.name, logger.level):
                return level
            logger = logger.parent
        return 0


class _Others(logging.Handler):
    """At the root: keeps the records of other packages."""

    def __init__(self, keep: Keep) -> None:
        super().__init__()
        self._keep = keep

    def emit(self, record: logging.LogRecord) -> None:
        if record.name.partition(".")[0] != _OURS:
            self._keep(record)
        last = logging.lastResort
        # Python shows warnings if there is no handler, and this one is not meant to be seen.
        if last is not None and logging.getLogger().handlers == [self] and record.levelno >= last.level:
            last.handle(record)


_log: Final = logging.getLogger("mcp_toolset.log")
_NUMBERS: Final = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}

SOON: Final = 0.25
"""Seconds after the start within which the file is opened."""

BRIDGED: Final = "MCP_TOOLSET_CHAIN"
"""The variable that a bridge sets for its servers; see `config.chain`. It keeps their stderr."""


@dataclass(frozen=True, slots=True)
class LogChoice:
    """The log options of the command line or of a program; they have precedence over the environment.

    Attributes:
        place: The folder; `False` for no log, `None` for the environment's or the configuration's choice.
        level: The least level that is kept, likewise.
    """

    place: Path | bool | None = None
    level: str | None = None

    def number(self, configured: Mapping[str, Any] | None = None) -> int:
        """The level; `configured` is `toolset.log` of the file."""
        level = self.level or os.environ.get(LEVEL_VARIABLE, "").lower()
        return _NUMBERS.get(level) or _NUMBERS[(configured or {}).get("level", "info")]

    def folder(self, configured: Mapping[str, Any] | None) -> Path | None:
        """The folder, or `None` for no log; `configured` is `toolset.log` of the file, `None` for no log."""
        path = os.environ.get(VARIABLE, "")
        if isinstance(self.place, Path):
            return self.place
        if self.place is False or path == OFF or BRIDGED in os.environ:
            return None
        if path:
            return log_folder()
        if configured is None:
            return None
        named = configured.get("folder")
        return log_folder() if named is None else Path(named)


class ServingLog:
    """Keeps the records of this process."""

    def __init__(self, choice: LogChoice, served: str) -> None:
        self.served = served  # what is served, for readers of several logs
        self._choice = choice
        self._configured: Mapping[str, Any] | None = {}
        self._server: ToolsetServer | None = None
        self._one_client = False
        self._file: LogFile | None = None
        self._level = 0
        self._waiting: list[logging.LogRecord] | None = []
        self._client = ""
        self._lost = 0
        self._began: float | None = time.time()
        self._lock = RLock()
        self._handlers = Handlers(self.keep)
        self._handlers.begin(choice.number())
        level = os.environ.get(LEVEL_VARIABLE, "")
        if level and level.lower() not in _NUMBERS:
            warning = "%s is %r, which is no level; the log keeps info. Set it to one of %s"
            _log.warning(warning, LEVEL_VARIABLE, level, ", ".join(_NUMBERS))

    def follow(self, server: ToolsetServer, *, one_client: bool) -> None:
        """Take the choice of its configuration, and blank what its mounted servers know to be secret.

        Args:
            server: The served server.
            one_client: True if all records are about one client, as over stdio.
        """
        self._server, self._one_client = server, one_client
        if server.configured is not None:
            self._configured = server.configured.config.log
            self.served = str(server.configured.config.path)

    async def soon(self) -> None:
        """Open the file once the first lists have been answered."""
        await anyio.sleep(SOON)
        self.open()
        if self._file is None:
            self._handlers.end()

    def open(self) -> None:
        """Open the file, with what was kept in memory; without effect from then on."""
        if (waiting := self._waiting) is None:
            return
        self._waiting = None
        if (folder := self._choice.folder(self._configured)) is None:
            return
        self._level = self._choice.number(self._configured)
        self._handlers.lower(self._level)
        self._file = LogFile(folder, self._first)
        for record in waiting:
            self.keep(record)

    def keep(self, record: logging.LogRecord) -> None:
        if self._waiting is not None:
            self._waiting.append(record)
            return
        if self._file is None:
            return
        from mcp_toolset.serving.log_lines import json_line, kept_level, plain_line

        # A thread of the program may log at the same time.
        with self._lock:
            if self._one_client:
                # All later lines are about this client.
                self._client = record.__dict__.get("client") or self._client
                record.__dict__.setdefault("client", self._client)
            try:
                line = json_line(record, self.clear)
            # The arguments of a record are objects of a program, and their texts may raise anything.
            except Exception as fault:
                line = plain_line("error", f"a record of {record.name} has no text: {type(fault).__name__}")
            self._write(kept_level(record), line)

    def say(self, level: int, message: str, fault: BaseException | None = None) -> None:
        """Keep a line that is told nowhere else."""
        record = logging.LogRecord("mcp_toolset.serving", level, __file__, 0, message, (), None)
        if fault is not None:
            record.__dict__["error"] = type(fault).__name__
        self.keep(record)

    def clear(self, text: str) -> str:
        """A text without the secrets that are known, and without what looks like one."""
        # No line is written by most starts, and few have credentials in them.
        from mcp_toolset.security.facts import without_credentials

        for source in () if self._server is None else self._server.toolset.sources():
            if isinstance(source, Scrubbing):
                text = source.scrubbed(text)
        return without_credentials(text)

    def close(self) -> None:
        """Write what is still in memory, and close the file."""
        self.open()
        self._handlers.end()
        if self._file is not None:
            self._file.close()
            self._file = None

    def _write(self, level: int, line: str) -> None:
        if self._file is None or level < self._level:
            return
        text = f"{line}\n"
        if self._lost:
            from mcp_toolset.serving.log_lines import plain_line

            text = plain_line("error", f"{self._lost} lines of this log were lost") + "\n" + text
        try:
            self._file.write(text.encode(errors="backslashreplace"))
        except OSError as fault:
            self._lost += 1
            if self._lost == 1:
                mend = f"mend that, or name another folder with {VARIABLE}"
                self._handlers.tell_others(
                    f"the log in {self._file.folder} cannot be written ({fault}); serving goes on; {mend}"
                )
            return
        self._lost = 0

    def _first(self) -> bytes:
        from mcp_toolset.serving.log_lines import plain_line

        facts = {"logger": "mcp_toolset.serving", "served": self.served}
        facts |= {"client": self._client} if self._client else {}
        line = plain_line("info", f"mcp-toolset {__version__} serves {self.served}", self._began, **facts)
        self._began = None
        return f"{line}\n".encode(errors="backslashreplace")


@contextmanager
def logged(choice: LogChoice, served: str) -> Generator[ServingLog]:
    """Keep the records of this process for the length of a block, and the error that ends it."""
    log = ServingLog(choice, served)
    try:
        yield log
        log.say(logging.INFO, "ended")
    except (KeyboardInterrupt, SystemExit):
        log.say(logging.INFO, "ended")
        raise
    except BaseException as fault:
        log.say(logging.ERROR, f"ended: {fault}", fault)
        raise
    finally:
        log.close()
