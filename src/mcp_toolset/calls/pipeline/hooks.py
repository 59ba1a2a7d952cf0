"""`HookSet`: hooks that decide about calls, replace descriptions and see results, registered by tool.

They fail closed: if a hook raises or exceeds its deadline the call does not run, a description hook that
raises hides its tool, and a result hook that raises withholds the result.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar, cast
from weakref import WeakKeyDictionary, WeakSet

import anyio

from mcp_toolset._records import replace
from mcp_toolset._rule import Rule, require_kept
from mcp_toolset.calls.pipeline.hook_adapters import (
    BoundHook,
    BoundResultHook,
    ExecutionHook,
    HookKind,
    HookSelector,
    ResultHook,
    bound,
    bound_result,
    check_description_hook,
    is_bare,
    policy_hooks,
)
from mcp_toolset.errors import DefinitionError
from mcp_toolset.tools.binding.selector import NameUse, ToolNames, matches, use_of
from mcp_toolset.tools.core.call import ToolCall, ToolContext
from mcp_toolset.tools.core.definition import ToolDefinition
from mcp_toolset.tools.core.names import check_prefix, declared_tool, public_name
from mcp_toolset.tools.declare.tool import Tool
from mcp_toolset.tools.text.hidden_text import in_log
from mcp_toolset.tools.toolsets.toolset import Toolset
from mcp_toolset.tools.view.view import NameReport, ToolBinding, ToolView

if TYPE_CHECKING:
    from mcp_toolset.tools.declare.typed_call import HookAnswer

HOOK_DEADLINE: Final = 30.0  # The default seconds that a hook may take.

DescriptionHook = Callable[[ToolDefinition], Awaitable[str | None]]
_Exec = TypeVar("_Exec", bound=ExecutionHook)
_Desc = TypeVar("_Desc", bound=DescriptionHook)
_Result = TypeVar("_Result", bound=ResultHook)
_log = logging.getLogger("mcp_toolset.hooks")

_ALTERED: Final = re.compile(r"[^A-Za-z0-9_*?\[\]!-]")  # Becomes `_` in a prefixed name.


class Applying(Protocol):
    """A composer of calls with hooks."""

    def renew(self) -> None: ...


class HookSet(Rule):
    """Hooks by tool, in the order of registration; `deadline` is the seconds that one hook may take.

    A hook is an `async def`, a bound method or a callable object. It is registered for a tool, a toolset (all
    its tools), a public name, a pattern (`"data_*"`) or `"*"`. A hook registered by name still applies after
    prefixes and renames; see docs/names.md.
    """

    _decides = ("about", "describe", "description_hook", "execution_hooks", "result_hooks")

    def __init__(self, *, deadline: float = HOOK_DEADLINE) -> None:
        if not isinstance(cast("object", deadline), int | float) or not deadline > 0:
            raise DefinitionError(f"HookSet(deadline=…) takes a positive number of seconds, not {deadline!r}")
        self.deadline = deadline
        self.report = NameReport()
        self._execution: list[tuple[NameUse, BoundHook]] = []
        self._descriptions: list[tuple[NameUse, DescriptionHook]] = []
        self._results: list[tuple[NameUse, BoundResultHook]] = []
        self._unfinished: list[NameUse] = []
        self._told: set[str] = set()
        self._sources: list[HookSet] = []
        self._followers: WeakKeyDictionary[HookSet, str] = WeakKeyDictionary()
        self._appliers: WeakSet[Applying] = WeakSet()

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
            made = bound(hook, self.deadline)
            if isinstance(tool := declared_tool(selector) or selector, Tool):
                made.require_fitting(tool.name, tool.definition.input_schema)
            self._add("execution", self._ended(use), made)
            return hook

        return register

    def description(self, selector: HookSelector) -> Callable[[_Desc], _Desc]:
        """Register `async def hook(definition) -> str | None`; `None` keeps the text.

        Each tool has one slot: the last registration wins.
        """
        use = self._begun(selector, "description")

        def register(hook: _Desc) -> _Desc:
            check_description_hook(hook)
            self._add("description", self._ended(use), hook)
            return hook

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
            made = bound_result(hook, self.deadline)
            self._add("result", self._ended(use), made)
            return hook

        return register

    def register(self, *policies: object) -> None:
        """Register every hook of policy objects, or none: methods named after their tools.

        `weather_hook`, `weather_description_hook` and `weather_result_hook` are hooks of the tool `weather`.
        For a tool whose name is not a Python identifier, use `execution`, `description` or `result`.
        """
        found = HookSet(deadline=self.deadline)
        for hook in (hook for policy in policies for hook in policy_hooks(policy)):
            slot = {"execution": found.execution, "description": found.description, "result": found.result}
            slot[hook.kind](hook.tool)(hook.function)
        for use, hook in found._execution:
            self._add("execution", use, hook)
        for use, hook in found._results:
            self._add("result", use, hook)
        for use, hook in found._descriptions:
            self._add("description", use, hook)

    if not TYPE_CHECKING:  # so that a type checker reports a name that is none

        def __setattr__(self, name: str, value: Any) -> None:
            if not name.startswith("_") and name not in ("deadline", "report"):
                raise DefinitionError(
                    f'hooks.{name} = … registers nothing: use hooks.execution("NAME")(hook); '
                    "middleware is for the server"
                )
            object.__setattr__(self, name, value)

    @property
    def is_taken(self) -> bool:
        """True if something that applies it has taken it, or it has no hooks."""
        return super().is_taken or not (
            self._execution or self._descriptions or self._results or self._unfinished
        )

    @property
    def is_empty(self) -> bool:
        """True if no hook is registered."""
        self._check_finished()
        return not (self._execution or self._descriptions or self._results)

    def uses(self) -> list[NameUse]:
        """The tools that hooks are registered for; `DefinitionError` if a hook was never given for one."""
        self._check_finished()
        return [use for use, _ in (*self._execution, *self._descriptions, *self._results)]

    def check(self, view: ToolView) -> None:
        """Raise `UnknownNameError` or `DefinitionError` if a hook does not fit the tools of a view."""
        self.report.look(self.uses(), view.names, view.known_tools)
        self.require_fitting(view.values(), view.names)

    def require_fitting(self, bindings: Iterable[ToolBinding], names: ToolNames) -> None:
        """Raise `DefinitionError` if a hook cannot parse arguments that its tool can have.

        Of a mounted tool, whose server may change its schema, such a hook is a warning.
        """
        typed = [(use, hook) for use, hook in self._execution if hook.adapter is not None]
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

    def applied_by(self, applying: Applying) -> None:
        """Tell a composer of calls when a hook is registered later."""
        self._appliers.add(applying)

    def of(self, toolset: Toolset) -> NestedHooks:
        """Register for the tools of a nested toolset, by their names in it.

        `hooks.of(AppTools.data).execution("get_user")` applies to `data_get_user`, under any prefix.
        """
        return NestedHooks(self, toolset)

    def merged(self, *others: HookSet) -> HookSet:
        """A new set with these hooks and then those of `others`; hooks registered later join it, too."""
        both = HookSet(deadline=self.deadline)
        for hooks in (self, *others):
            hooks._check_finished()
            hooks._followed_by(both)
            both._execution.extend(hooks._execution)
            both._take_descriptions(hooks._descriptions)
            both._results.extend(hooks._results)
        require_kept("HookSet", __name__)
        return both

    def prefixed(self, prefix: str) -> HookSet:
        """A new set with these hooks for the same tools in a toolset that is `.prefixed(prefix)`.

        A hook for `*` then applies to every tool whose name begins with the prefix.
        """
        check_prefix(prefix)
        self._check_finished()
        require_kept("HookSet", __name__)
        moved = HookSet(deadline=self.deadline)
        self._followed_by(moved, prefix)
        moved._execution = [(_moved(use, prefix), hook) for use, hook in self._execution]
        moved._descriptions = [(_moved(use, prefix), hook) for use, hook in self._descriptions]
        moved._results = [(_moved(use, prefix), hook) for use, hook in self._results]
        return moved

    def nested(self, prefix: str, inner: HookSet) -> HookSet:
        """A new set: these hooks, then those of `inner` for a toolset nested under a prefix."""
        return self.merged(inner.prefixed(prefix))

    def execution_hooks(
        self, tool: str | ToolBinding, names: ToolNames | None = None
    ) -> tuple[BoundHook, ...]:
        """The execution hooks of a tool, in order; `names` are those of the tool's table."""
        reaches = _reaching(tool, names)
        return tuple(hook for use, hook in self._execution if reaches(use))

    def result_hooks(
        self, tool: str | ToolBinding, names: ToolNames | None = None
    ) -> tuple[BoundResultHook, ...]:
        """The result hooks of a tool, in order; `names` as in `execution_hooks`."""
        reaches = _reaching(tool, names)
        return tuple(hook for use, hook in self._results if reaches(use))

    def description_hook(
        self, tool: str | ToolBinding, names: ToolNames | None = None
    ) -> DescriptionHook | None:
        """The description hook of a tool: of several, the most specific one."""
        reaches = _reaching(tool, names)
        found = [
            ((not use.is_pattern, len(use.name)), hook) for use, hook in self._descriptions if reaches(use)
        ]
        return max(found, key=lambda one: one[0])[1] if found else None

    async def about(self, call: ToolCall, binding: ToolBinding, context: ToolContext) -> HookAnswer:
        """Run the hooks on one call; see `DecodedCall.hook`."""
        from mcp_toolset.calls.pipeline.hook_chain import about_one

        asked, seeing = self.execution_hooks(binding), self.result_hooks(binding)
        return await about_one(call, binding, asked, seeing, context)

    async def describe(
        self, bindings: ToolView | Iterable[ToolBinding], names: ToolNames | None = None
    ) -> list[ToolBinding]:
        """The bindings with the texts of description hooks, run concurrently; see `ToolView.with_texts`.

        A tool whose hook raises or exceeds its deadline is left out. Hooks for tools that do not exist are an
        `UnknownNameError` of a view; a tool that is missing among `bindings` may be elsewhere.
        """
        if isinstance(bindings, ToolView):
            self.report.look(self.uses(), bindings.names, bindings.known_tools)
            bindings = bindings.values()
        bindings = list(bindings)
        if not self._descriptions:
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
            with anyio.fail_after(self.deadline):
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
        if kind == "execution":
            self._execution.append((use, hook))
        elif kind == "result":
            self._results.append((use, hook))
        else:
            self._take_descriptions([(use, hook)])
        for copy, prefix in self._followers.items():
            copy._add(kind, _moved(use, prefix) if prefix else use, hook)
        for one in list(self._appliers):
            one.renew()

    def _take_descriptions(self, added: Iterable[tuple[NameUse, DescriptionHook]]) -> None:
        """Hooks by tool, one slot for each: the last registration wins."""
        for use, hook in added:
            kept = [(one, before) for one, before in self._descriptions if not _is_same(one, use)]
            self._descriptions = [*kept, (use, hook)]


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
