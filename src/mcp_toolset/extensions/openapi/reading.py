"""`Reader`: OpenAPI documents as plain data, with the documents that their references name.

A document comes from the program, a file or an address. References may lead to files below the folder of the
document, and to addresses of its own origin: nothing else is read. What is read has bounds, all of which are
checked before anything is made of it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from threading import Event
from typing import Any, Final, cast
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

import anyio
import anyio.to_thread

from mcp_toolset._records import dataclass
from mcp_toolset.concurrency.atomic_file import read_regular
from mcp_toolset.errors import DefinitionError

MAX_BYTES: Final = 32 * 1024 * 1024
"""The most bytes of all documents of one mount together."""

MAX_VALUES: Final = 4_000_000
"""The most values in a document, each one counted wherever an alias of YAML repeats it."""

MAX_DEPTH: Final = 200
"""The most levels of a document."""

MAX_DOCUMENTS: Final = 5000
"""The most documents, the first one and those that references name."""

_NOT_READ: Final = ("example", "examples", "default", "enum", "const")
_NO_HOST: Final = re.compile(r"^\.|\.\.|\s|^[^:]*%")
_HOPS: Final = 32  # references that lead to references

_JSON: Final = (dict, list, str, int, float, bool, type(None))

Fetch = Callable[[str], Awaitable[str]]
"""Reads the text at an address; an error says why there is none."""


class DocumentError(DefinitionError):
    """A document cannot be used: what, where, and how to mend it."""


def table_of(value: Any) -> dict[str, Any]:
    """An object of a document; an empty one where there is none."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def list_of(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []


def text_of(value: Any) -> str:
    return value if isinstance(value, str) else ""


@dataclass(frozen=True, slots=True)
class Node:
    """A value of a document, and the address of the document, to which its references are relative."""

    value: Any
    base: str

    def within(self, value: Any) -> Node:
        return Node(value, self.base)


class Documents:
    """The documents of one mount, by address; `root` is the address of the first one."""

    def __init__(self, root: str, parts: Mapping[str, Any]) -> None:
        self.root = root
        self._parts = parts
        self._known: dict[tuple[str, str], Node] = {}

    @property
    def start(self) -> Node:
        return Node(self._parts[self.root], self.root)

    @property
    def is_old(self) -> bool:
        """True for Swagger 2.0."""
        return str(table_of(self.start.value).get("swagger", "")).startswith("2")

    @property
    def digest(self) -> str:
        """A digest of all of them."""
        text = json.dumps([*self._parts.values()], sort_keys=True, default=str)
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()

    def followed(self, node: Node) -> Node:
        """The value at the end of its references; the value itself if it is no reference.

        Raises:
            DocumentError: a reference leads nowhere, or back to itself.
        """
        for _ in range(_HOPS):
            value = node.value
            reference = cast("dict[str, Any]", value).get("$ref") if isinstance(value, dict) else None
            if not isinstance(reference, str):
                return node
            node = self.found(reference, node.base)
        raise DocumentError(f"{shown(node.base)}: a $ref leads back to itself; give it a value")

    def end(self, node: Node) -> Node:
        """The value at the end of its references; an empty one if they lead nowhere."""
        try:
            return self.followed(node)
        except DocumentError:
            return node.within({})

    def found(self, reference: str, base: str) -> Node:
        """The value that a reference names."""
        key = reference, base
        if key not in self._known:
            self._known[key] = self._found(reference, base)
        return self._known[key]

    def _found(self, reference: str, base: str) -> Node:
        address, fragment = urldefrag(absolute(reference, base))
        if address not in self._parts:
            raise DocumentError(f"{shown(base)}: $ref {reference[:200]!r} leads to no document that was read")
        value = self._parts[address]
        if not fragment:
            return Node(value, address)
        if not fragment.startswith("/"):
            raise DocumentError(f"{shown(base)}: $ref {reference[:200]!r} is no JSON pointer; write #/…")
        for step in unquote(fragment)[1:].split("/"):
            value = _member(value, step.replace("~1", "/").replace("~0", "~"))
            if value is _NOTHING:
                raise DocumentError(f"{shown(base)}: $ref {reference[:200]!r} leads to nothing; correct it")
        return Node(value, address)


_NOTHING: Final = object()


def _member(value: Any, step: str) -> Any:
    if isinstance(value, dict):
        return cast("dict[str, Any]", value).get(step, _NOTHING)
    if isinstance(value, list) and step.isdecimal():
        items = cast("list[Any]", value)
        return items[int(step)] if int(step) < len(items) else _NOTHING
    return _NOTHING


def absolute(reference: str, base: str) -> str:
    try:
        there = base + reference if reference.startswith("#") else urljoin(base, reference)
        is_one = "\0" not in unquote(urlsplit(there).path)
    except ValueError:
        there, is_one = "", False
    if not is_one:
        raise DocumentError(f"{shown(base)}: $ref {reference[:200]!r} is no address and no path; correct it")
    return there


def joined(url: str, reference: str) -> str:
    """The address that a reference leads to; empty for one that is none."""
    import httpx2

    try:
        there = urljoin(url, reference)
        parts = urlsplit(there)
        _ = parts.port
        httpx2.URL(there)
    except (ValueError, httpx2.InvalidURL):
        return ""
    return "" if _NO_HOST.search(parts.hostname or "") else there


def shown(address: str) -> str:
    """An address in a message, without user and query; a path for a file."""
    parts = urlsplit(address)
    if parts.scheme == "file":
        return unquote(parts.path)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}" if parts.netloc else address


class Reader:
    """Reads a document and what its references name."""

    def __init__(self, fetch: Fetch) -> None:
        """Read addresses of the web by `fetch`."""
        self._fetch = fetch
        self._left = MAX_BYTES

    async def read(self, source: Mapping[str, Any] | str | Path) -> Documents:
        """The documents of a source: the document itself, its text, its path or its address.

        Raises:
            DocumentError: it cannot be read, or its references lead elsewhere.
        """
        if isinstance(source, Mapping):
            root, first = "openapi:document", checked(dict(source), "the document")
        elif isinstance(source, str) and is_text(source):
            self._spend(len(source), "the document")
            root, first = "openapi:document", await _parsed(source, "the document")
        else:
            root = address_of(source)
            first = await self._loaded(root)
        parts: dict[str, Any] = {root: first}
        due = [root]
        while due:
            base = due.pop()
            for reference in external(parts[base]):
                address = urldefrag(absolute(reference, base))[0]
                if address in parts:
                    continue
                _check_allowed(reference, address, root)
                if len(parts) == MAX_DOCUMENTS:
                    raise DocumentError(
                        f"{shown(root)}: it refers to more than {MAX_DOCUMENTS} documents; bundle it"
                    )
                parts[address] = await self._loaded(address)
                due.append(address)
        return Documents(root, parts)

    async def _loaded(self, address: str) -> Any:
        if address.startswith("file:"):
            text = await anyio.to_thread.run_sync(self._file, Path(unquote(urlsplit(address).path)))
        else:
            text = await self._fetch(address)
        self._spend(len(text), shown(address))
        return await _parsed(text, shown(address))

    def _file(self, path: Path) -> str:
        try:
            found = read_regular(path, self._left + 1)
            if len(found) <= self._left:
                return found.decode()
        except OSError as fault:
            raise DocumentError(f"{path}: it cannot be read: {fault.strerror}; correct the path") from None
        except UnicodeDecodeError:
            raise DocumentError(f"{path}: it is no text in UTF-8; give a document of JSON or YAML") from None
        raise _too_large(str(path))

    def _spend(self, size: int, place: str) -> None:
        self._left -= size
        if self._left < 0:
            raise _too_large(place)


def _too_large(place: str) -> DocumentError:
    return DocumentError(
        f"{place}: the document and its references have more than {MAX_BYTES // 2**20} MiB; make it smaller"
    )


def is_text(source: str) -> bool:
    """True if a text is a document, and no path or address of one."""
    return source.lstrip()[:1] == "{" or "\n" in source.strip()


def address_of(source: str | Path) -> str:
    """The address of a document, `file:` for a path."""
    text = str(source)
    if isinstance(source, str) and urlsplit(text).scheme in ("http", "https"):
        return text
    if isinstance(source, str) and "://" in text:
        raise DocumentError(f"{shown(text)}: a document is at an http or https address, or in a file")
    if "\0" in text:
        raise DocumentError(f"{text[:200]!r} is no path; correct it")
    return Path(text).expanduser().absolute().as_uri()


def _check_allowed(reference: str, address: str, root: str) -> None:
    there, here = urlsplit(address), urlsplit(root)
    told = f"{shown(root)}: $ref {reference[:200]!r} "
    mend = "bundle the document into one"
    if here.scheme == "file" and there.scheme == "file":
        folder = Path(unquote(here.path)).parent.resolve()
        if not Path(unquote(there.path)).resolve().is_relative_to(folder):
            raise DocumentError(f"{told}leaves the folder of the document; {mend}")
    elif there.scheme not in ("http", "https"):
        raise DocumentError(f"{told}leads to {there.scheme or 'no'} address, which is not read; {mend}")
    elif (there.scheme, there.netloc) != (here.scheme, here.netloc):
        raise DocumentError(f"{told}leads to another host, {there.hostname}, which is not asked; {mend}")


def external(value: Any) -> Iterator[str]:
    """The references of a document that lead out of it."""
    left: list[Any] = [value]
    seen = set[int]()
    while left:
        one = left.pop()
        if isinstance(one, dict) and id(cast("object", one)) not in seen:
            seen.add(id(cast("object", one)))
            table = cast("dict[str, Any]", one)
            reference = table.get("$ref")
            if isinstance(reference, str) and not reference.startswith("#"):
                yield reference
            # An example may be anything, and so may an extension.
            plain = (key for key in table if not key.startswith("x-") and key not in _NOT_READ)
            left += (table[key] for key in plain)
        elif isinstance(one, list):
            left += cast("list[Any]", one)


async def _parsed(text: str, place: str) -> Any:
    # A deadline does not wait for a document that takes long, and the thread ends soon after.
    over = Event()
    try:
        return await anyio.to_thread.run_sync(_decoded, text, place, over.is_set, abandon_on_cancel=True)
    finally:
        over.set()


def _decoded(text: str, place: str, is_over: Callable[[], bool]) -> Any:
    try:
        if text.lstrip("\ufeff \t\r\n")[:1] == "{":
            return checked(json.loads(text.lstrip("\ufeff")), place)
        return checked(_yaml(text, is_over), place)
    except RecursionError:
        raise _too_deep(place) from None
    except ValueError as fault:
        raise DocumentError(f"{place}: it is neither JSON nor YAML: {str(fault)[:200]}; correct it") from None


def _yaml(text: str, is_over: Callable[[], bool]) -> Any:
    from ruamel.yaml import YAML, YAMLError
    from ruamel.yaml.constructor import SafeConstructor
    from ruamel.yaml.scanner import Scanner

    class Merging(SafeConstructor):
        """Merges mappings (`<<`) so that a key counts once, and not once for each way that leads to it."""

        merged = 0

        def flatten_mapping(self, node: Any) -> None:
            before = len(node.value)
            super().flatten_mapping(node)  # pyright: ignore[reportUnknownMemberType]
            if node.merge is not None:
                self.merged += len(node.merge) + before
                if self.merged > MAX_VALUES:
                    raise YAMLError(f"its merge keys (<<) make more than {MAX_VALUES} values")
                kept = {(one[0].tag, str(one[0].value)): one for one in node.value}
                node.merge, node.value = None, [*kept.values()]

    class Shallow(Scanner):
        """Stops if nobody waits, and at a level too many: the time for a token grows with the open levels."""

        def fetch_more_tokens(self) -> Any:
            here = cast("Any", self)
            if len(here.flow_context) + len(here.indents) > MAX_DEPTH + 1:
                raise RecursionError
            if is_over():
                raise YAMLError("it was given up")
            return super().fetch_more_tokens()  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]

    yaml = YAML(typ="safe", pure=True)
    yaml.Constructor, yaml.Scanner = Merging, Shallow
    yaml.version = "1.2"  # so that `no` and `on` are texts
    yaml.max_depth = MAX_DEPTH
    yaml.allow_duplicate_keys = True
    try:
        return yaml.load(text)  # pyright: ignore[reportUnknownMemberType]
    except YAMLError as fault:
        if "maximum depth" in str(fault):
            raise RecursionError from None
        raise ValueError(str(fault).replace("\n", " ")) from None


def checked(document: Any, place: str) -> Any:
    """A document within the bounds, all its keys texts.

    Aliases of YAML are the same objects, so that each object is looked at once, and counted as often as it
    is repeated.
    """
    if not isinstance(document, dict):
        raise DocumentError(f"{place}: it is no OpenAPI document but {type(document).__name__}; correct it")
    sizes: dict[int, tuple[int, int]] = {}
    try:
        size, depth = _measured(cast("object", document), sizes, set(), place)
    except RecursionError:
        raise _too_deep(place) from None
    if depth > MAX_DEPTH:
        raise _too_deep(place)
    if size > MAX_VALUES:
        raise DocumentError(
            f"{place}: it has more than {MAX_VALUES} values, some by aliases; make it smaller"
        )
    return cast("dict[str, Any]", document)


def _too_deep(place: str) -> DocumentError:
    return DocumentError(f"{place}: it is nested more than {MAX_DEPTH} levels deep; flatten it")


def _measured(value: Any, known: dict[int, tuple[int, int]], above: set[int], place: str) -> tuple[int, int]:
    """The numbers of values and of levels within a value; each alias counts."""
    if not isinstance(value, dict | list):
        return 1, 1
    key = id(cast("object", value))
    if key in known:
        return known[key]
    if key in above:
        raise DocumentError(f"{place}: an alias in it leads back to itself; write it out")
    above.add(key)
    if len(above) > MAX_DEPTH:
        raise _too_deep(place)
    if isinstance(value, dict):
        table = cast("dict[Any, Any]", value)
        for name in [one for one in table if not isinstance(one, str)]:
            table[_as_text(name)] = table.pop(name)
        places: Any = [*table]
    else:
        places = range(len(cast("list[Any]", value)))
    size, depth, held = 1, 0, cast("Any", value)
    for at in places:
        one: Any = held[at]
        if not isinstance(one, _JSON):
            # Dates, which YAML reads as such.
            one = held[at] = str(one)
        more, deep = _measured(one, known, above, place)
        size += more
        depth = max(depth, deep)
    above.discard(key)
    known[key] = size, depth + 1
    return known[key]


def _as_text(name: Any) -> str:
    """The text of a key that YAML reads as another type, such as the status 200."""
    return str(name).lower() if isinstance(name, bool) or name is None else str(name)
