"""`LogReader`: the lines of all logs in a folder, in the order of time, and those that come later."""

from __future__ import annotations

import heapq
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, cast

from mcp_toolset._records import dataclass
from mcp_toolset.errors import StoreError
from mcp_toolset.serving.serving_log import NAME, VARIABLE

__all__ = ["LogLine", "LogReader"]

_READ: Final = os.O_RDONLY | getattr(os, "O_BINARY", 0)


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line of a log."""

    fields: Mapping[str, Any]  # what the line says; see `log_lines`
    served: str  # what the process serves that wrote it
    run: str  # the process

    def text(self, name: str) -> str:
        """The text of a field; empty if the line has none."""
        value = self.fields.get(name)
        return "" if value is None else str(value)


class _FileTail:
    """One file, read as far as it was written."""

    def __init__(self, run: str) -> None:
        self.run = run
        self.at = 0
        self._rest = b""
        self._served = ""

    def news(self, path: str, size: int) -> Iterator[LogLine]:
        """The whole lines that are new."""
        if size < self.at:
            self.at, self._rest = 0, b""
        if size == self.at:
            return
        with open(os.open(path, _READ), "rb") as file:
            file.seek(self.at)
            data = file.read()
        self.at += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            if (fields := _fields(line)) is not None:
                self._served = str(fields.get("served") or self._served)
                yield LogLine(fields, self._served, self.run)


class LogReader:
    """Reads the logs in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._files: dict[str, _FileTail] = {}

    def news(self) -> list[LogLine]:
        """The lines that were written since this was called last: at first, all."""
        runs: dict[str, list[LogLine]] = {}
        for name, entry in sorted(self._entries().items()):
            match = NAME.fullmatch(name)
            assert match is not None
            followed = self._files.setdefault(name, _FileTail(match["run"]))
            try:
                news = followed.news(entry.path, entry.stat(follow_symlinks=False).st_size)
                runs.setdefault(followed.run, []).extend(news)
            except FileNotFoundError:
                # It was the oldest one, and has just been removed.
                continue
            except OSError as fault:
                raise self._unreadable(fault) from None
        # The lines of one process stay in the order in which it wrote them, whatever its clock does.
        return list(heapq.merge(*runs.values(), key=lambda line: line.text("time")))

    def _entries(self) -> dict[str, os.DirEntry[str]]:
        try:
            with os.scandir(self.folder) as entries:
                files = (
                    entry
                    for entry in entries
                    if NAME.fullmatch(entry.name) and entry.is_file(follow_symlinks=False)
                )
                return {file.name: file for file in files}
        except FileNotFoundError:
            return {}
        except OSError as fault:
            raise self._unreadable(fault) from None

    def _unreadable(self, fault: OSError) -> StoreError:
        mend = f"correct its owner and mode, or name another folder with {VARIABLE}"
        return StoreError(f"{self.folder}: the log cannot be read ({fault.strerror}); {mend}")


def _fields(line: bytes) -> Mapping[str, Any] | None:
    try:
        value: object = json.loads(line)
    # A line that was cut off, or is none of ours.
    except ValueError:
        return None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None
