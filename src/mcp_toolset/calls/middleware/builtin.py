"""Middleware without state: permissions, length and hidden text of results, deadlines, formats of schemas."""

from __future__ import annotations

import inspect
import json
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, cast

import anyio

from mcp_toolset._records import replace
from mcp_toolset._rule import Rule
from mcp_toolset.calls.middleware.caller import Recent
from mcp_toolset.calls.middleware.text_limit import cut
from mcp_toolset.calls.pipeline.decision import Reject, rejection
from mcp_toolset.calls.pipeline.middleware import CallNext
from mcp_toolset.errors import (
    CallError,
    CannotAskError,
    DefinitionError,
    InvalidArgumentsError,
    InvalidOutputError,
)
from mcp_toolset.tools.binding.selector import NameUse
from mcp_toolset.tools.core.call import ToolCall, ToolContext
from mcp_toolset.tools.core.definition import ToolDefinition, thawed
from mcp_toolset.tools.core.result import Block, ToolResult
from mcp_toolset.tools.schema.validation import SchemaCheck
from mcp_toolset.tools.text.hidden_text import cleaned, cleaned_metadata, in_log

if TYPE_CHECKING:
    from jsonschema_rs import Validator

Permission = Literal["allow", "deny", "ask"]
Policy = Callable[[ToolCall], "Permission | Awaitable[Permission]"]

ASK_DEADLINE: Final = 300.0  # The default seconds that the user has before the call is refused.

_log = logging.getLogger("mcp_toolset.policy")
_NO_FIELDS: Final[dict[str, Any]] = {"type": "object", "properties": {}}


class PermissionChecker(Rule):
    """Asks a policy about every call: allow, deny, or ask the user."""

    def __init__(self, policy: Policy, *, ask_deadline: float = ASK_DEADLINE) -> None:
        """Use `policy(call)`, sync or async, which returns `"allow"`, `"deny"` or `"ask"`.

        Any other answer denies the call, and so does a user who gives none within `ask_deadline` seconds.
        """
        if not callable(policy) or isinstance(cast("object", policy), type):
            raise DefinitionError(f"PermissionChecker takes a function of a call, not {policy!r}")
        _check_permission(policy)
        self._policy = policy
        self._ask_deadline = _positive(ask_deadline, "an answer", "PermissionChecker")

    async def __call__(self, call: ToolCall, context: ToolContext, next: CallNext) -> ToolResult:
        answer = self._policy(call)
        permission = await answer if inspect.isawaitable(answer) else answer
        if permission == "allow":
            return await next()
        if permission == "ask":
            # On 2026-07-28 the question ends the call here, and the repeated call has the answer.
            obstacle: str | None = f"there was no answer within {self._ask_deadline:g} s"
            with anyio.move_on_after(self._ask_deadline):
                obstacle = await _obstacle(call, context)
            if obstacle is None:
                return await next()
            if obstacle:
                return rejection(Reject(_unasked(call.name, obstacle), "policy"))
        elif permission != "deny":
            told = in_log(repr(permission))
            _log.error(
                "the policy of %s answered %s, not allow, deny or ask: denied", in_log(call.name), told
            )
        return rejection(Reject(f"{call.name} is not permitted by the policy of this server", "policy"))


def _check_permission(policy: Policy) -> None:
    found = inspect.signature(policy)
    said = found.return_annotation
    try:
        found.bind(None)
    except TypeError:
        raise DefinitionError(f"PermissionChecker takes a function of (call), not of {found}") from None
    if said in (bool, "bool", None, "None"):
        raise DefinitionError(
            f'PermissionChecker takes a function that returns "allow", "deny" or "ask", not {said!r}'
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
        if max_length < 1:
            raise DefinitionError(f"OutputFormatter needs a positive number of characters, not {max_length}")
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
    """Sets a deadline for each call: for all middleware inside this one, the hooks and the tool.

    An async tool and a call of a mounted server are cancelled. A sync tool cannot be cancelled, so its late
    result is dropped. The time until a user answers a tool's question counts, too.
    """

    def __init__(self, seconds: float, *, per_tool: Mapping[str, float | None] | None = None) -> None:
        """Allow `seconds` for a call.

        `per_tool` has limits of single tools, in seconds, by name (docs/names.md); `None` means no limit.
        """
        self._seconds = _positive(seconds, "a call")
        self._per_tool = {
            name: None if own is None else _positive(own, name) for name, own in (per_tool or {}).items()
        }

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


def _positive(seconds: float, what: str, owner: str = "Timeout") -> float:
    if not isinstance(cast("object", seconds), int | float) or not seconds > 0:
        raise DefinitionError(f"{owner} needs a positive number of seconds for {what}, not {seconds!r}")
    return float(seconds)


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
        found = self._compiled.get(definition.digest)
        if found is None:
            found = _compiled(definition)
            self._compiled.put(definition.digest, found)
        return found


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
