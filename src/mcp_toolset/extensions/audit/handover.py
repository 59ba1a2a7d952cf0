"""Events for an audit log that another process writes: a file beside the log, which that process takes over.

A command such as `mcp-toolset login` appends its event to `….handed`. The process that writes the log looks
for the file every few seconds, puts the events into its chain and removes the file. Each event is sealed with
the key and the salt of the log, so no other log takes it.
"""

from __future__ import annotations

import errno
import hmac
import json
import logging
import os
import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from threading import Event
from typing import Any, Final, cast

from mcp_toolset.concurrency.atomic_file import LOCK_STEP, locked
from mcp_toolset.errors import AuditError
from mcp_toolset.extensions.audit.chain import Head, ReadHead, Seal
from mcp_toolset.extensions.audit.log_files import content_of, open_file, stamp

_PATIENCE: Final = 5.0
"""Seconds to wait for another process that writes or takes the file, or begins the log."""

_log = logging.getLogger("mcp_toolset.audit")


def hand_over(log: Path, seal: Seal, event: str, fields: Mapping[str, Any]) -> None:
    """Keep an event for the process that writes the log."""
    named = {**fields, "at": stamp(time.time()), "id": secrets.token_hex(8)}
    said = json.dumps({"event": event, "fields": named})
    try:
        with locked(_place(log, ".handed.lock"), _PATIENCE):
            sealed = {"said": said, "seal": _sealed(seal, _salt_of(log), said)}
            file = open_file(_place(log, ".handed"), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
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


def handed_over(log: Path, seal: Seal, salt: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The events that other processes have kept for the log; they are removed after the last one."""
    place = _place(log, ".handed")
    if not os.path.lexists(place):
        return
    try:
        with locked(_place(log, ".handed.lock"), _PATIENCE):
            for line in filter(None, content_of(place).splitlines()):
                if (found := _read(seal, salt, line)) is None:
                    _log.error("%s: a line is not for this log, or was changed; it is not recorded", place)
                else:
                    yield found
            place.unlink()
    except OSError as fault:
        _log.error("%s: its events cannot be taken over: %s", place, fault)


def _read(seal: Seal, salt: str, line: bytes) -> tuple[str, Mapping[str, Any]] | None:
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
    until, pause = time.monotonic() + _PATIENCE, Event()
    while time.monotonic() < until:
        with suppress(FileNotFoundError):
            if (read := ReadHead.of(content_of(Head.path_of(log)))) is not None:
                return read.head.salt
        pause.wait(LOCK_STEP)
    raise OSError(errno.ENOENT, "its head is missing")


def _sealed(seal: Seal, salt: str, said: str) -> str:
    return seal.digest(f"handed {salt} {said}".encode())


def _place(log: Path, suffix: str) -> Path:
    return log.with_name(log.name + suffix)
