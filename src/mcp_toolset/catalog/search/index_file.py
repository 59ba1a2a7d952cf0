"""A search index in one file: `Sections` and `Strings`, its form, and `IndexBase`, its content."""

from __future__ import annotations

import json
import mmap
import os
import sys
import zlib
from array import array
from bisect import bisect_left
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from functools import cache, cached_property
from hashlib import blake2b
from itertools import accumulate
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, TypeVar, overload
from unicodedata import unidata_version

from mcp_toolset.catalog.search.entry import CatalogEntry
from mcp_toolset.concurrency.atomic_file import opened
from mcp_toolset.errors import InvalidStateError
from mcp_toolset.tools import hidden_characters, hidden_text

_KIND: Final = b"mcp-toolset index\n"
NUMBER: Final = 4
_HEAD: Final = len(_KIND) + 2 * NUMBER
_ALIGNED: Final = 8

_T = TypeVar("_T")
Parts: TypeAlias = dict[str, bytes]  # the content of each section of a file

_CODED: Final = ("utf-8", "surrogatepass")


@cache
def made_by() -> str:
    """A digest of the code and tables of search and the byte order, which an index depends on."""
    digest = blake2b(f"{unidata_version} {sys.byteorder}".encode(), digest_size=16)
    walked = os.walk(os.path.dirname(__file__))
    paths = [os.path.join(folder, name) for folder, _, names in walked for name in names]
    paths += [hidden_text.__file__, hidden_characters.__file__] if paths else []
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
        if bytes(whole[: len(_KIND)]) != _KIND:
            raise InvalidStateError("it is no search index")
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
        return self[name].cast("I")

    def strings(self, name: str) -> Strings:
        return Strings(self.numbers(f"{name} starts"), self[name])


def mapped(path: str | os.PathLike[str]) -> Sections:
    """The sections of a file, mapped: its pages are shared between processes."""
    # The file may be replaced or removed at any time. If it is cut short in place, the process is killed.
    with opened(path) as file:
        if os.fstat(file.fileno()).st_size <= _HEAD:
            raise InvalidStateError("it is damaged or cut short")
        return Sections(memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)))


def copied(path: str | os.PathLike[str], check: Callable[[os.stat_result], object]) -> Sections:
    """A copy of the sections of a file that others may change; `check` may raise to refuse it."""
    with opened(path) as file:
        check(os.fstat(file.fileno()))
        content = file.read()
    if len(content) <= _HEAD:
        raise InvalidStateError("it is damaged or cut short")
    return Sections(memoryview(content))


def run_to_end(steps: Generator[None, None, _T]) -> _T:
    """The return value of a generator that works in steps."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


def written(parts: Parts) -> bytes:
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
    return text.encode(*_CODED)


def decoded(text: bytes) -> str:
    return text.decode(*_CODED)


def strings_in(name: str, texts: Iterable[bytes]) -> Parts:
    listed = list(texts)
    return {f"{name} starts": starts_of(map(len, listed)), name: b"".join(listed)}


def starts_of(sizes: Iterable[int]) -> bytes:
    return array("I", accumulate(sizes, initial=0)).tobytes()


PRINT: Final = 16  # the number of bytes of a fingerprint


class StoredEntry(NamedTuple):
    """A tool in a file, with the attribute names of `CatalogEntry`."""

    public_name: str
    id: str
    own_name: str
    server: str | None
    description_line: str
    signature: str
    print: bytes

    def fingerprint(self) -> bytes:
        return self.print


AnyEntry: TypeAlias = "CatalogEntry | StoredEntry"
"""A tool in memory or in a file."""


VectorRows: TypeAlias = "tuple[Sequence[str], memoryview]"
"""The names of some tools, and their vectors one after another, each as `PackedVectors` holds it."""


class NamesBase:
    """Names in a sorted table, each with the tools that have it."""

    def __init__(self, sections: Sections, name: str) -> None:
        self._names = sections.strings(name)
        self._starts = sections.numbers(f"{name} tool starts")
        self._tools = sections.numbers(f"{name} tools")

    def of(self, name: str) -> Sequence[int]:
        wanted = coded(name)
        at = bisect_left(self._names, wanted)
        return self._at(at) if at < len(self._names) and self._names[at] == wanted else ()

    def beginning_with(self, head: str) -> Iterator[tuple[str, Sequence[int]]]:
        """The names that begin so, in order, each with its tools."""
        wanted = coded(head)
        for at in range(bisect_left(self._names, wanted), len(self._names)):
            name = self._names[at]
            if not name.startswith(wanted):
                return
            yield decoded(name), self._at(at)

    def _at(self, at: int) -> Sequence[int]:
        return self._tools[self._starts[at] : self._starts[at + 1]]


class TermsBase:
    """The terms of all tools, sorted, each with the tools that have it, and the terms of each tool."""

    def __init__(self, sections: Sections) -> None:
        self._sections = sections
        self._starts = sections.numbers("posting starts")
        self._numbers = sections["postings"]
        self._own_starts = sections.numbers("term starts")
        self._own = sections.numbers("terms of tools")

    @cached_property
    def terms(self) -> list[str]:
        return self._sections.json("terms")

    @cached_property
    def _at(self) -> Mapping[str, int]:
        return dict(zip(self.terms, range(len(self.terms)), strict=True))

    def __contains__(self, term: object) -> bool:
        return term in self._at

    def count(self, term: str) -> int:
        at = self._at[term]
        return self._starts[at + 1] - self._starts[at]

    def posting(self, term: str) -> tuple[array[int], array[int]]:
        at = self._at[term]
        start, end = self._starts[at], self._starts[at + 1]
        places, impacts = array("i"), array("i")
        middle = NUMBER * (start + end)
        places.frombytes(self._numbers[2 * NUMBER * start : middle])
        impacts.frombytes(self._numbers[middle : 2 * NUMBER * end])
        return places, impacts

    def of(self, ordinal: int) -> list[str]:
        own = self._own[self._own_starts[ordinal] : self._own_starts[ordinal + 1]]
        return [self.terms[at] for at in own]


class IndexBase:
    """The content of a file: read-only, and shared by all parts of an index."""

    def __init__(self, sections: Sections) -> None:
        self._sections = sections
        self.names: list[str] = sections.json("names")
        self.places: dict[str, int] = dict(zip(self.names, range(len(self.names)), strict=True))
        self.own_names = NamesBase(sections, "own names")  # the tools' own names
        self.spellings = NamesBase(sections, "spellings")  # public and own names without case and punctuation
        self.terms = TermsBase(sections)  # the words
        self._records: Strings = sections.strings("records")
        self._prints = bytes(sections["fingerprints"])
        self._servers: list[tuple[str | None, int]] = sections.json("servers")

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def vectors(self) -> VectorRows | None:
        rows = self._sections.get("vectors")
        if rows is None:
            return None
        with_one = self._sections.numbers("with a vector")
        every = len(with_one) == len(self.names)
        return self.names if every else [self.names[at] for at in with_one], rows

    def fingerprint(self, ordinal: int) -> bytes:
        return self._prints[PRINT * ordinal : PRINT * (ordinal + 1)]

    def servers(self) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        start = 0
        for server, end in self._servers:
            if server is not None:
                found[server] = set(self.names[start:end])
            start = end
        return found

    def entry(self, ordinal: int) -> StoredEntry:
        id, own, server, line, signature = json.loads(self._records[ordinal])
        return StoredEntry(self.names[ordinal], id, own, server, line, signature, self.fingerprint(ordinal))


class IndexFolder(Protocol):
    """A store of indexes."""

    def find(
        self, servers: Iterable[str], prints: Mapping[str, bytes], *, words: bool
    ) -> IndexBase | None: ...

    def save(
        self, servers: Iterable[str], entries: Iterable[AnyEntry], parts: Parts, *, words: bool
    ) -> Path | None: ...
