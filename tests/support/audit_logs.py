"""The lines of audit logs, and the verdict of `mcp-toolset audit verify` on them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from tests.cli.in_process import run_here


def lines(path: Path, *events: str) -> list[dict[str, Any]]:
    """The lines of some events, or all; the last line may be half written, and is left out then."""
    written = path.read_bytes().rpartition(b"\n")[0]
    every = [json.loads(line) for line in written.splitlines()]
    return [line for line in every if not events or line["event"] in events]


def events(path: Path) -> list[str]:
    return [line["event"] for line in lines(path)]


def files_of(path: Path) -> list[Path]:
    """The files of a log, the oldest first."""
    return [*sorted(path.parent.glob(f"{path.name}.[0-9]*")), path]


def checked(path: Path, key: str | None = None) -> dict[str, Any]:
    """The verdict of the command on a log, as JSON."""
    words = ["audit", "verify", str(path), "--json", *(["--key-env", "KEY_OF_THE_LOG"] if key else [])]
    done = run_here(words, path.parent, {**os.environ, "KEY_OF_THE_LOG": key or ""}, "")
    (said,) = json.loads(done.stdout)
    return said


def unbroken(path: Path, key: str | None = None) -> bool:
    return checked(path, key)["finding"] is None
