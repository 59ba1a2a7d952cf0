"""What JSON costs a model in tokens, by a rule of thumb; every model counts differently."""

from __future__ import annotations

from typing import Final

__all__ = ["BYTES_PER_TOKEN", "tokens_of"]

BYTES_PER_TOKEN: Final = 4
"""Bytes per token of JSON in English."""


def tokens_of(size: int) -> int:
    """The tokens of so many bytes, rounded up."""
    return -(-size // BYTES_PER_TOKEN)
