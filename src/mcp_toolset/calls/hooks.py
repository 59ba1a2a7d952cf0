"""`HookSet`: hooks decide about calls, texts and results (L16, L17, L25, L26, O9).

Hooks are the same for local tools, mounted tools and owned loops (X8). They fail closed: a hook that
raises or outstays its deadline means that the call does not run (F38, F39), a description hook that
raises hides its tool (F41), and a result hook that raises withholds the result.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, TypeVar

import anyio

from mcp_toolset.calls.bound import (
    BoundHook,
    BoundResultHook,
    ExecutionHook,
    ResultHook,
    bound,
    bound_result,
    require_async,
)
from mcp_toolset.calls.policy import policy_hooks
from mcp_toolset.errors import DefinitionError
from mcp_toolset.tools.call import ToolCall, ToolContext
from mcp_toolset.tools.definition import ToolDefinition
from mcp_toolset.tools.names import MAX_NAME_LENGTH, check_prefix, public_name, qualified
from mcp_toolset.tools.selector import means, own_name
from mcp_toolset.tools.view import ToolBinding

if TYPE_CHECKING:
    from mcp_toolset.tools.typed_call import HookAnswer

EVERY_TOOL: Final = "*"
"""The selector of a hook that is asked about every tool; at the end of others, what begins so."""

HOOK_DEADLINE: Final = 30.0
"""Seconds that a hook may take unless its set says otherwise (F39)."""

DescriptionHook = Callable[[ToolDefinition], Awaitable[str | None]]
_Exec = TypeVar("_Exec", bound=ExecutionHook)
_Desc = TypeVar("_Desc", bound=DescriptionHook)
_Result = TypeVar("_Result", bound=ResultHook)
_log = logging.getLogger("mcp_toolset.hooks")

_KEPT: Final = qualified("_" * MAX_NAME_LENGTH, "").rindex("_")
"""Characters of a long name that stand before the digest which tells it from others."""

_ALTERED: Final = re.compile(r"[^A-Za-z0-9_-]")
"""Characters that a prefixed tool's name has an underscore for."""


@dataclass(frozen=True, slots=True)
class _Chosen:
    """What a hook is for: a name or the beginning of names, and the tool itself if that was given."""

    name: str
    tool: object = field(default=None, compare=False)


class HookSet:
    """Hooks by tool name, in the order of registration."""

    def __init__(self, *, deadline: float = HOOK_DEADLINE) -> None:
        """Start empty. `deadline` is the seconds that one hook may take."""
        self.deadline = deadline
        self._execution: list[tuple[_Chosen, BoundHook]] = []
        self._descriptions: dict[_Chosen, DescriptionHook] = {}
        self._results: list[tuple[_Chosen, BoundResultHook]] = []

    def execution(self, selector: object) -> Callable[[_Exec], _Exec]:
        """Register `async def hook(call, input[, context]) -> RunNormally | Complete | Reject`.

        `input` is parsed into the type of its annotation, if that is a model, dataclass or
        TypedDict; else it is the dictionary of arguments. Arguments that the type does not name
        stay as they are; a dictionary in place of a model or dataclass replaces them all.

        Args:
            selector: A tool, however it is nested (L8), its public name, the beginning of names
                (`"data_*"`), or `"*"` for every tool.
        """
        name = _selected(selector)

        def register(hook: _Exec) -> _Exec:
            self._execution.append((name, bound(hook, self.deadline)))
            return hook

        return register

    def description(self, selector: object) -> Callable[[_Desc], _Desc]:
        """Register `async def hook(definition) -> str | None`; `None` keeps the text (L26).

        There is one slot for each tool: the last registration wins.
        """
        name = _selected(selector)

        def register(hook: _Desc) -> _Desc:
            require_async(hook)
            self._descriptions[name] = hook
            return hook

        return register

    def result(self, selector: object) -> Callable[[_Result], _Result]:
        """Register `async def hook(call, result[, context]) -> ToolResult | None` (O9).

        `None` keeps the result. Result hooks are asked in the order of registration, each about what
        the one before has left, for whatever came of the call: the tool's result, its error, a
        hook's answer or refusal. They are not asked about a call that waits for input, nor about
        protocol errors, which are no results. `call` has the arguments that ran, and those that
        were sent in `original`. A changed result must keep the promise of the output schema.

        Args:
            selector: As in `execution`.
        """
        name = _selected(selector)

        def register(hook: _Result) -> _Result:
            self._results.append((name, bound_result(hook, self.deadline)))
            return hook

        return register

    def register(self, *policies: object) -> None:
        """Register every hook of policy objects: methods named after their tools (L25).

        `weather_hook`, `weather_description_hook` and `weather_result_hook` are hooks of the tool
        `weather`. A tool whose name is no Python identifier needs `execution`, `description` or
        `result`.

        Raises:
            DefinitionError: a public method is none of these, or cannot be a hook; nothing of any
                policy is registered then.
        """
        found = HookSet(deadline=self.deadline)
        for hook in (hook for policy in policies for hook in policy_hooks(policy)):
            slot = {"execution": found.execution, "description": found.description, "result": found.result}
            slot[hook.kind](hook.tool)(hook.function)
        self._take(found)

    def merged(self, *others: HookSet) -> HookSet:
        """A new set with these hooks and then those of `others`."""
        both = HookSet(deadline=self.deadline)
        for hooks in (self, *others):
            both._take(hooks)
        return both

    def prefixed(self, prefix: str) -> HookSet:
        """A new set with these hooks for the same tools in a toolset that is `.prefixed(prefix)` (L27).

        A hook for every tool becomes one for every tool whose name begins with the prefix.

        Raises:
            DefinitionError: the prefix cannot start a tool's name.
        """
        check_prefix(prefix)
        moved = HookSet(deadline=self.deadline)
        moved._execution = [(_moved(name, prefix), hook) for name, hook in self._execution]
        moved._descriptions = {_moved(name, prefix): hook for name, hook in self._descriptions.items()}
        moved._results = [(_moved(name, prefix), hook) for name, hook in self._results]
        return moved

    def nested(self, prefix: str, inner: HookSet) -> HookSet:
        """A new set: these hooks, then those that `inner` has for a toolset nested under a prefix (L27)."""
        return self.merged(inner.prefixed(prefix))

    def execution_hooks(self, name: str | ToolBinding) -> tuple[BoundHook, ...]:
        """The hooks to ask about a tool, in order."""
        return tuple(hook for selector, hook in self._execution if _reaches(selector, name))

    def result_hooks(self, name: str | ToolBinding) -> tuple[BoundResultHook, ...]:
        """The hooks to ask about the results of a tool, in order."""
        return tuple(hook for selector, hook in self._results if _reaches(selector, name))

    def description_hook(self, name: str | ToolBinding) -> DescriptionHook | None:
        """The hook that may re-describe a tool: its own before one for many, the most particular first."""
        reaching = [selector for selector in self._descriptions if _reaches(selector, name)]
        return self._descriptions[max(reaching, key=_particularity)] if reaching else None

    async def about(self, call: ToolCall, binding: ToolBinding, context: ToolContext) -> HookAnswer:
        """What the hooks make of one call by itself (L9); see `DecodedCall.hook`."""
        from mcp_toolset.calls.round_hooks import about_one

        return await about_one(call, binding, self, context)

    async def describe(self, bindings: Iterable[ToolBinding]) -> list[ToolBinding]:
        """The bindings with their texts as the description hooks want them.

        The hooks are asked side by side. A tool whose hook raises or outstays its deadline is left
        out, the rest is served (F41).
        """
        bindings = list(bindings)
        if not self._descriptions:
            return bindings
        described: list[ToolBinding | None] = [None] * len(bindings)

        async def one(place: int, binding: ToolBinding) -> None:
            described[place] = await self._describe(binding)

        async with anyio.create_task_group() as group:
            for place, binding in enumerate(bindings):
                group.start_soon(one, place, binding)
        return [binding for binding in described if binding is not None]

    async def _describe(self, binding: ToolBinding) -> ToolBinding | None:
        hook = self.description_hook(binding)
        if hook is None:
            return binding
        try:
            with anyio.fail_after(self.deadline):
                text = _text(await hook(binding.definition))
        # The application's code may raise anything; only this tool is to suffer (F41).
        except (Exception, SystemExit):
            _log.exception("the description hook of %s failed; the tool is hidden", binding.name)
            return None
        if text is None:
            return binding
        return replace(binding, definition=binding.definition.described(text))

    def _take(self, other: HookSet) -> None:
        self._execution.extend(other._execution)
        self._descriptions.update(other._descriptions)
        self._results.extend(other._results)


def _reaches(chosen: _Chosen, subject: str | ToolBinding) -> bool:
    """Whether a hook is for a tool; a long name may have been cut before the end of its prefixes."""
    if isinstance(subject, str):
        return _matches(chosen.name, subject)
    if chosen.tool is not None and means(chosen.tool, subject):
        return True
    # A guard must not be lost because its tool has to be served under another name (F16).
    return _matches(chosen.name, subject.name) or bool(subject.asked) and _matches(chosen.name, subject.asked)


def _matches(selector: str, name: str) -> bool:
    if selector.endswith(EVERY_TOOL):
        return name.startswith(selector[:-1][:_KEPT])
    return selector == name


def _particularity(chosen: _Chosen) -> tuple[bool, int]:
    return not chosen.name.endswith(EVERY_TOOL), len(chosen.name)


def _moved(chosen: _Chosen, prefix: str) -> _Chosen:
    selector = chosen.name
    if selector.endswith(EVERY_TOOL):
        return replace(chosen, name=f"{prefix}_{_ALTERED.sub('_', selector[:-1])}{EVERY_TOOL}")
    return replace(chosen, name=public_name(selector, prefix=prefix))


def _text(value: object) -> str | None:
    if value is not None and not isinstance(value, str):
        raise TypeError(f"a description hook returns a text or None, not {value!r}")
    return value


def _selected(selector: object) -> _Chosen:
    name = own_name(selector)
    if not name:
        raise DefinitionError(f"a hook is registered for a tool, a tool's name or '*', not {selector!r}")
    return _Chosen(name, None if isinstance(selector, str) else selector)
