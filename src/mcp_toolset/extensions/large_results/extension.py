"""`LargeResults`: a result above a limit becomes a preview, a link and an id to read it by or hand it on."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Self, cast

from pydantic import Field
from pydantic_core import from_json, to_json

from mcp_toolset._records import replace
from mcp_toolset.calls.checks import caller_of, cut, text_of
from mcp_toolset.calls.middleware import CallNext
from mcp_toolset.errors import CallError, DefinitionError, InvalidArgumentsError
from mcp_toolset.extending.extension import Extension
from mcp_toolset.extensions.large_results.kept_results import PREFIX, KeptResult, KeptResults, characters_of
from mcp_toolset.extensions.large_results.result_parts import part_of, shape_of, value_at
from mcp_toolset.extensions.large_results.settings import LargeResultsSettings
from mcp_toolset.tools.call import ToolCall, ToolContext
from mcp_toolset.tools.definition import FIXED_TOOLS
from mcp_toolset.tools.result import Block, ToolResult
from mcp_toolset.tools.tool import Tool, tool

if TYPE_CHECKING:
    from mcp_toolset.config.extensions import Settings
    from mcp_toolset.extending.host import Host

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

    `ToolsetServer(tools, large_results=LargeResults(limit=20_000))` does so for every client. In a loop of
    your own it is a middleware: `Rules(middleware=[large])`, with `large.tool` among the tools.
    """

    key: ClassVar = "large_results"
    reshapes: ClassVar = True

    def __init__(
        self,
        limit: int = 20_000,
        *,
        preview: int | None = None,
        memory: int = 64_000_000,
        lifetime: float = 3600.0,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """Keep results that are longer than `limit`.

        Args:
            limit: Characters of text, or of structured content as JSON, that a result may have.
            preview: Characters of a kept result that the model gets; by default 1,500, or the limit if lower.
            memory: Characters that are kept in all; of the caller who has most of them, the results that
                were not used for longest are forgotten first.
            lifetime: Seconds that a result is kept.
            now: Seconds, from a monotonic clock.

        Raises:
            DefinitionError: a number is not positive, or the preview is longer than the limit.
        """
        preview = min(limit, _PREVIEW) if preview is None else preview
        if min(limit, preview, memory, lifetime) <= 0 or preview > limit:
            raise DefinitionError(
                f"LargeResults takes positive numbers and a preview within the limit, not limit={limit}, "
                f"preview={preview}, memory={memory}, lifetime={lifetime:g}"
            )
        self.limit = limit
        self._preview = preview
        self._lifetime = lifetime
        self._memory = memory
        self._kept = KeptResults(memory, lifetime, now)
        self.tool: Final[Tool[..., Any]] = self._reading()

    @classmethod
    def of(cls, said: Any, stated: Settings | None, host: Host) -> Self:
        """See `Extension`; a number is the limit."""
        if isinstance(said, int) and said is not True:
            return cls(said)
        if said is not None and said is not True:
            raise DefinitionError(f"large_results takes True, a number or LargeResults(…), not {said!r}")
        found = LargeResultsSettings() if stated is None else cast("LargeResultsSettings", stated)
        return cls(found.limit, preview=found.preview, memory=found.memory, lifetime=found.lifetime)

    def tools(self) -> list[Tool[..., Any]]:
        """The tool that reads kept results."""
        return [self.tool]

    def sent(self, call: ToolCall, context: ToolContext) -> ToolCall:
        """References to kept results are replaced by their values."""
        return self.with_references(call, context)

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
        if size <= self.limit:
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
            f"{self._lifetime / 60:g} minutes.{shape} "
            f'Read on with {READ_RESULT}: {{"result": "{kept.id}", "path": "", "find": "", "offset": 0}}. '
            f'Hand it to another tool, without reading it, as {{"{REFERENCE}": "{kept.id}", "path": ""}} '
            "in place of an argument.]"
        )
        return {"type": "text", "text": text}

    def with_references(self, call: ToolCall, context: ToolContext) -> ToolCall:
        """The call with its references replaced by the values of the kept results.

        Raises:
            InvalidArgumentsError: a reference has no result of this caller, its path does not exist, or the
                references of the call insert more characters than are kept in all.
        """
        if call.name == READ_RESULT:
            return call
        room = [self._memory]
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
                    f"the references of one call stand for more than {self._memory} characters; hand on "
                    "parts, by their paths, in several calls"
                )
            return _copied(value_at(found.value, str(table.get("path") or "")))
        changed = {key: self._filled(entry, context, depth - 1, room) for key, entry in table.items()}
        return changed if any(changed[key] is not entry for key, entry in table.items()) else table

    def _found(self, id: str, context: ToolContext) -> KeptResult:
        kept = self._kept.find(id.strip(" `'\"").removeprefix(SCHEME), caller_of(context))
        if kept is None:
            raise CallError(
                f"there is no result {id!r}: results are kept for {self._lifetime / 60:g} minutes, for the "
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
        most = self.limit // 2

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
