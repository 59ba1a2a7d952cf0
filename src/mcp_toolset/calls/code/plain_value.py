"""`plain_value`: values of a snippet in a JSON form, within a budget.

A snippet may return objects of which each part is shared many times over: a few hundred bytes that are
gigabytes when they are written out. So parts are counted as often as they are written.
"""

from __future__ import annotations

import base64
import datetime
import json
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import Any, Final, Protocol, cast, runtime_checkable

MAX_BYTES: Final = 1_000_000
"""The budget of a value that is written out: bytes of JSON text, and some for each part."""

_PART: Final = 16

MAX_DEPTH: Final = 64
"""Containers within containers."""

_LONGEST_INT: Final = 64
_CUT: Final = "…"


@runtime_checkable
class _Instance(Protocol):
    """An instance of a class of the snippet."""

    @property
    def name(self) -> str: ...

    @property
    def attributes(self) -> dict[str, Any]: ...


def plain_value(value: object, budget: int = MAX_BYTES) -> tuple[Any, bool]:
    """The value with nothing but what JSON has, and whether it is whole; what is too much becomes `…`."""
    writer = _Writer(budget)
    return writer.written(value, 0), not writer.is_cut


class _Writer:
    """Writes values, and counts their bytes."""

    def __init__(self, budget: int) -> None:
        self._left = budget
        self.is_cut = False

    def written(self, value: object, depth: int) -> Any:
        if self._left <= 0 or depth > MAX_DEPTH:
            self.is_cut = True
            return _CUT
        self._left -= _PART
        if isinstance(value, bool | None):
            return value
        if isinstance(value, int):
            return self._number(value)
        if isinstance(value, float):
            return self._spent(value if value == value and abs(value) != float("inf") else None, 8)
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, Mapping):
            return self._mapping(cast("Mapping[Any, Any]", value), depth)
        if isinstance(value, list | tuple | AbstractSet):
            return self._items(cast("Iterable[Any]", value), depth)
        return self._other(value, depth)

    def _spent(self, value: Any, size: int) -> Any:
        self._left -= size
        return value

    def _number(self, value: int) -> Any:
        if value.bit_length() <= _LONGEST_INT:
            return self._spent(value, 8)
        # JSON readers have no larger integers, and writing a huge one takes its time.
        return self._text(str(value) if value.bit_length() <= 4096 else f"<int of {value.bit_length()} bits>")

    def _text(self, text: str) -> str:
        size = len(json.dumps(text[: self._left], ensure_ascii=False).encode("utf-8", "replace"))
        if len(text) > self._left:
            self.is_cut = True
            text = text[: self._left] + _CUT
        return self._spent(text.encode("utf-8", "replace").decode(), size)

    def _mapping(self, value: Mapping[Any, Any], depth: int) -> dict[str, Any]:
        written: dict[str, Any] = {}
        for key, each in value.items():
            if self._left <= 0:
                self.is_cut = True
                break
            name = key if isinstance(key, str) else _key(self.written(key, depth + 1))
            written[self._text(name)] = self.written(each, depth + 1)
        return written

    def _items(self, values: Iterable[Any], depth: int) -> list[Any]:
        written: list[Any] = []
        for each in values:
            if self._left <= 0:
                self.is_cut = True
                break
            written.append(self.written(each, depth + 1))
        return written

    def _other(self, value: object, depth: int) -> Any:
        if isinstance(value, bytes):
            self.is_cut = self.is_cut or len(value) > self._left
            return self._text(base64.b64encode(value[: self._left]).decode())
        if isinstance(value, datetime.date | datetime.time):
            return self._text(value.isoformat())
        if isinstance(value, datetime.timedelta):
            return self._spent(value.total_seconds(), 10)
        if isinstance(value, _Instance):
            return self._mapping(value.attributes, depth)
        return self._text(f"<{type(value).__name__}>")


def _key(written: Any) -> str:
    return written if isinstance(written, str) else json.dumps(written)
