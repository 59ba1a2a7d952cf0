"""`Case`: one run of a sweep, shared by that over upstream servers and that over clients."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Case:
    """One fault at one message."""

    transport: str
    modern: bool
    fault: str
    at: int

    def __str__(self) -> str:
        era = "modern" if self.modern else "legacy"
        return f"{self.transport} {era}: {self.fault} at message {self.at}"
