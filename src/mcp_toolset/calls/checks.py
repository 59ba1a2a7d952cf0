"""Middleware without state: permissions, length and hidden text of results, limits of time, formats."""

from __future__ import annotations

import inspect
import json
import logging
import unicodedata
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeVar, cast

import anyio

from mcp_toolset._numbers import require_positive
from mcp_toolset._records import replace
from mcp_toolset._rule import Rule
from mcp_toolset.calls.decision import Reject, rejection
from mcp_toolset.calls.middleware import CallNext
from mcp_toolset.errors import (
    CallError,
    CannotAskError,
    DefinitionError,
    InvalidArgumentsError,
    InvalidOutputError,
)
from mcp_toolset.tools.binding import NameUse
from mcp_toolset.tools.call import ToolCall, ToolContext
from mcp_toolset.tools.definition import ToolDefinition, thawed
from mcp_toolset.tools.hidden_text import cleaned, cleaned_metadata, in_log
from mcp_toolset.tools.result import Block, ToolResult
from mcp_toolset.tools.validation import SchemaCheck

if TYPE_CHECKING:
    from jsonschema_rs import Validator


MAX_KEPT: Final = 10_000  # The default number of entries of one middleware; the oldest is dropped.
HOST: Final = "host"  # The caller of a call without a client: the program itself.

_names_log: Final = logging.getLogger("mcp_toolset.names")

_K = TypeVar("_K")
_V = TypeVar("_V")


def caller_of(context: ToolContext) -> str | None:
    """The principal, else the session, else the program itself; `None` for a modern client without login."""
    if context.principal:
        return f"principal:{context.principal}"
    if context.session:
        return f"session:{context.session}"
    return HOST if context.protocol_version is None else None


class Nobody:
    """Logs once that rules for some callers match nobody, as the context of a loop names no caller."""

    def __init__(self) -> None:
        self._is_told = False

    def look(self, context: ToolContext) -> None:
        """Look at the context of a call for which there are such rules; a client has no say in it."""
        if context.identity is None and context.protocol_version is None and not self._is_told:
            self._is_told = True
            mend = "give RoundContext(principal=Identity.of(…))"
            _names_log.warning("rules for callers by name, role or scope match nobody here: %s", mend)


class Recent(Generic[_K, _V]):
    """A table of bounded size that drops the least recently used entry."""

    __slots__ = ("_entries", "_limit")

    def __init__(self, limit: int) -> None:
        if limit < 1:
            raise DefinitionError(f"a middleware needs room for at least one entry, not {limit}")
        self._limit = limit
        self._entries: OrderedDict[_K, _V] = OrderedDict()

    def get(self, key: _K) -> _V | None:
        entry = self._entries.get(key)
        if entry is not None:
            self._entries.move_to_end(key)
        return entry

    def put(self, key: _K, value: _V) -> None:
        self._entries[key] = value
        self._entries.move_to_end(key)
        if len(self._entries) > self._limit:
            self._entries.popitem(last=False)

    def drop(self, key: _K) -> None:
        self._entries.pop(key, None)

    def keys(self) -> list[_K]:
        return list(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


T = TypeVar("T")


class SessionState(Generic[T]):
    """A value for each authenticated user, else for each session, in memory.

    ```python
    baskets = SessionState(list[str])


    @tool
    def add_to_basket(item: str, context: ToolContext) -> int:
        baskets.of(context).append(item)
        return len(baskets.of(context))
    ```
    """

    def __init__(self, make: Callable[[], T], *, max_callers: int = MAX_KEPT) -> None:
        """Make each caller's value with `make`; beyond `max_callers` the least recently used goes."""
        if not callable(make):
            raise DefinitionError(
                f"SessionState(make) takes what makes a value, such as list[str], not {make!r}"
            )
        self._make = make
        self._values: Recent[str, T] = Recent(max_callers)

    def of(self, context: ToolContext) -> T:
        """The value of the caller of a call; it may be changed in place.

        Raises `CallError` for a client of 2026-07-28, which has no sessions, without authentication.
        """
        caller = self._known(context)
        value = self._values.get(caller)
        if value is None:
            value = self._make()
            self._values.put(caller, value)
        return value

    def set(self, context: ToolContext, value: T) -> None:
        """Replace the value of the caller of a call; raises as `of` does."""
        self._values.put(self._known(context), value)

    def forget(self, context: ToolContext) -> None:
        """Forget the value of the caller of a call; raises as `of` does."""
        self._values.drop(self._known(context))

    def _known(self, context: ToolContext) -> str:
        caller = caller_of(context)
        if caller is None:
            raise CallError(
                "this tool remembers something for each caller, and this client has neither a session nor an "
                "authenticated user: use a client of 2025-11-25, or turn on authentication"
            )
        return caller


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


Permission = Literal["allow", "deny", "ask"]
Policy = Callable[[ToolCall], "Permission | Awaitable[Permission]"]

ASK_TIMEOUT: Final = 300.0  # The default seconds that the user has before the call is refused.

_log = logging.getLogger("mcp_toolset.policy")
_NO_FIELDS: Final[dict[str, Any]] = {"type": "object", "properties": {}}


class PermissionChecker(Rule):
    """Asks a policy about every call: allow, deny, or ask the user."""

    def __init__(self, policy: Policy, *, ask_timeout: float = ASK_TIMEOUT) -> None:
        """Use `policy(call)`, sync or async, which returns `"allow"`, `"deny"` or `"ask"`.

        Any other answer denies the call, and so does a user who gives none within `ask_timeout` seconds.
        """
        if not callable(policy) or isinstance(cast("object", policy), type):
            raise DefinitionError(f"PermissionChecker takes a function of a call, not {policy!r}")
        _check_permission(policy)
        self._policy = policy
        require_positive("PermissionChecker", ask_timeout=ask_timeout)
        self._ask_timeout = ask_timeout

    async def __call__(self, call: ToolCall, context: ToolContext, next: CallNext) -> ToolResult:
        answer = self._policy(call)
        permission = await answer if inspect.isawaitable(answer) else answer
        if permission == "allow":
            return await next()
        if permission == "ask":
            # On 2026-07-28 the question ends the call here, and the repeated call has the answer.
            obstacle: str | None = f"there was no answer within {self._ask_timeout:g} s"
            with anyio.move_on_after(self._ask_timeout):
                obstacle = await _obstacle(call, context)
            if obstacle is None:
                return await next()
            if obstacle:
                return rejection(Reject(_unasked(call.name, obstacle), "policy"))
        elif permission != "deny":
            shown = in_log(repr(permission))
            _log.error(
                "the policy of %s answered %s, not allow, deny or ask: denied", in_log(call.name), shown
            )
        return rejection(Reject(f"{call.name} is not permitted by the policy of this server", "policy"))


def _check_permission(policy: Policy) -> None:
    signature = inspect.signature(policy)
    returned = signature.return_annotation
    try:
        signature.bind(None)
    except TypeError:
        raise DefinitionError(f"PermissionChecker takes a function of (call), not of {signature}") from None
    if returned in (bool, "bool", None, "None"):
        raise DefinitionError(
            f'PermissionChecker takes a function that returns "allow", "deny" or "ask", not {returned!r}'
        )


async def _obstacle(call: ToolCall, context: ToolContext) -> str | None:
    question = f"Allow the call of {call.name} with {call.arguments!r}?"
    try:
        return None if (await context.elicit(question, _NO_FIELDS)).accepted else ""
    except CannotAskError as fault:
        return fault.obstacle
    except CallError:
        return ""


def _unasked(name: str, obstacle: str) -> str:
    return (
        f"{name} did not run: the policy of this server has the user asked about this call, and {obstacle}; "
        "use a client that shows questions (elicitation), or have the policy allow the call"
    )


class OutputFormatter(Rule):
    """Limits the number of characters in a result, so that it does not fill a model's context.

    Text is cut between characters as a reader counts them, never inside one. Structured content is
    never cut, because a part of it would be invalid or wrong. If it is too long, it is left out and a note
    says so. If the tool's output schema requires it, it stays in full next to the cut text, because clients
    refuse the result without it (server/tools, "Output Schema").
    """

    def __init__(self, max_length: int) -> None:
        """Allow `max_length` characters of text in a result, over all blocks, and of structured JSON."""
        require_positive("OutputFormatter", max_length=max_length)
        self._limit = max_length

    async def __call__(self, call: ToolCall, context: ToolContext, next: CallNext) -> ToolResult:
        result = await next()
        if not result.is_complete:
            return result
        blocks, lost = cut(result.content, self._limit)
        written = json.dumps(result.structured, ensure_ascii=False, separators=(",", ":"))
        is_long = "structuredContent" in result.wire and len(written) > self._limit
        is_promised = next.definition.output_schema is not None and not result.is_error
        if not lost and (not is_long or is_promised):
            return result
        wire = dict(result.wire)
        if is_long and not is_promised:
            del wire["structuredContent"]
        note = _note(lost, dropped=is_long and not is_promised, kept="structuredContent" in wire)
        return replace(result, wire={**wire, "content": [*blocks, {"type": "text", "text": note}]})


def _note(lost: int, *, dropped: bool, kept: bool) -> str:
    parts = [f"{lost} characters were cut off"] if lost else []
    if dropped:
        parts.append("the structured content was too long and is left out")
    elif kept:
        parts.append("the structured content is whole")
    return f"[{'; '.join(parts)}; ask for less]"


class HiddenTextFilter(Rule):
    """Removes invisible, bidirectional and control characters from results.

    It is optional, since a result may be data that must stay unchanged: a file to be written back, a log to
    be searched for escape sequences. Text blocks, the text of embedded resources and structured content are
    cleaned; images, audio and links are not.
    """

    async def __call__(self, call: ToolCall, context: ToolContext, next: CallNext) -> ToolResult:
        result = await next()
        if not result.is_complete:
            return result
        wire = {**result.wire, "content": [_clean(block) for block in result.content]}
        if "structuredContent" in wire:
            wire["structuredContent"] = cleaned_metadata(wire["structuredContent"])
        return result if wire == result.wire else replace(result, wire=wire)


def _clean(block: Block) -> Block:
    resource: Any = block.get("resource")
    if isinstance(resource, dict):
        return {**block, "resource": _clean(cast("Block", resource))}
    text = block.get("text")
    return {**block, "text": cleaned(text)} if isinstance(text, str) else block


class Timeout(Rule):
    """Sets a time limit for each call: for all middleware inside this one, the hooks and the tool.

    An async tool and a call of a mounted server are cancelled. A sync tool cannot be cancelled, so its late
    result is dropped. The time until a user answers a tool's question counts, too.
    """

    def __init__(self, seconds: float, *, per_tool: Mapping[str, float | None] | None = None) -> None:
        """Allow `seconds` for a call.

        `per_tool` has limits of single tools, in seconds, by name (docs/names.md); `None` means no limit.
        """
        require_positive("Timeout", per_tool, seconds=seconds)
        self._seconds = seconds
        self._per_tool = dict(per_tool or {})

    async def __call__(self, call: ToolCall, context: ToolContext, next: CallNext) -> ToolResult:
        seconds = self._limit(next.names) if self._per_tool else self._seconds
        with anyio.move_on_after(seconds):
            return await next()
        return ToolResult.of_error(f"{call.name} gave no answer within {seconds:g} s and was stopped")

    def tool_names(self) -> Iterable[NameUse]:
        """The names in `per_tool`."""
        return [NameUse(name, "Timeout") for name in self._per_tool]

    def _limit(self, names: Iterable[str]) -> float | None:
        own = [self._per_tool[name] for name in names if name in self._per_tool]
        return own[0] if own else self._seconds


MAX_COMPILED: Final = 1000  # The number of definitions whose compiled schemas are kept.

_BACKTRACK_LIMIT: Final = 100_000


class FormatCheck(SchemaCheck):
    """A compiled schema that also checks formats; unknown formats are ignored."""

    __slots__ = ()

    def __init__(self, schema: Mapping[str, Any], *, tool: str, part: str) -> None:
        super().__init__(schema, tool=tool, part=part)
        self._validator = _asserting(thawed(dict(schema)))


class SchemaValidator:
    """Checks arguments and, with `output`, structured results against the tool's schemas, formats included.

    Every call is checked without it, but `format` is then an annotation, as in JSON Schema 2020-12. With this
    middleware `"format": "email"`, `"date-time"` (RFC 3339, so with a time zone), `"uri"`, `"uuid"` and the
    other formats of the dialect are checked too; and a structured result is checked again after the hooks and
    middleware inside.

    `check_arguments` and `check_result` do the same for a dispatch of the application's own, such
    as a loop that runs tools itself. The schemas are those of the present definition.
    """

    def __init__(self, *, output: bool = True) -> None:
        self._output = output
        self._compiled: Recent[str, tuple[FormatCheck, FormatCheck | None]] = Recent(MAX_COMPILED)

    async def __call__(self, call: ToolCall, context: ToolContext, next: CallNext) -> ToolResult:
        self.check_arguments(call, next.definition)
        result = await next()
        if self._output:
            self.check_result(call, next.definition, result)
        return result

    def check_arguments(self, call: ToolCall, definition: ToolDefinition) -> None:
        """Raise `InvalidArgumentsError` unless the arguments of a call fit the input schema."""
        check, _ = self._checks(definition)
        if not check.is_valid(call.arguments):
            raise InvalidArgumentsError(check.misfit(call.name, call.arguments))

    def check_result(self, call: ToolCall, definition: ToolDefinition, result: ToolResult) -> None:
        """Raise `InvalidOutputError` unless the structured content fits the output schema, if there is one.

        Errors, and calls that ask for input, are not checked.
        """
        _, check = self._checks(definition)
        if check is None or result.is_error or not result.is_complete:
            return
        if "structuredContent" not in result.wire:
            raise InvalidOutputError(
                f"{call.name} declares an output schema and returned no structured content"
            )
        if not check.is_valid(result.structured):
            faults = "; ".join(check.problems(result.structured))
            raise InvalidOutputError(
                f"{call.name} returned a result that does not fit its output schema: {faults}"
            )

    def _checks(self, definition: ToolDefinition) -> tuple[FormatCheck, FormatCheck | None]:
        compiled = self._compiled.get(definition.digest)
        if compiled is None:
            compiled = _compiled(definition)
            self._compiled.put(definition.digest, compiled)
        return compiled


def _compiled(definition: ToolDefinition) -> tuple[FormatCheck, FormatCheck | None]:
    name, output = definition.name, definition.output_schema
    return (
        FormatCheck(definition.input_schema, tool=name, part="inputSchema"),
        None if output is None else FormatCheck(output, tool=name, part="outputSchema"),
    )


def _asserting(schema: dict[str, Any]) -> Validator:
    """With linear-time patterns if possible; `SchemaCheck` has found that one of the two engines works."""
    # The compiler takes 6 MB and 5 ms to load, and few programs check formats.
    from jsonschema_rs import FancyRegexOptions, RegexOptions, ValidationError, validator_for

    made = partial(validator_for, schema, validate_formats=True, offline=True)
    try:
        return made(pattern_options=RegexOptions())
    except ValidationError:
        return made(pattern_options=FancyRegexOptions(backtrack_limit=_BACKTRACK_LIMIT))
