"""Cut the text of a result between characters as a reader counts them (grapheme clusters)."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from typing import Any, Final, cast

from mcp_toolset.tools.core.result import Block


def cut(content: Iterable[Block], limit: int) -> tuple[list[Block], int]:
    """The blocks with at most `limit` characters, addresses whole or dropped, and the number of lost ones."""
    blocks: list[Block] = []
    lost = 0
    for block in content:
        text = text_of(block)
        end = _end_within(text, limit)
        if end < len(text) and block.get("type") == "resource_link":
            end = 0
        lost += len(text) - end
        limit = limit - end if end == len(text) else 0
        if end == len(text):
            blocks.append(block)
        elif end:
            blocks.append(_with_text(block, text[:end]))
    return blocks, lost


def text_of(block: Block) -> str:
    if block.get("type") == "resource_link":
        return str(block.get("uri", ""))
    resource: Any = block.get("resource")
    holder = cast("Block", resource) if isinstance(resource, dict) else block
    text = holder.get("text")
    return text if isinstance(text, str) else ""


def _with_text(block: Block, text: str) -> Block:
    if isinstance(block.get("resource"), dict):
        return {**block, "resource": {**block["resource"], "text": text}}
    return {**block, "text": text}


_JOINER: Final = "\u200d"


def _end_within(text: str, limit: int) -> int:
    """The last place at or before `limit` that is not inside a character as a reader counts them."""
    if len(text) <= limit:
        return len(text)
    return next((end for end in range(limit, 0, -1) if _is_boundary(text, end)), 0)


def _is_boundary(text: str, end: int) -> bool:
    before, after = text[end - 1], text[end]
    if _continues(after) or before == _JOINER or (before, after) == ("\r", "\n"):
        return False
    return not (_is_flag_half(after) and _flag_halves_before(text, end) % 2)


def _continues(character: str) -> bool:
    return (
        unicodedata.category(character).startswith("M")
        or character == _JOINER
        or "\U0001f3fb" <= character <= "\U0001f3ff"
        or "\u1160" <= character <= "\u11ff"
        or "\U000e0020" <= character <= "\U000e007f"
    )


def _is_flag_half(character: str) -> bool:
    return "\U0001f1e6" <= character <= "\U0001f1ff"


def _flag_halves_before(text: str, end: int) -> int:
    start = end
    while start and _is_flag_half(text[start - 1]):
        start -= 1
    return end - start
