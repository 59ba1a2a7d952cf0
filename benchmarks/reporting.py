"""The header of a report: the machine and the versions that the figures were measured with."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any

PACKAGES = ("mcp-toolset", "mcp", "fastmcp", "pydantic", "anyio", "jsonschema-rs")


def surroundings(benchmark: str, options: Mapping[str, Any]) -> Callable[[], dict[str, Any]]:
    """Note the load now; what comes back makes the head of the report when all is measured."""
    before = os.getloadavg()

    def finished() -> dict[str, Any]:
        return {
            "benchmark": benchmark,
            "when": datetime.now(UTC).isoformat(timespec="seconds"),
            "machine": {
                "system": platform.system(),
                "architecture": platform.machine(),
                "cpus": os.cpu_count(),
                "load_before": before,
                "load_after": os.getloadavg(),
            },
            "versions": {"python": platform.python_version(), **versions()},
            "options": dict(options),
        }

    return finished


def versions() -> dict[str, str | None]:
    """The versions of what is compared, and of what it stands on; `None` where it is not installed."""
    found: dict[str, str | None] = {}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = None
    return found


def say(benchmark: str, text: str) -> None:
    """Report progress on standard error."""
    print(f"{benchmark}: {text}", file=sys.stderr)
