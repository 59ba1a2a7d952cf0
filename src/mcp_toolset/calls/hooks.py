"""`HookSet`: execution hooks decide about calls, description hooks about texts (L16, L17, L25, L26).

Hooks are the same for local tools, mounted tools and owned loops (X8). They fail closed: a hook that
raises or outstays its deadline means that the call does not run (F38, F39), and a description hook
that raises hides its tool (F41).
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, is_dataclass, replace
from typing import Any, Final, TypeVar, cast, get_origin

import anyio
from pydantic import BaseModel, TypeAdapter
from pydantic.errors import PydanticUserError

from mcp_toolset.calls.decision import Complete, Decision, Reject, RunNormally
from mcp_toolset.errors import DefinitionError
from mcp_toolset.tools.call import ToolCall, ToolContext
from mcp_toolset.tools.definition import ToolDefinition
from mcp_toolset.tools.signature import resolved_hints
from mcp_toolset.tools.view import ToolBinding

EVERY_TOOL: Final = "*"
"""The selector of a hook that is asked about every tool."""

HOOK_DEADLINE: Final = 30.0
"""Seconds that a hook may take unless its set says otherwise (F39)."""

ExecutionHook = Callable[..., Awaitable[Decision]]
DescriptionHook = Callable[[ToolDefinition], Awaitable[str | None]]
_Exec = TypeVar("_Exec", bound=ExecutionHook)
_Desc = TypeVar("_Desc", bound=DescriptionHook)
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
        try:
            with anyio.fail_after(self.deadline):
                decision = await self._ask(call, context)
        except TimeoutError:
            _log.exception("hook %s gave no answer about %s in time", self._name, call.name)
            return Reject(f"the check of {call.name} gave no answer in {self.deadline:g} s; try again later")
        # A hook is the application's code and may raise anything; the call must not run then (F38).
        except (Exception, SystemExit):
            _log.exception("hook %s raised about %s", self._name, call.name)
            return Reject(f"the check of {call.name} failed, so it was not run")
        effective = decision.input if isinstance(decision, RunNormally) else call.arguments
        _log.info("%s (call %s): %s of %r", call.name, call.id or "-", type(decision).__name__, effective)
        return decision

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

    @property
    def _name(self) -> str:
        return getattr(self.function, "__qualname__", repr(self.function))


class HookSet:
    """Hooks by tool name, in the order of registration."""

    def __init__(self, *, deadline: float = HOOK_DEADLINE) -> None:
        """Start empty. `deadline` is the seconds that one hook may take."""
        self.deadline = deadline
        self._execution: list[tuple[str, BoundHook]] = []
        self._descriptions: dict[str, DescriptionHook] = {}

    def execution(self, selector: object) -> Callable[[_Exec], _Exec]:
        """Register `async def hook(call, input[, context]) -> RunNormally | Complete | Reject`.

        `input` is parsed into the type of its annotation, if that is a model, dataclass or
        TypedDict; else it is the dictionary of arguments. Arguments that the type does not name
        stay as they are; a dictionary in place of a model or dataclass replaces them all.

        Args:
            selector: A tool, its public name, or `"*"` for every tool.
        """
        name = _selected(selector)

        def register(hook: _Exec) -> _Exec:
            self._execution.append((name, _bound(hook, self.deadline)))
            return hook

        return register

    def description(self, selector: object) -> Callable[[_Desc], _Desc]:
        """Register `async def hook(definition) -> str | None`; `None` keeps the text (L26).

        There is one slot for each tool: the last registration wins.
        """
        name = _selected(selector)

        def register(hook: _Desc) -> _Desc:
            _require_async(hook)
            self._descriptions[name] = hook
            return hook

        return register

    def merged(self, *others: HookSet) -> HookSet:
        """A new set with these hooks and then those of `others`."""
        both = HookSet(deadline=self.deadline)
        for hooks in (self, *others):
            both._execution.extend(hooks._execution)
            both._descriptions.update(hooks._descriptions)
        return both

    def execution_hooks(self, name: str) -> tuple[BoundHook, ...]:
        """The hooks to ask about a tool, in order."""
        return tuple(hook for selector, hook in self._execution if selector in (name, EVERY_TOOL))

    def description_hook(self, name: str) -> DescriptionHook | None:
        """The hook that may re-describe a tool: its own before the one for every tool."""
        return self._descriptions.get(name) or self._descriptions.get(EVERY_TOOL)

    async def describe(self, bindings: Iterable[ToolBinding]) -> list[ToolBinding]:
        """The bindings with their texts as the description hooks want them.

        A tool whose hook raises or outstays its deadline is left out, the rest is served (F41).
        """
        bindings = list(bindings)
        if not self._descriptions:
            return bindings
        return [done for binding in bindings if (done := await self._describe(binding)) is not None]

    async def _describe(self, binding: ToolBinding) -> ToolBinding | None:
        hook = self.description_hook(binding.name)
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


def _is_json_instead(edited: object, given: object) -> bool:
    return isinstance(edited, dict) and not isinstance(given, dict)


def _object(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError(
            f"RunNormally takes the input that the hook was given, or a dictionary, not {value!r}"
        )
    return cast("dict[str, Any]", value)


def _text(value: object) -> str | None:
    if value is not None and not isinstance(value, str):
        raise TypeError(f"a description hook returns a text or None, not {value!r}")
    return value


def _selected(selector: object) -> str:
    name: object = selector if isinstance(selector, str) else getattr(selector, "name", None)
    if not isinstance(name, str) or not name:
        raise DefinitionError(f"a hook is registered for a tool, a tool's name or '*', not {selector!r}")
    return name


def _bound(hook: ExecutionHook, deadline: float) -> BoundHook:
    shown = _require_async(hook)
    parameters = list(inspect.signature(hook).parameters)
    if len(parameters) not in (2, 3):
        raise DefinitionError(f"hook {shown} must take (call, input) or (call, input, context)")
    annotation = resolved_hints(hook, f"hook {shown}").get(parameters[1], dict)
    try:
        adapter: TypeAdapter[Any] | None = TypeAdapter(annotation) if _is_structure(annotation) else None
    except PydanticUserError as fault:
        reason = str(fault).splitlines()[0]
        raise DefinitionError(f"hook {shown}: its input cannot be read as {annotation!r}: {reason}") from None
    return BoundHook(hook, adapter, len(parameters) == 3, deadline)


def _require_async(hook: Callable[..., Any]) -> str:
    shown = getattr(hook, "__qualname__", repr(hook))
    if not inspect.iscoroutinefunction(hook) and not inspect.iscoroutinefunction(type(hook).__call__):
        raise DefinitionError(f"hook {shown} must be an `async def`")
    return shown


def _is_structure(annotation: object) -> bool:
    if not isinstance(annotation, type) or get_origin(annotation) is not None:
        return False
    kind = cast("type[Any]", annotation)
    # `typing` does not know the typed dictionaries of `typing_extensions`, which pydantic asks for on 3.11.
    is_typed_dict = hasattr(kind, "__required_keys__") and hasattr(kind, "__total__")
    return issubclass(kind, BaseModel) or is_typed_dict or is_dataclass(kind)
