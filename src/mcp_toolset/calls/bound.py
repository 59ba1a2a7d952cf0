"""Hooks as they are asked: a function with what its signature wants, a deadline, and what failing means.

Both kinds fail closed: an execution hook that raises or outstays its deadline is a rejection (F38,
F39), and a result hook that does so withholds the result (O9).
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, is_dataclass
from typing import Any, cast, get_origin

import anyio
from pydantic import BaseModel, TypeAdapter
from pydantic.errors import PydanticUserError

from mcp_toolset.calls.decision import Complete, Decision, Reject, RunNormally
from mcp_toolset.calls.record import record
from mcp_toolset.errors import DefinitionError
from mcp_toolset.tools.call import ToolCall, ToolContext
from mcp_toolset.tools.result import ToolResult
from mcp_toolset.tools.signature import resolved_hints

ExecutionHook = Callable[..., Awaitable[Decision]]
"""`async def hook(call, input[, context]) -> RunNormally | Complete | Reject`."""

ResultHook = Callable[..., Awaitable[ToolResult | None]]
"""`async def hook(call, result[, context]) -> ToolResult | None`; `None` keeps the result."""

_log = logging.getLogger("mcp_toolset.hooks")


@dataclass(frozen=True, slots=True)
class BoundHook:
    """An execution hook with what its signature asks for."""

    function: ExecutionHook
    adapter: TypeAdapter[Any] | None
    takes_context: bool
    deadline: float

    async def decide(self, call: ToolCall, context: ToolContext) -> Decision:
        """Ask the hook about a call; whatever goes wrong in it is a rejection."""
        decision = await self._decision(call, context)
        effective = decision.input if isinstance(decision, RunNormally) else call.arguments
        reason = decision.reason if isinstance(decision, Reject) else ""
        record(call, type(decision).__name__, effective, reason=reason)
        return decision

    async def _decision(self, call: ToolCall, context: ToolContext) -> Decision:
        try:
            # `fail_after` would cost as much as all the rest of a hook that has nothing to say.
            with anyio.CancelScope(deadline=anyio.current_time() + self.deadline):
                return await self._ask(call, context)
            _log.error("hook %s gave no answer about %s in time", _shown(self.function), call.name)
            return Reject(f"the check of {call.name} gave no answer in {self.deadline:g} s; try again later")
        # A hook is the application's code and may raise anything; the call must not run then (F38).
        except (Exception, SystemExit):
            _log.exception("hook %s raised about %s", _shown(self.function), call.name)
            return Reject(f"the check of {call.name} failed, so it was not run")

    async def _ask(self, call: ToolCall, context: ToolContext) -> Decision:
        given = call.arguments if self.adapter is None else self.adapter.validate_python(call.arguments)
        seen = self._dumped(given)
        arguments = (call, given, context) if self.takes_context else (call, given)
        decision = cast("object", await self.function(*arguments))
        if isinstance(decision, RunNormally):
            if self.adapter is None or _is_json_instead(decision.input, given):
                return RunNormally(_object(decision.input))
            return RunNormally(self._edited(call.arguments, seen, decision.input))
        if isinstance(decision, Complete | Reject):
            return decision
        raise TypeError(f"a hook returns RunNormally, Complete or Reject, not {decision!r}")

    def _edited(self, arguments: dict[str, Any], seen: dict[str, Any], edited: Any) -> dict[str, Any]:
        """The arguments with what the hook changed; what its type does not name stays as it was."""
        wanted = self._dumped(edited)
        kept = {key: value for key, value in arguments.items() if key not in seen or key in wanted}
        changed = {key: value for key, value in wanted.items() if key not in seen or seen[key] != value}
        return {**kept, **changed}

    def _dumped(self, value: Any) -> dict[str, Any]:
        if self.adapter is None:
            return _object(value)
        dump = self.adapter.dump_python(value, mode="json", by_alias=True, exclude_unset=True, warnings=False)
        return _object(dump)


@dataclass(frozen=True, slots=True)
class BoundResultHook:
    """A result hook with what its signature asks for (O9)."""

    function: ResultHook
    takes_context: bool
    deadline: float

    async def passed(self, call: ToolCall, result: ToolResult, context: ToolContext) -> ToolResult:
        """The result as the hook lets it through; if anything goes wrong in it, nothing of the result."""
        decision, seen = await self._seen(call, result, context)
        record(call, decision, call.arguments)
        return seen

    async def _seen(self, call: ToolCall, result: ToolResult, context: ToolContext) -> tuple[str, ToolResult]:
        try:
            with anyio.fail_after(self.deadline):
                changed = await self._ask(call, result, context)
        except TimeoutError:
            _log.exception("result hook %s gave no answer about %s in time", _shown(self.function), call.name)
            return "ResultWithheld", _withheld(call, f"gave no answer in {self.deadline:g} s")
        # A hook is the application's code and may raise anything; what it has not seen is not passed on.
        except (Exception, SystemExit):
            _log.exception("result hook %s raised about %s", _shown(self.function), call.name)
            return "ResultWithheld", _withheld(call, "failed")
        return ("ResultKept", result) if changed is None else ("ResultChanged", changed)

    async def _ask(self, call: ToolCall, result: ToolResult, context: ToolContext) -> ToolResult | None:
        arguments = (call, result, context) if self.takes_context else (call, result)
        answer = cast("object", await self.function(*arguments))
        if answer is None or isinstance(answer, ToolResult):
            return answer
        raise TypeError(f"a result hook returns a ToolResult or None, not {answer!r}")


def bound(hook: ExecutionHook, deadline: float) -> BoundHook:
    """An execution hook, ready to be asked.

    Raises:
        DefinitionError: it is not async, takes other parameters, or its input's type cannot be read.
    """
    shown = require_async(hook)
    parameters = _parameters(hook, "input")
    annotation = resolved_hints(hook, f"hook {shown}").get(parameters[1], dict)
    try:
        adapter: TypeAdapter[Any] | None = TypeAdapter(annotation) if _is_structure(annotation) else None
    except PydanticUserError as fault:
        reason = str(fault).splitlines()[0]
        raise DefinitionError(f"hook {shown}: its input cannot be read as {annotation!r}: {reason}") from None
    return BoundHook(hook, adapter, len(parameters) == 3, deadline)


def bound_result(hook: ResultHook, deadline: float) -> BoundResultHook:
    """A result hook, ready to be asked.

    Raises:
        DefinitionError: it is not async, or takes other parameters.
    """
    require_async(hook)
    return BoundResultHook(hook, len(_parameters(hook, "result")) == 3, deadline)


def require_async(hook: Callable[..., Any]) -> str:
    """The name of a hook, for messages; `DefinitionError` unless it is an `async def`."""
    if not inspect.iscoroutinefunction(hook) and not inspect.iscoroutinefunction(type(hook).__call__):
        raise DefinitionError(f"hook {_shown(hook)} must be an `async def`")
    return _shown(hook)


def _parameters(hook: Callable[..., Any], second: str) -> list[str]:
    parameters = list(inspect.signature(hook).parameters)
    if len(parameters) not in (2, 3):
        raise DefinitionError(f"hook {_shown(hook)} must take (call, {second}) or (call, {second}, context)")
    return parameters


def _shown(hook: Callable[..., Any]) -> str:
    return getattr(hook, "__qualname__", repr(hook))


def _withheld(call: ToolCall, fault: str) -> ToolResult:
    return ToolResult.of_error(f"the result of {call.name} is withheld: its check {fault}")


def _is_json_instead(edited: object, given: object) -> bool:
    return isinstance(edited, dict) and not isinstance(given, dict)


def _object(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError(
            f"RunNormally takes the input that the hook was given, or a dictionary, not {value!r}"
        )
    return cast("dict[str, Any]", value)


def _is_structure(annotation: object) -> bool:
    if not isinstance(annotation, type) or get_origin(annotation) is not None:
        return False
    kind = cast("type[Any]", annotation)
    # `typing` does not know the typed dictionaries of `typing_extensions`, which pydantic asks for on 3.11.
    is_typed_dict = hasattr(kind, "__required_keys__") and hasattr(kind, "__total__")
    return issubclass(kind, BaseModel) or is_typed_dict or is_dataclass(kind)
