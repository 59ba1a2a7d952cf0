"""`LargeResults`: a result above a limit becomes a preview, a link and an id to read it by or hand it on.

A path leads into JSON: `rows.0.name`, with `*` for each entry of a list (`rows.*.name`); a path that begins
with `/` is a JSON Pointer (RFC 6901), for keys that have dots in them.
"""

from __future__ import annotations

import re
import secrets
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Self, cast

from pydantic import Field
from pydantic_core import from_json, to_json

from mcp_toolset._numbers import require_positive
from mcp_toolset._records import dataclass, replace
from mcp_toolset.calls.checks import caller_of, cut, text_of
from mcp_toolset.calls.middleware import CallNext
from mcp_toolset.errors import CallError, DefinitionError, InvalidArgumentsError
from mcp_toolset.extending.extension import Extension
from mcp_toolset.extensions.large_results import LargeResultsSettings
from mcp_toolset.tools.call import ToolCall, ToolContext
from mcp_toolset.tools.definition import FIXED_TOOLS
from mcp_toolset.tools.result import Block, ToolResult
from mcp_toolset.tools.tool import Tool, tool

if TYPE_CHECKING:
    from mcp_toolset.config.extensions import Settings
    from mcp_toolset.extending.host import Host


PREFIX: Final = "r_"
"""The beginning of the id of a kept result."""


@dataclass(frozen=True)
class KeptResult:
    """A result that is kept.

    Attributes:
        id: Its id, which cannot be guessed.
        owner: The key of the caller; `None` if callers cannot be told apart, so that the id alone counts.
        result: The whole result.
        size: Characters of text and of JSON.
        ends: When it is forgotten, by the clock of the store.
    """

    id: str
    owner: str | None
    result: ToolResult
    size: int
    ends: float

    @cached_property
    def value(self) -> Any:
        """The value of the text that a model was shown if it is JSON, else the structured content or text."""
        text = _texts(self.result.content)
        if text[:1] in ("{", "["):
            try:
                return from_json(text)
            except ValueError:
                pass
        return self.result.structured if "structuredContent" in self.result.wire else text


class KeptResults:
    """A table of results; of the caller who fills most of it, the least recently used goes first."""

    def __init__(self, most: int, ttl: float, clock: Callable[[], float]) -> None:
        """Keep at most `most` characters, each result for `ttl` seconds; the newest is always kept."""
        self._most = most
        self._ttl = ttl
        self._now = clock
        self._kept: OrderedDict[str, KeptResult] = OrderedDict()
        self._sizes: Counter[str | None] = Counter()

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, result: ToolResult, owner: str | None, size: int) -> KeptResult:
        ends = self._now() + self._ttl
        kept = KeptResult(PREFIX + secrets.token_hex(8), owner, result, size, ends)
        self._forget_old()
        self._kept[kept.id] = kept
        self._sizes[owner] += size
        while self._sizes.total() > self._most and len(self._kept) > 1:
            # The newest stays, whoever it is of.
            older = {each.owner: each.id for each in reversed(self._kept.values()) if each is not kept}
            self._forget(older[max(older, key=self._sizes.__getitem__)])
        return kept

    def find(self, id: str, owner: str | None) -> KeptResult | None:
        """The result of an id, if it is this caller's and still kept; counts as a use."""
        kept = self._kept.get(id)
        if kept is None or kept.owner != owner or kept.ends <= self._now():
            return None
        self._kept.move_to_end(id)
        return kept

    def _forget_old(self) -> None:
        now = self._now()
        for id in [id for id, kept in self._kept.items() if kept.ends <= now]:
            self._forget(id)

    def _forget(self, id: str) -> None:
        gone = self._kept.pop(id)
        self._sizes[gone.owner] -= gone.size
        if not self._sizes[gone.owner]:
            del self._sizes[gone.owner]


def _texts(content: Sequence[Block]) -> str:
    texts = (text_of(block) for block in content if block.get("type") != "resource_link")
    return "\n".join(filter(None, texts))


def characters_of(result: ToolResult) -> int:
    """The characters that a model may be shown of a result: its texts or its structured content as JSON.

    Clients show one or the other, and the text of a structured result usually says the same, so the longer of
    both counts. Images and audio are no characters.
    """
    texts = len(_texts(result.content))
    if "structuredContent" not in result.wire:
        return texts
    return max(texts, len(to_json(result.structured)))


MAX_MATCHES: Final = 50
"""Matches of one search that are shown unless a limit says otherwise."""

_AROUND: Final = 100
_DEEPEST_PART: Final = 3
_KEYS: Final = 12
_DEEPEST_SEARCH: Final = 100
_DIGITS: Final = 20
"""More digits than the number of an entry has."""


@dataclass(frozen=True, slots=True)
class ResultPart:
    """A part of a value: as text, what it is a part of, and where the next part begins."""

    text: str
    note: str
    next: int | None = None


def value_at(value: Any, path: str) -> Any:
    steps = _steps(path)
    return _followed(value, steps, 0)


def _steps(path: str) -> list[str]:
    if path.startswith("/"):
        return [step.replace("~1", "/").replace("~0", "~") for step in path[1:].split("/")]
    return [step for step in path.removeprefix("$").replace("[", ".").replace("]", "").split(".") if step]


def _followed(value: Any, steps: Sequence[str], at: int) -> Any:
    for place in range(at, len(steps)):
        step = steps[place]
        if isinstance(value, list):
            entries = cast("list[Any]", value)
            if step == "*":
                return [_followed(entry, steps, place + 1) for entry in entries]
            if step.isascii() and step.isdigit() and len(step) < _DIGITS and int(step) < len(entries):
                value = entries[int(step)]
                continue
        elif isinstance(value, dict) and step in value:
            value = cast("dict[str, Any]", value)[step]
            continue
        so_far = ".".join(steps[:place])
        there = f"at {so_far!r} there is" if so_far else "the result is"
        raise CallError(f"the result has no such path: there is no {step!r}; {there} {shape_of(value)}")
    return value


def shape_of(value: Any, depth: int = _DEEPEST_PART) -> str:
    """The shape of a value, in short: `{rows: [5000 × {id: number, name: text}], next: null}`."""
    match value:
        case None:
            return "null"
        case bool():
            return "true or false"
        case int() | float():
            return "number"
        case str():
            return "text"
        case list():
            entries = cast("list[Any]", value)
            if not entries:
                return "[]"
            return f"[{len(entries)} × {shape_of(entries[0], depth - 1) if depth else '…'}]"
        case _:
            return _shape_of_object(cast("dict[str, Any]", value), depth)


def _shape_of_object(value: dict[str, Any], depth: int) -> str:
    if not depth:
        return "{…}"
    shown = [f"{key[:_AROUND]}: {shape_of(entry, depth - 1)}" for key, entry in list(value.items())[:_KEYS]]
    more = [f"{len(value) - _KEYS} more"] if len(value) > _KEYS else []
    return f"{{{', '.join([*shown, *more])}}}"


def part_of(value: Any, *, find: str, offset: int, limit: int | None, most: int) -> ResultPart:
    """A part of a value, in at most `most` characters.

    Args:
        value: A text, or a value of JSON.
        find: The text that an entry, a line or a leaf must contain, in any case; empty for everything.
        offset: The start: the number of an entry of a list, of a match, else of a character.
        limit: Entries, matches or characters at most.
        most: Characters at most.
    """
    if find:
        return _matches(value, find.casefold(), offset, limit or MAX_MATCHES, most)
    if isinstance(value, list):
        return _entries(cast("list[Any]", value), offset, limit, most)
    text = value if isinstance(value, str) else _json(value)
    offset = min(offset, len(text))
    end = min(len(text), offset + min(limit or most, most))
    note = f"characters {offset} to {end} of {len(text)}"
    if isinstance(value, dict) and (offset or end < len(text)):
        note += f"; a path gives a whole part of {shape_of(value)}"
    return ResultPart(text[offset:end], note, _next(end, len(text)))


def _entries(entries: list[Any], offset: int, limit: int | None, most: int) -> ResultPart:
    taken: list[str] = []
    # Each entry has a comma or a bracket after it, and the list a bracket before it.
    room = most - 1
    for entry in entries[offset : offset + limit if limit else None]:
        text = _json(entry)
        if len(text) >= room and taken:
            break
        taken.append(text)
        room -= len(text) + 1
    if len(taken) == 1 and room < 0:
        note = f"entry {offset} of {len(entries)} alone has {len(taken[0])} characters; give a path into it"
        return ResultPart(taken[0][:most], note, _next(offset + 1, len(entries)))
    end = offset + len(taken)
    told = f"entries {offset} to {end - 1}" if taken else f"no entry {offset}"
    note = f"{told} of {len(entries)}"
    return ResultPart(f"[{','.join(taken)}]", note, _next(end, len(entries)))


def _matches(value: Any, find: str, offset: int, limit: int, most: int) -> ResultPart:
    taken: list[str] = []
    found, room, end = 0, most, None
    for match in _found(value, find):
        found += 1
        if found <= offset or end is not None:
            continue
        if len(taken) == limit or (taken and len(match) > room):
            end = found - 1
            continue
        taken.append(match[:most])
        room -= len(match) + 1
    told = f"matches {offset + 1} to {offset + len(taken)} of {found}" if found else "no match"
    return ResultPart("\n".join(taken), told, end)


def _found(value: Any, find: str) -> Iterator[str]:
    """A line for each entry, line or leaf that contains a text, with where it is."""
    if isinstance(value, str):
        for number, line in enumerate(value.splitlines()):
            if (at := line.casefold().find(find)) >= 0:
                yield f"line {number + 1}: {_around(line, at, len(find))}"
    elif isinstance(value, list):
        for number, entry in enumerate(cast("list[Any]", value)):
            text = _json(entry)
            if (at := text.casefold().find(find)) >= 0:
                yield f"{number}: {text if len(text) <= 10 * _AROUND else _around(text, at, len(find))}"
    else:
        yield from _leaves(value, find, "", _DEEPEST_SEARCH)


def _leaves(value: Any, find: str, path: str, depth: int) -> Iterator[str]:
    if isinstance(value, dict | list) and depth:
        table = cast("dict[str, Any]", value)
        entries = enumerate(cast("list[Any]", value)) if isinstance(value, list) else table.items()
        for key, entry in entries:
            yield from _leaves(entry, find, f"{path}.{key}" if path else str(key), depth - 1)
        return
    text = value if isinstance(value, str) else _json(value)
    at = text.casefold().find(find)
    if at >= 0 or find in path.rpartition(".")[2].casefold():
        yield f"{path}: {_around(text, max(at, 0), len(find))}"


def _around(text: str, at: int, length: int) -> str:
    """The text about a place that was found in its case-folded form, where "ß" is "ss"."""
    at = _unfolded(text, at)
    start, end = max(0, at - _AROUND), at + length + _AROUND
    return f"{'…' if start else ''}{text[start:end]}{'…' if end < len(text) else ''}"


def _unfolded(text: str, at: int) -> int:
    if text.isascii():
        return at
    folded = accumulate(len(character.casefold()) for character in text)
    return next((place for place, end in enumerate(folded) if end > at), 0)


def _json(value: Any) -> str:
    return to_json(value).decode()


def _next(end: int, size: int) -> int | None:
    return end if end < size else None


READ_RESULT: Final = "read_result"
"""The tool that reads kept results."""

REFERENCE: Final = "$result"
"""The key of an object that stands for a kept result in the arguments of a call."""

SCHEME: Final = "result://"

_WHOLE: Final = frozenset(FIXED_TOOLS[:2])
_ADDRESS: Final = re.compile(f"{SCHEME}{PREFIX}[0-9a-f]{{16}}")
_PREVIEW: Final = 1_500
_DEEPEST: Final = 64
_SHAPE: Final = 300


class LargeResults(Extension):
    """Keeps results that are too long for a model; the model gets a part and can read the rest by an id.

    `ToolsetServer(tools, large_results=LargeResults(20_000))` does so for every client. In a loop of
    your own it is a middleware: `Rules(middleware=[large])`, with `large.tool` among the tools.
    """

    key: ClassVar = "large_results"
    reshapes: ClassVar = True

    def __init__(
        self,
        max_length: int = 20_000,
        *,
        preview: int | None = None,
        max_stored: int = 64_000_000,
        ttl: float = 3600.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Keep results that are longer than `max_length`.

        Args:
            max_length: Characters of text, or of structured content as JSON, that a result may have.
            preview: Characters of a kept result that the model gets; by default 1,500, or
                `max_length` if lower.
            max_stored: Characters that are kept in all; of the caller who has most of them, the
                results that were not used for longest are forgotten first.
            ttl: Seconds that a result is kept.
            clock: Seconds, from a monotonic clock.

        Raises:
            DefinitionError: a number is not positive, or the preview is longer than that of a result.
        """
        require_positive(
            "LargeResults", {"preview": preview}, max_length=max_length, max_stored=max_stored, ttl=ttl
        )
        preview = min(max_length, _PREVIEW) if preview is None else preview
        if preview > max_length:
            raise DefinitionError(f"LargeResults: the preview of {preview} is longer than {max_length}")
        self.max_length = max_length
        self._preview = preview
        self._ttl = ttl
        self._max_stored = max_stored
        self._clock = clock
        self._begin()

    def _begin(self) -> None:
        self._kept = KeptResults(self._max_stored, self._ttl, self._clock)
        self.tool: Tool[..., Any] = self._reading()

    def bind(self, host: Host) -> Self:
        """Keep the results of one server."""
        bound = super().bind(host)
        if bound is not self:
            bound._begin()
        return bound

    @classmethod
    def of(cls, said: Any, stated: Settings | None, host: Host) -> Self:
        """Build the extension from its keyword; a number is `max_length`."""
        if isinstance(said, int) and said is not True:
            return cls(said)
        if said is not None and said is not True:
            raise DefinitionError(f"large_results takes True, a number or LargeResults(…), not {said!r}")
        found = LargeResultsSettings() if stated is None else cast("LargeResultsSettings", stated)
        return cls(found.max_length, preview=found.preview, max_stored=found.max_stored, ttl=found.ttl)

    def tools(self) -> list[Tool[..., Any]]:
        """The tool that reads kept results."""
        return [self.tool]

    def answered(self, result: ToolResult, call: ToolCall, context: ToolContext) -> ToolResult:
        """A result that is too long is shortened, unless the next call needs it whole."""
        return result if call.name in _WHOLE else self.shortened(result, call, context)

    def read_resource(self, uri: str, context: ToolContext) -> list[dict[str, Any]] | None:
        """A kept result."""
        return self.read(uri, context) if self.keeps(uri) else None

    async def __call__(self, call: ToolCall, context: ToolContext, next: CallNext) -> ToolResult:
        """Run a call of an owned loop and shorten its result."""
        return self.shortened(await next(), call, context)

    def shortened(self, result: ToolResult, call: ToolCall, context: ToolContext) -> ToolResult:
        """The result, or its preview if it is too long; images, audio and links stay."""
        if not result.is_complete or call.name == READ_RESULT:
            return result
        size = characters_of(result)
        if size <= self.max_length:
            return result
        others = [block for block in result.content if not _is_text(block)]
        wire = {**result.wire}
        read = {key: wire.pop(key) for key in ("structuredContent",) if key in wire}
        texts = ToolResult({**read, "content": list(filter(_is_text, result.content))})
        kept = self._kept.keep(texts, caller_of(context), size)
        shown, _ = cut(_readable(result), self._preview)
        return replace(result, wire={**wire, "content": [*shown, self._note(kept), _link(kept), *others]})

    def _note(self, kept: KeptResult) -> Block:
        shape = "" if isinstance(kept.value, str) else f" It is {shape_of(kept.value)[:_SHAPE]}."
        text = (
            f"[This is the beginning of {kept.size} characters, kept as {kept.id} for "
            f"{self._ttl / 60:g} minutes.{shape} "
            f'Read on with {READ_RESULT}: {{"result": "{kept.id}", "path": "", "find": "", "offset": 0}}. '
            f'Hand it to another tool, without reading it, as {{"{REFERENCE}": "{kept.id}", "path": ""}} '
            "in place of an argument.]"
        )
        return {"type": "text", "text": text}

    def sent(self, call: ToolCall, context: ToolContext) -> ToolCall:
        """The call with its references replaced by the values of the kept results.

        Raises:
            InvalidArgumentsError: a reference has no result of this caller, its path does not exist, or the
                references of the call insert more characters than are kept in all.
        """
        if call.name == READ_RESULT:
            return call
        room = [self._max_stored]
        try:
            arguments = {
                key: self._filled(value, context, _DEEPEST, room) for key, value in call.arguments.items()
            }
        except CallError as fault:
            raise InvalidArgumentsError(str(fault)) from None
        changed = any(arguments[key] is not value for key, value in call.arguments.items())
        return call.with_arguments(arguments) if changed else call

    def _filled(self, value: Any, context: ToolContext, depth: int, room: list[int]) -> Any:
        """The value with references replaced; the same object if there are none.

        `room` is how many characters the references of the call may still stand for.
        """
        if not depth or not isinstance(value, dict | list):
            return value
        if isinstance(value, list):
            entries = cast("list[Any]", value)
            filled = [self._filled(entry, context, depth - 1, room) for entry in entries]
            return filled if any(a is not b for a, b in zip(filled, entries, strict=True)) else entries
        table = cast("dict[str, Any]", value)
        if REFERENCE in table and table.keys() <= {REFERENCE, "path"}:
            found = self._found(str(table[REFERENCE]), context)
            room[0] -= found.size
            if room[0] < 0:
                raise CallError(
                    f"the references of one call stand for more than {self._max_stored} characters; hand on "
                    "parts, by their paths, in several calls"
                )
            return _copied(value_at(found.value, str(table.get("path") or "")))
        changed = {key: self._filled(entry, context, depth - 1, room) for key, entry in table.items()}
        return changed if any(changed[key] is not entry for key, entry in table.items()) else table

    def _found(self, id: str, context: ToolContext) -> KeptResult:
        kept = self._kept.find(id.strip(" `'\"").removeprefix(SCHEME), caller_of(context))
        if kept is None:
            raise CallError(
                f"there is no result {id!r}: results are kept for {self._ttl / 60:g} minutes, for the "
                "caller that they were made for; run the tool again"
            )
        return kept

    def keeps(self, uri: str) -> bool:
        """True if an address has the form of a kept result's address."""
        return _ADDRESS.fullmatch(uri) is not None

    def read(self, uri: str, context: ToolContext) -> list[dict[str, Any]]:
        """The contents of the resource of a kept result: its texts, else its structured content.

        Raises:
            LookupError: there is no such result for this caller.
        """
        kept = self._kept.find(uri.removeprefix(SCHEME), caller_of(context))
        if kept is None:
            raise LookupError("Resource not found")
        return [{"uri": uri, "mimeType": _kind(kept), "text": _text(kept)}]

    def _reading(self) -> Tool[..., Any]:
        most = self.max_length // 2

        @tool(
            name=READ_RESULT,
            title="Read a long result",
            description=_TEXT,
            read_only=True,
            destructive=False,
            idempotent=True,
            open_world=False,
        )
        async def read_result(
            context: ToolContext,
            result: Annotated[str, Field(description="Its id, such as r_12ab.", max_length=200)],
            path: Annotated[str, Field(description="Into JSON: rows.0.id, rows.*.id.", max_length=2000)] = "",
            find: Annotated[str, Field(description="Only what contains this text.", max_length=2000)] = "",
            offset: Annotated[int, Field(ge=0, description="First entry, match or character.")] = 0,
            limit: Annotated[int | None, Field(ge=1, description="At most so many.")] = None,
        ) -> ToolResult:
            value = value_at(self._found(result, context).value, path)
            part = part_of(value, find=find, offset=offset, limit=limit, most=most)
            more = "" if part.next is None else f"; go on with offset {part.next}"
            return ToolResult.of_content(
                [{"type": "text", "text": part.text}, {"type": "text", "text": f"[{part.note}{more}]"}]
            )

        return read_result


_TEXT: Final = (
    "Read, page through or search a result that was too long to be shown. Of a list, entries are counted; "
    "of a text, characters; with find, matches."
)


def _is_text(block: Mapping[str, Any]) -> bool:
    return block.get("type") == "text" or (block.get("type") == "resource" and bool(text_of(block)))


def _readable(result: ToolResult) -> list[Block]:
    """The blocks of text, else one of the structured content."""
    texts = [block for block in result.content if _is_text(block)]
    if texts or "structuredContent" not in result.wire:
        return texts
    return [{"type": "text", "text": to_json(result.structured).decode()}]


def _copied(value: Any) -> Any:
    """The value for a handler, which may change it: what is kept stays as it is."""
    return from_json(to_json(value)) if isinstance(value, dict | list) else value


def _kind(kept: KeptResult) -> str:
    """The kind of the resource, which is the text if there is one and not the structured content."""
    text = _text(kept)
    is_json = not isinstance(kept.value, str) and (text[:1] in ("{", "["))
    return "application/json" if is_json else "text/plain"


def _link(kept: KeptResult) -> Block:
    size = len(_text(kept).encode())
    return {
        "type": "resource_link",
        "uri": SCHEME + kept.id,
        "name": kept.id,
        "mimeType": _kind(kept),
        "size": size,
    }


def _text(kept: KeptResult) -> str:
    return "\n".join(map(text_of, _readable(kept.result)))


EXTENSION = LargeResults
