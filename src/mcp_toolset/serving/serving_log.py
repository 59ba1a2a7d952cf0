"""`logged`: what a process that serves keeps of its log records, also of those that stderr does not show.

The file is opened a moment after serving began, or with the first warning, so that the start takes no longer.
Other handlers get the records that they got before: this package's level is lowered for the file alone.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from threading import RLock
from time import time
from typing import TYPE_CHECKING, Any, Final

import anyio

from mcp_toolset import __version__
from mcp_toolset._records import dataclass
from mcp_toolset.serving.log_file import LEVEL_VARIABLE, OFF, VARIABLE, LogFile, log_folder
from mcp_toolset.serving.log_handlers import Handlers
from mcp_toolset.tools.source import Scrubbing

if TYPE_CHECKING:
    from mcp_toolset.server.server import ToolsetServer

__all__ = ["LogChoice", "ServingLog", "logged"]

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
"""What a bridge sets for the servers that it starts; see `config.chain`. It keeps their stderr."""


@dataclass(frozen=True, slots=True)
class LogChoice:
    """What the command line or a program says of the log; it has precedence over the environment.

    Attributes:
        place: The folder; `False` for no log, `None` for the environment's or the configuration's choice.
        level: The least level that is kept, likewise.
    """

    place: Path | bool | None = None
    level: str | None = None

    def number(self, configured: Mapping[str, Any] | None = None) -> int:
        """The level; `configured` is `toolset.log` of the file."""
        said = self.level or os.environ.get(LEVEL_VARIABLE, "").lower()
        return _NUMBERS.get(said) or _NUMBERS[(configured or {}).get("level", "info")]

    def folder(self, configured: Mapping[str, Any] | None) -> Path | None:
        """The folder, or `None` for no log; `configured` is `toolset.log` of the file, `None` for no log."""
        said = os.environ.get(VARIABLE, "")
        if isinstance(self.place, Path):
            return self.place
        if self.place is False or said == OFF or BRIDGED in os.environ:
            return None
        if said:
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
        self._began: float | None = time()
        self._lock = RLock()
        self._handlers = Handlers(self.keep)
        self._handlers.begin(choice.number())
        level = os.environ.get(LEVEL_VARIABLE, "")
        if level and level.lower() not in _NUMBERS:
            told = "%s is %r, which is no level; the log keeps info. Set it to one of %s"
            _log.warning(told, LEVEL_VARIABLE, level, ", ".join(_NUMBERS))

    def follow(self, server: ToolsetServer, *, one_client: bool) -> None:
        """Take the choice of its configuration, and blank what its mounted servers know to be secret.

        Args:
            server: What is served.
            one_client: Whether all records are about one client, as over stdio.
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

        told = {"logger": "mcp_toolset.serving", "served": self.served}
        told |= {"client": self._client} if self._client else {}
        line = plain_line("info", f"mcp-toolset {__version__} serves {self.served}", self._began, **told)
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
