"""`BoundHook`, `BoundResultHook`: hooks with the parameters of their signatures, checked on registration."""

from __future__ import annotations

import dis
import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import wraps
from types import CodeType, NoneType
from typing import TYPE_CHECKING, Any, Final, cast

import anyio

from mcp_toolset._records import dataclass
from mcp_toolset.calls.decision import Complete, Decision, Reject, RunNormally, record
from mcp_toolset.concurrency.tasks import CancelledError, from_outside
from mcp_toolset.errors import DefinitionError
from mcp_toolset.tools.call import ToolCall, ToolContext
from mcp_toolset.tools.hidden_text import in_log
from mcp_toolset.tools.result import ToolResult
from mcp_toolset.tools.signature import resolved_hints

if TYPE_CHECKING:
    from pydantic import TypeAdapter


ExecutionHook = Callable[..., Awaitable[Decision]]
"""`async def hook(call[, input[, context]]) -> RunNormally | Complete | Reject`."""

ResultHook = Callable[..., Awaitable[ToolResult | None]]
"""`async def hook(call, result[, context]) -> ToolResult | None`; `None` keeps the result."""

_log = logging.getLogger("mcp_toolset.hooks")


@dataclass(frozen=True, slots=True)
class BoundHook:
    """An execution hook and the parameters of its signature; it has no `timeout` if it never awaits."""

    function: ExecutionHook
    adapter: TypeAdapter[Any] | None
    takes_context: bool
    timeout: float | None
    input: Any = None

    @property
    def shown(self) -> str:
        return _shown(self.function)

    def require_fitting(self, tool: str, schema: Mapping[str, Any]) -> None:
        if self.adapter is not None:
            from mcp_toolset.calls.hook_inputs import require_fitting

            require_fitting(self.shown, self.input, self.adapter, tool, schema)

    async def decide(self, call: ToolCall, context: ToolContext) -> Decision:
        try:
            value: Any = call.arguments
            dumped: dict[str, Any] | None = None
            if self.adapter is not None:
                value = self.adapter.validate_python(value)
                dumped = _dumped(self.adapter, value)
            arguments = (call, value, context) if self.takes_context else (call, value)
            work = self.function(*arguments)
            answer = await (work if self.timeout is None else self._within(self.timeout, work, call))
            decision = self._decision(answer, call, value, dumped)
        # A hook is the application's code and may raise anything; the call must not run then.
        except (Exception, SystemExit, CancelledError) as fault:
            if from_outside(fault):
                raise
            _log.exception("hook %s raised about %s", _shown(self.function), in_log(call.name))
            decision = Reject(f"the check of {call.name} failed, so it was not run")
        if isinstance(decision, RunNormally):
            record(call, "RunNormally", decision.input)
        else:
            reason = decision.reason if isinstance(decision, Reject) else ""
            record(call, type(decision).__name__, call.arguments, reason=reason)
        return decision

    async def _within(self, timeout: float, work: Awaitable[Decision], call: ToolCall) -> Decision:
        with anyio.move_on_after(timeout):
            return await work
        _log.error("hook %s gave no answer about %s in time", _shown(self.function), in_log(call.name))
        return Reject(f"the check of {call.name} gave no answer in {timeout:g} s; try again later")

    def _decision(
        self, decision: object, call: ToolCall, value: Any, dumped: dict[str, Any] | None
    ) -> Decision:
        """The decision with the arguments to run with.

        `value` is the input that the hook got, `dumped` its JSON form; `None` for a plain dictionary.
        """
        if isinstance(decision, RunNormally):
            output: object = decision.input
            replaces_all = isinstance(output, dict) and not isinstance(value, dict)
            if dumped is None or self.adapter is None or replaces_all:
                _object(output)
                return decision
            return RunNormally(_edited(call.arguments, dumped, _dumped(self.adapter, output)))
        if isinstance(decision, Complete | Reject):
            return decision
        raise TypeError(f"a hook returns RunNormally, Complete or Reject, not {decision!r}")


def _edited(arguments: dict[str, Any], before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """The arguments with the edits of a hook, which got `before` and returned `after`."""
    kept = {key: value for key, value in arguments.items() if key not in before or key in after}
    changed = {key: value for key, value in after.items() if key not in before or before[key] != value}
    return {**kept, **changed}


def _dumped(adapter: TypeAdapter[Any], value: Any) -> dict[str, Any]:
    return _object(adapter.dump_python(value, mode="json", by_alias=True, exclude_unset=True, warnings=False))


@dataclass(frozen=True, slots=True)
class BoundResultHook:
    """A result hook and the parameters of its signature."""

    function: ResultHook
    takes_context: bool
    timeout: float | None

    async def passed(self, call: ToolCall, result: ToolResult, context: ToolContext) -> ToolResult:
        decision, changed = await self._decide(call, result, context)
        record(call, decision, call.arguments)
        return changed

    async def _decide(
        self, call: ToolCall, result: ToolResult, context: ToolContext
    ) -> tuple[str, ToolResult]:
        try:
            if self.timeout is None:
                return await self._ask(call, result, context)
            with anyio.move_on_after(self.timeout):
                return await self._ask(call, result, context)
        # A hook is the application's code and may raise anything; an unjudged result is withheld.
        except (Exception, SystemExit, CancelledError) as fault:
            if from_outside(fault):
                raise
            _log.exception("result hook %s raised about %s", _shown(self.function), in_log(call.name))
            return "ResultWithheld", _withheld(call, "failed")
        _log.error("result hook %s gave no answer about %s in time", _shown(self.function), in_log(call.name))
        return "ResultWithheld", _withheld(call, f"gave no answer in {self.timeout:g} s")

    async def _ask(self, call: ToolCall, result: ToolResult, context: ToolContext) -> tuple[str, ToolResult]:
        arguments = (call, result, context) if self.takes_context else (call, result)
        answer = cast("object", await self.function(*arguments))
        if answer is None:
            return "ResultKept", result
        if isinstance(answer, ToolResult):
            return "ResultChanged", answer
        raise TypeError(f"a result hook returns a ToolResult or None, not {answer!r}")


def bound(hook: ExecutionHook, timeout: float) -> BoundHook:
    shown = require_async(hook)
    hints = resolved_hints(hook, f"hook {shown}")
    parameters = _parameters(hook, "input", hints)
    _check_answer(shown, hints, (RunNormally, Complete, Reject))
    if len(parameters) == 1:
        return BoundHook(_ignoring_input(hook), None, False, timeout if awaits(hook) else None)
    # A server whose hooks take no typed input starts without importing pydantic's models.
    from mcp_toolset.calls.hook_inputs import input_adapter

    annotation = hints.get(parameters[1], dict)
    adapter = input_adapter(shown, annotation)
    takes_context, limit = len(parameters) == 3, timeout if awaits(hook) else None
    return BoundHook(hook, adapter, takes_context, limit, None if adapter is None else annotation)


def _ignoring_input(hook: ExecutionHook) -> ExecutionHook:

    @wraps(hook)
    async def decide(call: ToolCall, input: Any) -> Decision:
        return await hook(call)

    return decide


def bound_result(hook: ResultHook, timeout: float) -> BoundResultHook:
    shown = require_async(hook)
    try:
        hints = resolved_hints(hook, f"hook {shown}")
    # No input is parsed here, so a type that cannot be resolved does no harm.
    except DefinitionError:
        hints = dict[str, Any]()
    takes_context = len(_parameters(hook, "result", hints)) == 3
    _check_answer(shown, hints, (ToolResult, NoneType))
    return BoundResultHook(hook, takes_context, timeout if awaits(hook) else None)


def check_description_hook(hook: Callable[..., Any]) -> None:
    """Raise `DefinitionError` unless a function is async and takes a definition."""
    shown = require_async(hook)
    signature = inspect.signature(hook)
    fault = DefinitionError(f"description hook {shown} must take (definition), not {signature}")
    try:
        signature.bind(None)
    except TypeError:
        raise fault from None
    first = next(iter(signature.parameters.values()))
    annotation = getattr(first.annotation, "__name__", str(first.annotation))
    if first.name in ("call", "result") or annotation in ("ToolCall", "ToolResult"):
        raise fault


def require_async(hook: Callable[..., Any]) -> str:
    """The name of a hook, for messages; `DefinitionError` unless it is an `async def` or has one."""
    if isinstance(hook, type):
        raise DefinitionError(f"hook {_shown(hook)} is a class; register an object: {hook.__name__}(…)")
    if not callable(hook):
        raise DefinitionError(f"a hook is an `async def` or an object with one, not {hook!r}")
    if not inspect.iscoroutinefunction(hook) and not inspect.iscoroutinefunction(type(hook).__call__):
        raise DefinitionError(f"hook {_shown(hook)} must be an `async def`")
    return _shown(hook)


def _parameters(hook: Callable[..., Any], second: str, hints: Mapping[str, Any]) -> list[str]:
    """The names of the parameters that a hook gets, in order; `DefinitionError` for a wrong signature."""
    signature = inspect.signature(hook).parameters.values()
    parameters = [
        parameter.name
        for parameter in signature
        if parameter.default is parameter.empty
        or _position(parameter.name, hints.get(parameter.name), second) is not None
    ]
    if named := [parameter.name for parameter in signature if parameter.kind in _NAMED]:
        raise DefinitionError(f"hook {_shown(hook)} gets no arguments by name, such as {named[0]}")
    if parameters[:1] == ["self"]:
        shown = _shown(hook)
        mend = f"register that of an object: thing.{shown.rpartition('.')[2]}"
        raise DefinitionError(f"hook {shown} is a method; {mend}")
    alone = "(call), " if second == "input" else ""
    expected = f"hook {_shown(hook)} must take {alone}(call, {second}) or (call, {second}, context)"
    if len(parameters) not in ((1, 2, 3) if second == "input" else (2, 3)):
        raise DefinitionError(expected)
    for number, name in enumerate(parameters):
        position = _position(name, hints.get(name), second)
        if position is not None and position != number:
            raise DefinitionError(f"{expected}, in this order, not ({', '.join(parameters)})")
    return parameters


def _position(name: str, hint: object, second: str) -> int | None:
    """The position that a parameter has by its type or its name; `None` if neither says one."""
    if isinstance(hint, type):
        for position, kind in enumerate((ToolCall, ToolResult, ToolContext)):
            if issubclass(hint, kind):
                return position
    if hint is not None and name != "call":
        return None
    # The second parameter of the other kind of hook has no position here.
    return {"call": 0, "input": -1, "result": -1, second: 1, "context": 2}.get(name)


def _check_answer(shown: str, hints: Mapping[str, Any], kinds: tuple[type, ...]) -> None:
    """Refuse a hook that returns something else by its annotation: it would refuse every call."""
    annotation = hints.get("return", Any)
    returned = NoneType if annotation is None else annotation
    if isinstance(returned, type) and returned not in (Any, object) and not issubclass(returned, kinds):
        names = " or ".join("None" if kind is NoneType else kind.__name__ for kind in kinds)
        raise DefinitionError(f"hook {shown} must return {names}, not {returned.__name__}")


def _shown(hook: Callable[..., Any]) -> str:
    return getattr(hook, "__qualname__", repr(hook))


def _withheld(call: ToolCall, fault: str) -> ToolResult:
    return ToolResult.of_error(f"the result of {call.name} is withheld: its check {fault}")


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError(
            f"RunNormally takes the input that the hook was given, or a dictionary, not {value!r}"
        )
    return cast("dict[str, Any]", value)


_NAMED: Final = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD)

_SUSPENDING: Final = frozenset({"SEND", "YIELD_VALUE", "YIELD_FROM", "GET_AWAITABLE"})


def awaits(function: Callable[..., Any]) -> bool:
    """True if an async function may suspend, by its bytecode: a time limit cannot end one that never does."""
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    if not isinstance(code, CodeType) or not code.co_flags & inspect.CO_COROUTINE:
        return True
    return any(instruction.opname in _SUSPENDING for instruction in dis.get_instructions(code))
