"""`HookSet`: hooks that decide about calls, replace descriptions and see results, registered by tool.

They fail closed: if a hook raises or exceeds its time limit the call does not run, a description hook that
raises hides its tool, and a result hook that raises withholds the result.
"""

from __future__ import annotations

import dis
import inspect
import logging
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from functools import wraps
from types import CodeType, FunctionType, NoneType
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar, cast, get_args
from weakref import WeakKeyDictionary, WeakSet

import anyio

from mcp_toolset._numbers import require_positive
from mcp_toolset._records import dataclass, replace
from mcp_toolset._rule import Rule, require_kept, rules_among
from mcp_toolset.calls.decision import Complete, Decision, Reject, RunNormally, record
from mcp_toolset.concurrency.tasks import CancelledError, from_outside
from mcp_toolset.errors import DefinitionError
from mcp_toolset.tools.binding import NameUse, ToolGroup, ToolNames, ToolSelector, matches, use_of
from mcp_toolset.tools.call import ToolCall, ToolContext
from mcp_toolset.tools.definition import ToolDefinition, check_prefix, declared_tool, public_name
from mcp_toolset.tools.hidden_text import in_log
from mcp_toolset.tools.result import ToolResult
from mcp_toolset.tools.signature import resolved_hints
from mcp_toolset.tools.tool import Tool
from mcp_toolset.tools.toolset import Toolset
from mcp_toolset.tools.view import NameReport, ToolBinding, ToolView

if TYPE_CHECKING:
    from pydantic import TypeAdapter

    from mcp_toolset.calls.dispatch import ToolDispatch
    from mcp_toolset.tools.input import HookAnswer


HookKind = Literal["execution", "description", "result"]

_FORMS: Final[tuple[tuple[str, HookKind], ...]] = (
    ("_description_hook", "description"),
    ("_result_hook", "result"),
    ("_hook", "execution"),
)
"""Suffixes of method names, the most specific first."""


def policy_hooks(policy: object) -> list[tuple[str, HookKind, Any]]:
    """The hooks of a policy object, each with its tool: `weather_hook`, `weather_description_hook`."""
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


def _read(policy: object, name: str, shown: str) -> tuple[str, HookKind, Any]:
    function: Any = getattr(policy, name)
    for ending, kind in _FORMS:
        tool = name.removesuffix(ending)
        if tool != name and callable(function):
            return tool, kind, function
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
            given: Any = call.arguments
            seen: dict[str, Any] | None = None
            if self.adapter is not None:
                given = self.adapter.validate_python(given)
                seen = _dumped(self.adapter, given)
            also = (context,) if self.takes_context else ()
            asked = self.function(call, given, *also)
            answer = await (asked if self.timeout is None else self._in_time(asked, call, self.timeout))
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

    async def _in_time(self, asked: Awaitable[Decision], call: ToolCall, timeout: float) -> Decision:
        with anyio.move_on_after(timeout):
            return await asked
        _log.error("hook %s gave no answer about %s in time", _shown(self.function), in_log(call.name))
        return Reject(f"the check of {call.name} gave no answer in {timeout:g} s; try again later")

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
    timeout: float | None

    async def passed(self, call: ToolCall, result: ToolResult, context: ToolContext) -> ToolResult:
        decision, seen = await self._seen(call, result, context)
        record(call, decision, call.arguments)
        return seen

    async def _seen(self, call: ToolCall, result: ToolResult, context: ToolContext) -> tuple[str, ToolResult]:
        try:
            if self.timeout is None:
                return await self._ask(call, result, context)
            with anyio.move_on_after(self.timeout):
                return await self._ask(call, result, context)
        # A hook is the application's code and may raise anything; what it has not seen is not passed on.
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
        return BoundHook(_of_call_alone(hook), None, False, timeout if awaits(hook) else None)
    # A server whose hooks take no typed input starts without importing pydantic's models.
    from mcp_toolset.calls.hook_inputs import input_adapter

    annotation = hints.get(parameters[1], dict)
    adapter = input_adapter(shown, annotation)
    takes_context, limit = len(parameters) == 3, timeout if awaits(hook) else None
    return BoundHook(hook, adapter, takes_context, limit, None if adapter is None else annotation)


def _of_call_alone(hook: ExecutionHook) -> ExecutionHook:

    @wraps(hook)
    async def asked(call: ToolCall, input: Any) -> Decision:
        return await hook(call)

    return asked


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
    """True if an async function may suspend, by its bytecode: a time limit cannot end one that never does."""
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    if not isinstance(code, CodeType) or not code.co_flags & inspect.CO_COROUTINE:
        return True
    return any(instruction.opname in _SUSPENDING for instruction in dis.get_instructions(code))


HOOK_TIMEOUT: Final = 30.0  # The default seconds that a hook may take.

DescriptionHook = Callable[[ToolDefinition], Awaitable[str | None]]
_Exec = TypeVar("_Exec", bound=ExecutionHook)
_Desc = TypeVar("_Desc", bound=DescriptionHook)
_Result = TypeVar("_Result", bound=ResultHook)
_Hook = TypeVar("_Hook", bound=Callable[..., Any])

_ALTERED: Final = re.compile(r"[^A-Za-z0-9_*?\[\]!-]")  # Becomes `_` in a prefixed name.


class HookSet(Rule):
    """Hooks by tool, in the order of registration; `timeout` is the seconds that one hook may take.

    A hook is an `async def`, a bound method or a callable object. It is registered for a tool, a toolset (all
    its tools), a public name, a pattern (`"data_*"`) or `"*"`. A hook registered by name still applies after
    prefixes and renames; see docs/names.md.
    """

    _decides = ("about", "describe", "description_hook", "execution_hooks", "result_hooks")

    def __init__(self, *, timeout: float = HOOK_TIMEOUT) -> None:
        require_positive("HookSet", timeout=timeout)
        self.timeout = timeout
        self.report = NameReport()
        self._hooks: dict[HookKind, list[tuple[NameUse, Any]]] = {kind: [] for kind in get_args(HookKind)}
        self._unfinished: list[NameUse] = []
        self._told: set[str] = set()
        self._functions: list[object] = []
        self._sources: list[HookSet] = []
        self._followers: WeakKeyDictionary[HookSet, str] = WeakKeyDictionary()
        self._appliers: WeakSet[ToolDispatch] = WeakSet()

    def execution(self, selector: HookSelector) -> Callable[[_Exec], _Exec]:
        """Register `async def hook(call[, input[, context]]) -> RunNormally | Complete | Reject`.

        `input` is parsed into the type of its annotation, if that is a model, dataclass or
        TypedDict; else it is the dictionary of arguments. Arguments that the type does not have
        stay unchanged; a dictionary instead of a model or dataclass replaces them all.

        Args:
            selector: A tool or a toolset, however it is nested, a public name, a pattern
                (`"data_*"`), or `"*"` for every tool.
        """
        use = self._begun(selector, "execution")

        def register(hook: _Exec) -> _Exec:
            made = bound(hook, self.timeout)
            if isinstance(tool := declared_tool(selector) or selector, Tool):
                made.require_fitting(tool.name, tool.definition.input_schema)
            self._add("execution", self._ended(use), made)
            return self._noted(hook)

        return register

    def description(self, selector: HookSelector) -> Callable[[_Desc], _Desc]:
        """Register `async def hook(definition) -> str | None`; `None` keeps the text.

        Each tool has one slot: the last registration wins.
        """
        use = self._begun(selector, "description")

        def register(hook: _Desc) -> _Desc:
            check_description_hook(hook)
            self._add("description", self._ended(use), hook)
            return self._noted(hook)

        return register

    def result(self, selector: HookSelector) -> Callable[[_Result], _Result]:
        """Register `async def hook(call, result[, context]) -> ToolResult | None`.

        `None` keeps the result. Result hooks run in the order of registration, each with the result of the
        one before, for every outcome of a call: the tool's result, its error, a hook's answer or refusal.
        They do not run for a call that asks for input, nor for protocol errors, which are not results. `call`
        has the arguments that ran, and `original` those that the caller sent. A changed result must still
        follow the output schema.
        """
        use = self._begun(selector, "result")

        def register(hook: _Result) -> _Result:
            made = bound_result(hook, self.timeout)
            self._add("result", self._ended(use), made)
            return self._noted(hook)

        return register

    def register(self, *policies: object) -> None:
        """Register every hook of policy objects, or none: methods named after their tools.

        `weather_hook`, `weather_description_hook` and `weather_result_hook` are hooks of the tool `weather`.
        For a tool whose name is not a Python identifier, use `execution`, `description` or `result`.
        """
        found = HookSet(timeout=self.timeout)
        for tool, kind, hook in (each for policy in policies for each in policy_hooks(policy)):
            slot = {"execution": found.execution, "description": found.description, "result": found.result}
            slot[kind](tool)(hook)
        for kind, use, hook in found._every():
            self._add(kind, use, hook)

    if not TYPE_CHECKING:  # so that a type checker reports a name that is none

        def __setattr__(self, name: str, value: Any) -> None:
            if not name.startswith("_") and name not in ("timeout", "report"):
                raise DefinitionError(
                    f'hooks.{name} = … registers nothing: use hooks.execution("NAME")(hook); '
                    "middleware is for the server"
                )
            object.__setattr__(self, name, value)

    @property
    def is_taken(self) -> bool:
        """True if something that applies it has taken it, or it has no hooks."""
        return super().is_taken or not (any(self._hooks.values()) or self._unfinished)

    @property
    def is_empty(self) -> bool:
        """True if no hook is registered."""
        self._check_finished()
        return not any(self._hooks.values())

    def uses(self) -> list[NameUse]:
        """The tools that hooks are registered for; `DefinitionError` if a hook was never given for one."""
        self._check_finished()
        return [use for _, use, _ in self._every()]

    def check(self, view: ToolView) -> None:
        """Raise `UnknownNameError` or `DefinitionError` if a hook does not fit the tools of a view."""
        self.report.look(self.uses(), view.names, view.known_tools)
        self.require_fitting(view.values(), view.names)

    def require_fitting(self, bindings: Iterable[ToolBinding], names: ToolNames) -> None:
        """Raise `DefinitionError` if a hook cannot parse arguments that its tool can have.

        Of a mounted tool, whose server may change its schema, such a hook is a warning.
        """
        typed = [(use, hook) for use, hook in self._hooks["execution"] if hook.adapter is not None]
        table = {one.name: one for one in bindings} if typed else {}
        for use, hook in typed:
            reached = names.reached(use)
            for name in reached if len(reached) == 1 and not use.is_pattern else ():
                if (binding := table.get(name)) is None or binding.contract is not None:
                    continue
                try:
                    hook.require_fitting(name, _listed_or_checked(binding))
                except DefinitionError as fault:
                    if not binding.source:
                        raise
                    if (told := str(fault)) not in self._told:
                        self._told.add(told)
                        _log.warning("%s", in_log(told))

    def applied_by(self, applying: ToolDispatch) -> None:
        """Tell a composer of calls when a hook is registered later."""
        self._appliers.add(applying)

    def of(self, toolset: Toolset) -> NestedHooks:
        """Register for the tools of a nested toolset, by their names in it.

        `hooks.of(AppTools.data).execution("get_user")` applies to `data_get_user`, under any prefix.
        """
        return NestedHooks(self, toolset)

    def merged(self, *others: HookSet) -> HookSet:
        """A new set with these hooks and then those of `others`; hooks registered later join it, too."""
        both = HookSet(timeout=self.timeout)
        for hooks in (self, *others):
            hooks._check_finished()
            hooks._followed_by(both)
            for kind, use, hook in hooks._every():
                both._put(kind, use, hook)
        require_kept("HookSet", __name__)
        return both

    def prefixed(self, prefix: str) -> HookSet:
        """A new set with these hooks for the same tools in a toolset that is `.prefixed(prefix)`.

        A hook for `*` then applies to every tool whose name begins with the prefix.
        """
        check_prefix(prefix)
        self._check_finished()
        require_kept("HookSet", __name__)
        moved = HookSet(timeout=self.timeout)
        self._followed_by(moved, prefix)
        for kind, use, hook in self._every():
            moved._put(kind, _moved(use, prefix), hook)
        return moved

    def nested(self, prefix: str, inner: HookSet) -> HookSet:
        """A new set: these hooks, then those of `inner` for a toolset nested under a prefix."""
        return self.merged(inner.prefixed(prefix))

    def execution_hooks(
        self, tool: str | ToolBinding, names: ToolNames | None = None
    ) -> tuple[BoundHook, ...]:
        """The execution hooks of a tool, in order; `names` are those of the tool's table."""
        reaches = _reaching(tool, names)
        return tuple(hook for use, hook in self._hooks["execution"] if reaches(use))

    def result_hooks(
        self, tool: str | ToolBinding, names: ToolNames | None = None
    ) -> tuple[BoundResultHook, ...]:
        """The result hooks of a tool, in order; `names` as in `execution_hooks`."""
        reaches = _reaching(tool, names)
        return tuple(hook for use, hook in self._hooks["result"] if reaches(use))

    def description_hook(
        self, tool: str | ToolBinding, names: ToolNames | None = None
    ) -> DescriptionHook | None:
        """The description hook of a tool: of several, the most specific one."""
        reaches = _reaching(tool, names)
        found = [
            ((not use.is_pattern, len(use.name)), hook)
            for use, hook in self._hooks["description"]
            if reaches(use)
        ]
        return max(found, key=lambda one: one[0])[1] if found else None

    async def about(self, call: ToolCall, binding: ToolBinding, context: ToolContext) -> HookAnswer:
        """Run the hooks on one call; see `DecodedCall.hook`."""
        from mcp_toolset.calls.hook_chain import hook_answer

        hooks, result_hooks = self.execution_hooks(binding), self.result_hooks(binding)
        return await hook_answer(call, binding, hooks, result_hooks, context)

    async def describe(
        self, bindings: ToolView | Iterable[ToolBinding], names: ToolNames | None = None
    ) -> list[ToolBinding]:
        """The bindings with the texts of description hooks, run concurrently; see `ToolView.with_texts`.

        A tool whose hook raises or is too slow is left out. Hooks for tools that do not exist are an
        `UnknownNameError` of a view; a tool that is missing among `bindings` may be elsewhere.
        """
        if isinstance(bindings, ToolView):
            self.report.look(self.uses(), bindings.names, bindings.known_tools)
            bindings = bindings.values()
        bindings = list(bindings)
        if not self._hooks["description"]:
            return bindings
        known = names or ToolNames(bindings)
        described: list[ToolBinding | None] = [*bindings]

        async def one(place: int, binding: ToolBinding, hook: DescriptionHook) -> None:
            described[place] = await self._describe(binding, hook)

        async with anyio.create_task_group() as group:
            for place, binding in enumerate(bindings):
                if (hook := self.description_hook(binding, known)) is not None:
                    group.start_soon(one, place, binding, hook)
        return [binding for binding in described if binding is not None]

    async def _describe(self, binding: ToolBinding, hook: DescriptionHook) -> ToolBinding | None:
        try:
            with anyio.fail_after(self.timeout):
                text = await hook(binding.definition)
            if text is not None and not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise TypeError(f"a description hook returns a text or None, not {text!r}")
        # The application's code may raise anything; only this tool is to suffer.
        except (Exception, SystemExit):
            _log.exception("the description hook of %s failed; the tool is hidden", in_log(binding.name))
            return None
        if text is None:
            return binding
        return replace(binding, definition=binding.definition.described(text))

    def _begun(self, selector: object, kind: HookKind) -> NameUse:
        where = f"hooks.{kind}"
        use = None if is_bare(selector, kind) else use_of(selector, where)
        if use is None:
            raise DefinitionError(
                f"{where}: a hook is registered for a tool, a tool's name or '*', not {selector!r}; "
                f'write @{where}("NAME") above the hook, with parentheses, or @{where}("*") for every tool'
            )
        self._unfinished.append(use)
        return use

    def _parts(self) -> Sequence[object]:
        return self._functions

    def _noted(self, hook: _Hook) -> _Hook:
        """The hook; a function notes whether anything has taken one of its sets, as a set may be rebound."""
        if isinstance(cast("object", hook), FunctionType):
            function = cast("Any", hook)
            function._is_hook = True
            function._is_taken = getattr(function, "_is_taken", False) or getattr(self, "_is_taken", False)
            self._functions.append(function)
        return hook

    def _ended(self, use: NameUse) -> NameUse:
        self._unfinished = [one for one in self._unfinished if one is not use]
        return use

    def _check_finished(self) -> None:
        for use in self._unfinished:
            raise DefinitionError(
                f"{use.where}({use.name!r}) was given no hook, so no rule applies; "
                f'write @{use.where}("{use.name}") above the hook, with parentheses'
            )

    def _followed_by(self, copy: HookSet, prefix: str = "") -> None:
        self.taken()
        self._followers[copy] = prefix
        copy._sources.append(self)

    def _add(self, kind: HookKind, use: NameUse, hook: Any) -> None:
        self._put(kind, use, hook)
        for copy, prefix in self._followers.items():
            copy._add(kind, _moved(use, prefix) if prefix else use, hook)
        for one in list(self._appliers):
            one.renew()

    def _put(self, kind: HookKind, use: NameUse, hook: Any) -> None:
        """Keep a hook. A tool has one description hook: the last registration wins."""
        if kind == "description":
            self._hooks[kind] = [one for one in self._hooks[kind] if not _is_same(one[0], use)]
        self._hooks[kind].append((use, hook))

    def _every(self) -> Iterator[tuple[HookKind, NameUse, Any]]:
        """The hooks of all kinds, each with its kind and the use of a tool's name."""
        return ((kind, use, hook) for kind, hooks in self._hooks.items() for use, hook in hooks)


class NestedHooks:
    """Registers hooks for the tools of one toolset, wherever it is nested."""

    def __init__(self, hooks: HookSet, toolset: Toolset) -> None:
        self._hooks = hooks
        self._toolset = toolset

    def execution(self, selector: HookSelector = "*") -> Callable[[Any], Any]:
        return self._hooks.execution(self._selected(selector, "execution"))

    def description(self, selector: HookSelector = "*") -> Callable[[Any], Any]:
        return self._hooks.description(self._selected(selector, "description"))

    def result(self, selector: HookSelector = "*") -> Callable[[Any], Any]:
        return self._hooks.result(self._selected(selector, "result"))

    def _selected(self, selector: Any, kind: HookKind) -> Any:
        if is_bare(selector, kind):
            return selector
        if selector == "*":
            return self._toolset
        found = self._toolset.find(selector)
        return selector if found.origin is None else found.origin


def _reaching(tool: str | ToolBinding, names: ToolNames | None) -> Callable[[NameUse], bool]:
    if isinstance(tool, str):
        return lambda use: matches(use.name, tool)
    known = names or ToolNames([tool])
    return lambda use: tool.name in known.reached(use)


def _is_same(one: NameUse, other: NameUse) -> bool:
    return one.name == other.name and (one.tool is other.tool or one.tool is None or other.tool is None)


def _listed_or_checked(binding: ToolBinding) -> Mapping[str, Any]:
    """The schema of a tool's arguments; that of a compact listing does not tell them."""
    listed = binding.definition.input_schema
    is_told = listed.get("properties") or listed.get("additionalProperties") is False
    return listed if is_told else binding.arguments.schema


def _moved(use: NameUse, prefix: str) -> NameUse:
    if use.is_pattern:
        return replace(use, name=f"{prefix}_{_ALTERED.sub('_', use.name)}")
    return replace(use, name=public_name(use.name, prefix=prefix))
