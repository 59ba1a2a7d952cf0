"""`HookSet`: hooks that decide about calls, replace descriptions and see results, registered by tool.

They fail closed: if a hook raises or exceeds its time limit the call does not run, a description hook that
raises hides its tool, and a result hook that raises withholds the result.
"""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from types import FunctionType
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar, cast, get_args
from weakref import WeakKeyDictionary, WeakSet

import anyio

from mcp_toolset._numbers import require_positive
from mcp_toolset._records import replace
from mcp_toolset._rule import Rule, require_kept, rules_among
from mcp_toolset.calls import bound_hooks
from mcp_toolset.errors import DefinitionError
from mcp_toolset.tools.binding import NameUse, ToolGroup, ToolNames, ToolSelector, matches, use_of
from mcp_toolset.tools.call import ToolCall, ToolContext
from mcp_toolset.tools.definition import ToolDefinition, check_prefix, declared_tool, public_name
from mcp_toolset.tools.hidden_text import in_log
from mcp_toolset.tools.tool import Tool
from mcp_toolset.tools.toolset import Toolset
from mcp_toolset.tools.view import NameReport, ToolBinding, ToolView

if TYPE_CHECKING:
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
    hooks = [_read(policy, name, shown) for name in _candidates(policy)]
    if not hooks:
        raise DefinitionError(f"policy {shown} has no hook; name its methods `<tool>_hook` or alike")
    return hooks


def _candidates(policy: object) -> Iterator[str]:
    """The names of the members that may be meant as hooks."""
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


HookSelector = ToolSelector | ToolGroup
"""A tool, a toolset, or the name or pattern of tools."""

_log = logging.getLogger("mcp_toolset.hooks")


def is_bare(selector: object, kind: HookKind) -> bool:
    """True if a selector is a hook: its decorator was written without parentheses."""
    if isinstance(selector, type | str) or not inspect.iscoroutinefunction(selector):
        return False
    hints = getattr(selector, "__annotations__", {})
    first = next(iter(inspect.signature(selector).parameters), "")
    name, cls = ("definition", "ToolDefinition") if kind == "description" else ("call", "ToolCall")
    hint = hints.get(first)
    return first == name or getattr(hint, "__name__", str(hint)).rpartition(".")[2] == cls


HOOK_TIMEOUT: Final = 30.0  # The default seconds that a hook may take.

DescriptionHook = Callable[[ToolDefinition], Awaitable[str | None]]
_Exec = TypeVar("_Exec", bound=bound_hooks.ExecutionHook)
_Desc = TypeVar("_Desc", bound=DescriptionHook)
_Result = TypeVar("_Result", bound=bound_hooks.ResultHook)
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
        self._warned: set[str] = set()
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
        use = self._begin(selector, "execution")

        def register(hook: _Exec) -> _Exec:
            made = bound_hooks.bound(hook, self.timeout)
            if isinstance(tool := declared_tool(selector) or selector, Tool):
                made.require_fitting(tool.name, tool.definition.input_schema)
            self._add("execution", self._finish(use), made)
            return self._mark(hook)

        return register

    def description(self, selector: HookSelector) -> Callable[[_Desc], _Desc]:
        """Register `async def hook(definition) -> str | None`; `None` keeps the text.

        Each tool has one slot: the last registration wins.
        """
        use = self._begin(selector, "description")

        def register(hook: _Desc) -> _Desc:
            bound_hooks.check_description_hook(hook)
            self._add("description", self._finish(use), hook)
            return self._mark(hook)

        return register

    def result(self, selector: HookSelector) -> Callable[[_Result], _Result]:
        """Register `async def hook(call, result[, context]) -> ToolResult | None`.

        `None` keeps the result. Result hooks run in the order of registration, each with the result of the
        one before, for every outcome of a call: the tool's result, its error, a hook's answer or refusal.
        They do not run for a call that asks for input, nor for protocol errors, which are not results. `call`
        has the arguments that ran, and `original` those that the caller sent. A changed result must still
        follow the output schema.
        """
        use = self._begin(selector, "result")

        def register(hook: _Result) -> _Result:
            made = bound_hooks.bound_result(hook, self.timeout)
            self._add("result", self._finish(use), made)
            return self._mark(hook)

        return register

    def register(self, *policies: object) -> None:
        """Register every hook of policy objects, or none: methods named after their tools.

        `weather_hook`, `weather_description_hook` and `weather_result_hook` are hooks of the tool `weather`.
        For a tool whose name is not a Python identifier, use `execution`, `description` or `result`.
        """
        new = HookSet(timeout=self.timeout)
        register = {"execution": new.execution, "description": new.description, "result": new.result}
        for policy in policies:
            for tool, kind, hook in policy_hooks(policy):
                register[kind](tool)(hook)
        for kind, use, hook in new._every():
            self._add(kind, use, hook)

    if not TYPE_CHECKING:  # a type checker then reports wrong names

        def __setattr__(self, name: str, value: Any) -> None:
            if not name.startswith("_") and name not in ("timeout", "report"):
                raise DefinitionError(
                    f'hooks.{name} = … registers nothing: use hooks.execution("NAME")(hook); '
                    "middleware is for the server"
                )
            object.__setattr__(self, name, value)

    @property
    def is_taken(self) -> bool:
        """True if a server or a toolset applies these hooks, or there are none."""
        return super().is_taken or not (any(self._hooks.values()) or self._unfinished)

    @property
    def is_empty(self) -> bool:
        """True if no hook is registered."""
        self._check_finished()
        return not any(self._hooks.values())

    def uses(self) -> list[NameUse]:
        """The tools that hooks are registered for; `DefinitionError` for a registration without a hook."""
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
        table = {binding.name: binding for binding in bindings} if typed else {}
        for use, hook in typed:
            reached = names.reached(use)
            for name in reached if len(reached) == 1 and not use.is_pattern else ():
                if (binding := table.get(name)) is None or binding.contract is not None:
                    continue
                try:
                    hook.require_fitting(name, _arguments_schema(binding))
                except DefinitionError as fault:
                    if not binding.source:
                        raise
                    if (message := str(fault)) not in self._warned:
                        self._warned.add(message)
                        _log.warning("%s", in_log(message))

    def applied_by(self, dispatch: ToolDispatch) -> None:
        """Renew a dispatch whenever a hook is registered later."""
        self._appliers.add(dispatch)

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
    ) -> tuple[bound_hooks.BoundHook, ...]:
        """The execution hooks of a tool, in order; `names` are those of the tool's table."""
        reaches = _reaching(tool, names)
        return tuple(hook for use, hook in self._hooks["execution"] if reaches(use))

    def result_hooks(
        self, tool: str | ToolBinding, names: ToolNames | None = None
    ) -> tuple[bound_hooks.BoundResultHook, ...]:
        """The result hooks of a tool, in order; `names` as in `execution_hooks`."""
        reaches = _reaching(tool, names)
        return tuple(hook for use, hook in self._hooks["result"] if reaches(use))

    def description_hook(
        self, tool: str | ToolBinding, names: ToolNames | None = None
    ) -> DescriptionHook | None:
        """The description hook of a tool: of several, the most specific one."""
        reaches = _reaching(tool, names)
        hooks = [(use, hook) for use, hook in self._hooks["description"] if reaches(use)]
        if not hooks:
            return None
        return max(hooks, key=lambda entry: (not entry[0].is_pattern, len(entry[0].name)))[1]

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

        async def describe(number: int, binding: ToolBinding, hook: DescriptionHook) -> None:
            described[number] = await self._describe(binding, hook)

        async with anyio.create_task_group() as group:
            for number, binding in enumerate(bindings):
                if (hook := self.description_hook(binding, known)) is not None:
                    group.start_soon(describe, number, binding, hook)
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

    def _begin(self, selector: object, kind: HookKind) -> NameUse:
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

    def _mark(self, hook: _Hook) -> _Hook:
        """The hook; a function remembers that one of its sets is applied, as a set may be rebound."""
        if isinstance(cast("object", hook), FunctionType):
            function = cast("Any", hook)
            function._is_hook = True
            function._is_taken = getattr(function, "_is_taken", False) or getattr(self, "_is_taken", False)
            self._functions.append(function)
        return hook

    def _finish(self, use: NameUse) -> NameUse:
        self._unfinished = [other for other in self._unfinished if other is not use]
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
        for dispatch in list(self._appliers):
            dispatch.renew()

    def _put(self, kind: HookKind, use: NameUse, hook: Any) -> None:
        """Keep a hook. A tool has one description hook: the last registration wins."""
        if kind == "description":
            self._hooks[kind] = [entry for entry in self._hooks[kind] if not _is_same(entry[0], use)]
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
        binding = self._toolset.find(selector)
        return selector if binding.origin is None else binding.origin


def _reaching(tool: str | ToolBinding, names: ToolNames | None) -> Callable[[NameUse], bool]:
    if isinstance(tool, str):
        return lambda use: matches(use.name, tool)
    known = names or ToolNames([tool])
    return lambda use: tool.name in known.reached(use)


def _is_same(use: NameUse, other: NameUse) -> bool:
    return use.name == other.name and (use.tool is other.tool or use.tool is None or other.tool is None)


def _arguments_schema(binding: ToolBinding) -> Mapping[str, Any]:
    """The schema of a tool's arguments, which the schema in a compact listing does not have."""
    listed = binding.definition.input_schema
    has_arguments = listed.get("properties") or listed.get("additionalProperties") is False
    return listed if has_arguments else binding.arguments.schema


def _moved(use: NameUse, prefix: str) -> NameUse:
    if use.is_pattern:
        return replace(use, name=f"{prefix}_{_ALTERED.sub('_', use.name)}")
    return replace(use, name=public_name(use.name, prefix=prefix))
