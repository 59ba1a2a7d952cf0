"""`BoundHook` and `BoundResultHook`: call a hook with the parameters of its signature, and fail closed.

An execution hook that raises or exceeds its deadline rejects the call; a result hook that does so withholds
the result. `dispatch` and the runner of rounds call them. Policy objects have hooks as methods.
"""

from __future__ import annotations

import dis
import inspect
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import wraps
from types import CodeType, FunctionType, NoneType
from typing import TYPE_CHECKING, Any, Final, Literal, cast

import anyio

from mcp_toolset._records import dataclass
from mcp_toolset._rule import rules_among
from mcp_toolset.calls.pipeline.decision import Complete, Decision, Reject, RunNormally, record
from mcp_toolset.concurrency.task_set import CancelledError, from_outside
from mcp_toolset.errors import DefinitionError
from mcp_toolset.tools.binding.selector import ToolGroup, ToolSelector
from mcp_toolset.tools.core.call import ToolCall, ToolContext
from mcp_toolset.tools.core.result import ToolResult
from mcp_toolset.tools.declare.signature import resolved_hints
from mcp_toolset.tools.text.hidden_text import in_log

if TYPE_CHECKING:
    from pydantic import TypeAdapter


HookKind = Literal["execution", "description", "result"]

_FORMS: Final[tuple[tuple[str, HookKind], ...]] = (
    ("_description_hook", "description"),
    ("_result_hook", "result"),
    ("_hook", "execution"),
)
"""Suffixes of method names, the most specific first."""


@dataclass(frozen=True, slots=True)
class PolicyHook:
    """A hook that a policy object has for one tool."""

    tool: str
    kind: HookKind
    function: Any


def policy_hooks(policy: object) -> list[PolicyHook]:
    """The hooks of a policy object: `weather_hook`, `weather_description_hook`, `weather_result_hook`."""
    if isinstance(policy, type):
        raise DefinitionError(f"a policy is an object: register {policy.__name__}(), not the class")
    shown = type(policy).__name__
    found = [_read(policy, name, shown) for name in _candidates(policy)]
    if not found:
        raise DefinitionError(f"policy {shown} has no hook; name its methods `<tool>_hook` or alike")
    return found


def _candidates(policy: object) -> Iterator[str]:
    for name in dir(policy):
        if name.startswith("_"):
            continue
        member = inspect.getattr_static(policy, name)
        is_method = isinstance(member, FunctionType | staticmethod | classmethod)
        if (
            name.endswith(("_hook", "_hooks"))
            or any(rules_among(member))
            or (is_method and not inspect.ismodule(policy))
        ):
            yield name


def _read(policy: object, name: str, shown: str) -> PolicyHook:
    function: Any = getattr(policy, name)
    for ending, kind in _FORMS:
        tool = name.removesuffix(ending)
        if tool != name and callable(function):
            return PolicyHook(tool, kind, function)
    forms = ", ".join(f"<tool>{ending}" for ending, _ in _FORMS)
    raise DefinitionError(
        f"policy {shown}: {name} is not a hook; name it {forms}, or begin it with an underscore"
    )


HookSelector = ToolSelector | ToolGroup  # A tool, a toolset, or the name or pattern of tools.

ExecutionHook = Callable[..., Awaitable[Decision]]
"""`async def hook(call[, input[, context]]) -> RunNormally | Complete | Reject`."""

ResultHook = Callable[..., Awaitable[ToolResult | None]]
"""`async def hook(call, result[, context]) -> ToolResult | None`; `None` keeps the result."""

_log = logging.getLogger("mcp_toolset.hooks")


@dataclass(frozen=True, slots=True)
class BoundHook:
    """An execution hook and the parameters of its signature; it has no `deadline` if it never awaits."""

    function: ExecutionHook
    adapter: TypeAdapter[Any] | None
    takes_context: bool
    deadline: float | None
    input: Any = None

    @property
    def shown(self) -> str:
        return _shown(self.function)

    def require_fitting(self, tool: str, schema: Mapping[str, Any]) -> None:
        if self.adapter is not None:
            from mcp_toolset.calls.pipeline.hook_inputs import require_fitting

            require_fitting(self.shown, self.input, self.adapter, tool, schema)

    async def decide(self, call: ToolCall, context: ToolContext) -> Decision:
        try:
            given: Any = call.arguments
            seen: dict[str, Any] | None = None
            if self.adapter is not None:
                given = self.adapter.validate_python(given)
                seen = _dumped(self.adapter, given)
            also = (context,) if self.takes_context else ()
            asked = self.function(call, given, *also)
            answer = await (asked if self.deadline is None else self._in_time(asked, call, self.deadline))
            decision = self._decided(answer, call, given, seen)
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

    async def _in_time(self, asked: Awaitable[Decision], call: ToolCall, deadline: float) -> Decision:
        with anyio.move_on_after(deadline):
            return await asked
        _log.error("hook %s gave no answer about %s in time", _shown(self.function), in_log(call.name))
        return Reject(f"the check of {call.name} gave no answer in {deadline:g} s; try again later")

    def _decided(self, decision: object, call: ToolCall, given: Any, seen: dict[str, Any] | None) -> Decision:
        if isinstance(decision, RunNormally):
            is_json = _is_object(decision.input) and not _is_object(given)
            if seen is None or self.adapter is None or is_json:
                _object(decision.input)
                return decision
            return RunNormally(_edited(call.arguments, seen, _dumped(self.adapter, decision.input)))
        if isinstance(decision, Complete | Reject):
            return decision
        raise TypeError(f"a hook returns RunNormally, Complete or Reject, not {decision!r}")


def _edited(arguments: dict[str, Any], seen: dict[str, Any], wanted: dict[str, Any]) -> dict[str, Any]:
    kept = {key: value for key, value in arguments.items() if key not in seen or key in wanted}
    changed = {key: value for key, value in wanted.items() if key not in seen or seen[key] != value}
    return {**kept, **changed}


def _dumped(adapter: TypeAdapter[Any], value: Any) -> dict[str, Any]:
    return _object(adapter.dump_python(value, mode="json", by_alias=True, exclude_unset=True, warnings=False))


@dataclass(frozen=True, slots=True)
class BoundResultHook:
    """A result hook and the parameters of its signature."""

    function: ResultHook
    takes_context: bool
    deadline: float | None

    async def passed(self, call: ToolCall, result: ToolResult, context: ToolContext) -> ToolResult:
        decision, seen = await self._seen(call, result, context)
        record(call, decision, call.arguments)
        return seen

    async def _seen(self, call: ToolCall, result: ToolResult, context: ToolContext) -> tuple[str, ToolResult]:
        try:
            if self.deadline is None:
                return await self._ask(call, result, context)
            with anyio.move_on_after(self.deadline):
                return await self._ask(call, result, context)
        # A hook is the application's code and may raise anything; what it has not seen is not passed on.
        except (Exception, SystemExit, CancelledError) as fault:
            if from_outside(fault):
                raise
            _log.exception("result hook %s raised about %s", _shown(self.function), in_log(call.name))
            return "ResultWithheld", _withheld(call, "failed")
        _log.error("result hook %s gave no answer about %s in time", _shown(self.function), in_log(call.name))
        return "ResultWithheld", _withheld(call, f"gave no answer in {self.deadline:g} s")

    async def _ask(self, call: ToolCall, result: ToolResult, context: ToolContext) -> tuple[str, ToolResult]:
        arguments = (call, result, context) if self.takes_context else (call, result)
        answer = cast("object", await self.function(*arguments))
        if answer is None:
            return "ResultKept", result
        if isinstance(answer, ToolResult):
            return "ResultChanged", answer
        raise TypeError(f"a result hook returns a ToolResult or None, not {answer!r}")


def bound(hook: ExecutionHook, deadline: float) -> BoundHook:
    shown = require_async(hook)
    hints = resolved_hints(hook, f"hook {shown}")
    parameters = _parameters(hook, "input", hints)
    _check_answer(shown, hints, (RunNormally, Complete, Reject))
    if len(parameters) == 1:
        return BoundHook(_of_call_alone(hook), None, False, deadline if awaits(hook) else None)
    # A server whose hooks take no typed input starts without importing pydantic's models.
    from mcp_toolset.calls.pipeline.hook_inputs import input_adapter

    annotation = hints.get(parameters[1], dict)
    adapter = input_adapter(shown, annotation)
    takes_context, limit = len(parameters) == 3, deadline if awaits(hook) else None
    return BoundHook(hook, adapter, takes_context, limit, None if adapter is None else annotation)


def _of_call_alone(hook: ExecutionHook) -> ExecutionHook:

    @wraps(hook)
    async def asked(call: ToolCall, input: Any) -> Decision:
        return await hook(call)

    return asked


def bound_result(hook: ResultHook, deadline: float) -> BoundResultHook:
    shown = require_async(hook)
    try:
        hints = resolved_hints(hook, f"hook {shown}")
    # No input is parsed here, so a type that cannot be resolved does no harm.
    except DefinitionError:
        hints = dict[str, Any]()
    takes_context = len(_parameters(hook, "result", hints)) == 3
    _check_answer(shown, hints, (ToolResult, NoneType))
    return BoundResultHook(hook, takes_context, deadline if awaits(hook) else None)


def check_description_hook(hook: Callable[..., Any]) -> None:
    """Raise `DefinitionError` unless a function is async and takes a definition."""
    shown = require_async(hook)
    found = inspect.signature(hook)
    try:
        found.bind(None)
    except TypeError:
        raise DefinitionError(f"description hook {shown} must take (definition), not {found}") from None
    first = next(iter(found.parameters.values()))
    meant = getattr(first.annotation, "__name__", str(first.annotation))
    if first.name in ("call", "result") or meant in ("ToolCall", "ToolResult"):
        raise DefinitionError(f"description hook {shown} must take (definition), not {found}")


def is_bare(selector: object, kind: HookKind) -> bool:
    """True if a selector is a hook: its decorator was written without parentheses."""
    if isinstance(selector, type | str) or not inspect.iscoroutinefunction(selector):
        return False
    hints = getattr(selector, "__annotations__", {})
    first = next(iter(inspect.signature(selector).parameters), "")
    name, cls = ("definition", "ToolDefinition") if kind == "description" else ("call", "ToolCall")
    said = hints.get(first)
    return first == name or getattr(said, "__name__", str(said)).rpartition(".")[2] == cls


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
    parameters = [
        name
        for name, one in inspect.signature(hook).parameters.items()
        if one.default is one.empty or _place_of(name, hints.get(name), second) is not None
    ]
    if fixed := [name for name, one in inspect.signature(hook).parameters.items() if one.kind in _NAMED]:
        raise DefinitionError(f"hook {_shown(hook)} gets no arguments by name, such as {fixed[0]}")
    if parameters[:1] == ["self"]:
        shown = _shown(hook)
        mend = f"register that of an object: thing.{shown.rpartition('.')[2]}"
        raise DefinitionError(f"hook {shown} is a method; {mend}")
    alone = "(call), " if second == "input" else ""
    expected = f"hook {_shown(hook)} must take {alone}(call, {second}) or (call, {second}, context)"
    if len(parameters) not in ((1, 2, 3) if second == "input" else (2, 3)):
        raise DefinitionError(expected)
    for place, name in enumerate(parameters):
        meant = _place_of(name, hints.get(name), second)
        if meant is not None and meant != place:
            raise DefinitionError(f"{expected}, in this order, not ({', '.join(parameters)})")
    return parameters


def _place_of(name: str, hint: object, second: str) -> int | None:
    kinds = (ToolCall, ToolResult, ToolContext)
    if isinstance(hint, type) and (found := [at for at, one in enumerate(kinds) if issubclass(hint, one)]):
        return found[0]
    if hint is not None and name != "call":
        return None
    # The second parameter of the other kind of hook is at no place of this one.
    return {"call": 0, "input": -1, "result": -1, second: 1, "context": 2}.get(name)


def _check_answer(shown: str, hints: Mapping[str, Any], kinds: tuple[type, ...]) -> None:
    """Refuse a hook whose annotation says that it answers something else, which would refuse every call."""
    said = NoneType if (said := hints.get("return", Any)) is None else said
    if isinstance(said, type) and said not in (Any, object) and not issubclass(said, kinds):
        told = " or ".join("None" if kind is NoneType else kind.__name__ for kind in kinds)
        raise DefinitionError(f"hook {shown} must return {told}, not {said.__name__}")


def _shown(hook: Callable[..., Any]) -> str:
    return getattr(hook, "__qualname__", repr(hook))


def _withheld(call: ToolCall, fault: str) -> ToolResult:
    return ToolResult.of_error(f"the result of {call.name} is withheld: its check {fault}")


def _is_object(value: object) -> bool:
    return isinstance(value, dict)


def _object(value: Any) -> dict[str, Any]:
    if not _is_object(value):
        raise TypeError(
            f"RunNormally takes the input that the hook was given, or a dictionary, not {value!r}"
        )
    return value


_NAMED: Final = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD)

_SUSPENDING: Final = frozenset({"SEND", "YIELD_VALUE", "YIELD_FROM", "GET_AWAITABLE"})


def awaits(function: Callable[..., Any]) -> bool:
    """True if an async function may suspend, by its bytecode: a deadline cannot end one that never does."""
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    if not isinstance(code, CodeType) or not code.co_flags & inspect.CO_COROUTINE:
        return True
    return any(instruction.opname in _SUSPENDING for instruction in dis.get_instructions(code))
