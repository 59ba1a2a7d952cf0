"""`Sections`: named parts of one file, mapped into memory or copied; `Strings`: a table of strings in it.

A file begins with its kind, a checksum of the rest and a table of its sections. A file that is damaged, cut
short, or made by other code is refused as a whole. Numbers are arrays in the order of bytes of this machine.
"""

from __future__ import annotations

import json
import mmap
import os
import sys
import zlib
from array import array
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from functools import cache
from hashlib import blake2b
from itertools import accumulate
from typing import Any, Final, TypeAlias, TypeVar, overload
from unicodedata import unidata_version

from mcp_toolset.concurrency.atomic_file import opened
from mcp_toolset.errors import InvalidStateError

_KIND: Final = b"mcp-toolset index\n"
NUMBER: Final = 4
_HEAD: Final = len(_KIND) + 2 * NUMBER
_ALIGNED: Final = 8

_T = TypeVar("_T")
Parts: TypeAlias = dict[str, bytes]
"""The content of each section of a file."""

_CODED: Final = ("utf-8", "surrogatepass")


@cache
def made_by() -> str:
    """What an index depends on beside its tools: the code and tables of search, the order of bytes."""
    digest = blake2b(f"{unidata_version} {sys.byteorder}".encode(), digest_size=16)
    search = os.path.dirname(os.path.dirname(__file__))
    walked = [*os.walk(search), *os.walk(os.path.join(search, "../../tools/text"))]
    paths = [os.path.join(folder, name) for folder, _, names in walked for name in names]
    for path in sorted(path for path in paths if "__pycache__" not in path):
        if path.endswith((".py", ".pyc", ".json")):
            with open(path, "rb") as file:
                digest.update(file.read())
        elif path.endswith((".txt", ".bin")):
            # They are large, and `table.json` says how they were made.
            digest.update(os.stat(path).st_size.to_bytes(NUMBER, "big"))
    if not paths:
        # The package is in an archive.
        from importlib.metadata import version

        digest.update(version("mcp-toolset").encode())
    return digest.hexdigest()


class Sections(Mapping[str, memoryview]):
    """The sections of a file by name."""

    def __init__(self, whole: memoryview) -> None:
        """Look at a file's bytes; they must not change."""
        if bytes(whole[: len(_KIND)]) != _KIND:
            raise InvalidStateError("it is no index of a search")
        stated, size = array("I", bytes(whole[len(_KIND) : _HEAD]).ljust(2 * NUMBER))
        if zlib.crc32(whole[_HEAD - NUMBER :]) != stated:
            raise InvalidStateError("it is damaged or cut short")
        table: dict[str, Any] = json.loads(bytes(whole[_HEAD : _HEAD + size]))
        if table["made_by"] != made_by():
            raise InvalidStateError("another version of mcp-toolset wrote it")
        start = _aligned(_HEAD + size)
        self._parts = {
            name: whole[start + at : start + at + length] for name, (at, length) in table["parts"].items()
        }

    def __getitem__(self, name: str) -> memoryview:
        return self._parts[name]

    def __iter__(self) -> Any:
        return iter(self._parts)

    def __len__(self) -> int:
        return len(self._parts)

    def json(self, name: str) -> Any:
        return json.loads(bytes(self[name]))

    def numbers(self, name: str) -> memoryview[int]:
        """A section of whole numbers from 0."""
        return self[name].cast("I")

    def strings(self, name: str) -> Strings:
        return Strings(self.numbers(f"{name} starts"), self[name])


def mapped(path: str | os.PathLike[str]) -> Sections:
    """The sections of a file, mapped: its pages are shared between processes.

    The file may be replaced or removed at any time. If it is cut short in place, the process is killed.
    """
    with open(path, "rb") as file:
        if os.fstat(file.fileno()).st_size <= _HEAD:
            raise InvalidStateError("it is damaged or cut short")
        return Sections(memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)))


def copied(path: str | os.PathLike[str], check: Callable[[os.stat_result], object]) -> Sections:
    """The sections of a file that others may do anything to: a copy in the memory of this process.

    Args:
        path: The file.
        check: Raises `InvalidStateError` for a file that must not be read.
    """
    with opened(path) as file:
        check(os.fstat(file.fileno()))
        content = file.read()
    if len(content) <= _HEAD:
        raise InvalidStateError("it is damaged or cut short")
    return Sections(memoryview(content))


def whole(steps: Generator[None, None, _T]) -> _T:
    """The result of work that is done in steps, all of them taken now."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


def written(parts: Parts) -> bytes:
    """The content of a file with these sections."""
    starts = accumulate((_aligned(len(part)) for part in parts.values()), initial=0)
    table = {name: (at, len(part)) for at, (name, part) in zip(starts, parts.items(), strict=False)}
    head = json.dumps({"made_by": made_by(), "parts": table}).encode()
    rest = array("I", [len(head)]).tobytes() + head
    rest = b"".join(
        [rest, bytes(_aligned(_HEAD + len(head)) - _HEAD - len(head)), *map(_filled, parts.values())]
    )
    return _KIND + array("I", [zlib.crc32(rest)]).tobytes() + rest


def _aligned(size: int) -> int:
    return -(-size // _ALIGNED) * _ALIGNED


def _filled(part: bytes) -> bytes:
    return part.ljust(_aligned(len(part)), b"\0")


class Strings(Sequence[bytes]):
    """Strings in a file, as UTF-8; those of a sorted table can be searched with `bisect`."""

    def __init__(self, starts: memoryview[int], whole: memoryview) -> None:
        self._starts = starts
        self._whole = whole

    def __len__(self) -> int:
        return len(self._starts) - 1

    @overload
    def __getitem__(self, at: int) -> bytes: ...
    @overload
    def __getitem__(self, at: slice) -> list[bytes]: ...
    def __getitem__(self, at: int | slice) -> bytes | list[bytes]:
        if isinstance(at, slice):
            return [self[each] for each in range(*at.indices(len(self)))]
        return bytes(self._whole[self._starts[at] : self._starts[at + 1]])


def coded(text: str) -> bytes:
    """A string as it stands in a file; the order of strings is that of their bytes."""
    return text.encode(*_CODED)


def decoded(text: bytes) -> str:
    return text.decode(*_CODED)


def strings_in(name: str, texts: Iterable[bytes]) -> Parts:
    """The sections for `Sections.strings`."""
    listed = list(texts)
    return {f"{name} starts": starts_of(map(len, listed)), name: b"".join(listed)}


def starts_of(sizes: Iterable[int]) -> bytes:
    """Where each of several stretches starts, and where the last ends."""
    return array("I", accumulate(sizes, initial=0)).tobytes()
