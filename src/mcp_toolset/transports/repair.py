"""Repair messages that a strict JSON reader refuses, so that one broken entry does not cost the whole list.

The reader refuses lone surrogates (half of a character, left by a server that cuts texts in the middle) and
values that are nested more than 200 levels deep. As a rule both come from one entry of a list.
A repaired entry is marked, so that the catalog sets that entry aside.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator
from typing import Any, Final, cast

import httpx2

from mcp_toolset.catalog.snapshot import LOST_CHARACTER

__all__ = ["RepairedEvents", "readable", "repaired"]

MAX_DEPTH: Final = 150
"""Levels of a message that are kept. Schemas may have far fewer, so that a cut one is refused as too deep."""

_LISTS: Final = ("tools", "prompts", "resources", "resourceTemplates")
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_ESCAPED_SURROGATE: Final = re.compile(rb"\\u[dD][89a-fA-F]")
_DATA: Final = b"data:"


def repaired(line: bytes) -> Any:
    """The message in a line that could not be read strictly.

    What is nested too deep is cut in lists alone, whose entries are checked one by one.

    Raises:
        ValueError: it is no JSON at all, or is nested too deep and is no list.
    """
    try:
        message: object = json.loads(line)
        return _kept(message, MAX_DEPTH, cut=_is_list(message))
    except RecursionError:
        raise ValueError("it is nested too deep to be read") from None


def _is_list(message: object) -> bool:
    result: object = cast("dict[str, object]", message).get("result") if isinstance(message, dict) else None
    return isinstance(result, dict) and any(key in result for key in _LISTS)


def _kept(value: Any, levels: int, *, cut: bool) -> Any:
    if isinstance(value, str):
        return _SURROGATE.sub(LOST_CHARACTER, value)
    if not isinstance(value, dict | list):
        return value
    if not levels:
        if not cut:
            raise ValueError("it is nested too deep to be read")
        return None
    if isinstance(value, list):
        return [_kept(item, levels - 1, cut=cut) for item in cast("list[Any]", value)]
    items = cast("dict[str, Any]", value).items()
    return {_kept(key, 1, cut=cut): _kept(item, levels - 1, cut=cut) for key, item in items}


class RepairedEvents(httpx2.AsyncByteStream):
    """A stream of server-sent events whose messages can be read strictly."""

    def __init__(self, body: Any) -> None:
        """Repair the events of `body`."""
        self._body = body

    async def __aiter__(self) -> AsyncGenerator[bytes]:
        begun: list[bytes] = []
        async for chunk in self._body:
            whole, end, rest = chunk.rpartition(b"\n")
            if not end:
                begun.append(chunk)
                continue
            lines, begun = b"".join((*begun, whole, end)), [rest] if rest else []
            yield lines if _is_plain(lines) else b"".join(map(_event_line, lines.splitlines(keepends=True)))
        if begun:
            yield b"".join(begun)

    async def aclose(self) -> None:
        """Close the stream below."""
        await self._body.aclose()


def readable(body: bytes) -> bytes:
    """The JSON of a message in a form that can be read strictly; what is no JSON stays as it is."""
    if _is_plain(body):
        return body
    try:
        return json.dumps(repaired(body), ensure_ascii=False, separators=(",", ":")).encode()
    except ValueError:
        return body


def _is_plain(data: bytes) -> bool:
    """Whether there is nothing to repair, as far as a quick look tells."""
    return data.count(b"{") + data.count(b"[") <= MAX_DEPTH and not _ESCAPED_SURROGATE.search(data)


def _event_line(line: bytes) -> bytes:
    if not line.startswith(_DATA) or _is_plain(line):
        return line
    return b"data: %b\n" % readable(line[len(_DATA) :].strip())
