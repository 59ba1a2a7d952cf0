"""`Rules`: hooks, middleware and descriptions as one object, for a server, an owned loop or one call."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from inspect import signature
from typing import Any, cast

from mcp_toolset._records import dataclass
from mcp_toolset._rule import require_kept, take
from mcp_toolset.calls.pipeline.hook_adapters import ExecutionHook
from mcp_toolset.calls.pipeline.hooks import HookSet
from mcp_toolset.calls.pipeline.middleware import Guard, ToolMiddleware
from mcp_toolset.calls.pipeline.rule_set import Descriptions, RuleSet
from mcp_toolset.errors import DefinitionError
from mcp_toolset.tools.binding.selector import EVERY_TOOL
from mcp_toolset.tools.core.call import ToolCall, ToolContext
from mcp_toolset.tools.core.definition import copied
from mcp_toolset.tools.core.result import ToolResult
from mcp_toolset.tools.view.view import ToolView


@dataclass(frozen=True)
class Rules(RuleSet):
    """Hooks, middleware and descriptions that apply to tools wherever they are called.

    Attributes:
        hooks: Execution, result and description hooks; hooks may be added later.
        middleware: Around every call, outermost first; hooks run inside.
        tool_middleware: Around the calls of some tools, by name, pattern, tool or toolset; inside the
            middleware for all.
        descriptions: Texts that replace descriptions, before description hooks see them.
        strict: What happens if a name matches no tool. By default that is an error where all tools are
            known, and a warning where servers are mounted. `True` makes it an error there too, once they have
            listed their tools, and `False` a warning everywhere. See docs/names.md.
        observers: Called with a `CallReport` of each call.
        guards: Checks that run before all other rules, or last, directly before the tool; see
            `mcp_toolset.policy`.

    Raises:
        DefinitionError: a middleware cannot be used, or is for something that is not a tool.
    """

    _decides = ("around", "denies", "describe", "described", "reworded", "run")

    @staticmethod
    def of(rules: AnyRule) -> Rules:
        """Rules from any rule: hooks, middleware, a policy object, one hook for every call, or a list."""
        if isinstance(rules, Rules):
            return rules
        if isinstance(rules, HookSet):
            return Rules(hooks=rules)
        if isinstance(rules, list | tuple):
            return Rules().merged(*cast("Iterable[AnyRule]", rules))
        return _rules_of_one(rules)

    def merged(self, *others: AnyRule) -> Rules:
        """These rules, then the rules of `others`, whose middleware is inside and whose hooks run later."""
        require_kept("Rules", __name__)
        every = [self, *map(Rules.of, others)]
        take(*every)
        told = [one.strict for one in every if one.strict is not None]
        return Rules(
            hooks=HookSet(deadline=self.hooks.deadline).merged(*(one.hooks for one in every)),
            middleware=[layer for one in every for layer in one.middleware],
            tool_middleware=_joined(one.tool_middleware for one in every),
            descriptions=Descriptions({key: text for one in every for key, text in one.descriptions.items()}),
            strict=told[-1] if told else None,
            observers=[observer for one in every for observer in one.observers],
            guards=[guard for one in every for guard in one.guards],
        )

    @property
    def only_hooks(self) -> HookSet:
        """The hooks, for a call without its tool; `DefinitionError` if other rules run around the tool."""
        if self.has_middleware or self.guards or self.observers or self.descriptions:
            raise DefinitionError(
                "call.hook(…) runs hooks alone; for middleware, guards and observers use "
                "toolset.execute(…, rules=…), or round.apply(rules) and run_pending"
            )
        return self.hooks

    def none(self) -> Rules:
        """No rules; rules that a tool's toolset carries still apply."""
        return Rules()

    async def run(self, view: ToolView, call: ToolCall, context: ToolContext) -> ToolResult:
        """Run one call of a view like a served call; see `Toolset.execute`."""
        from mcp_toolset.calls.pipeline.dispatch import ToolDispatch

        self.check(view)
        # Middleware may edit arguments in place, and these belong to the caller.
        call = ToolCall(call.name, copied(call.arguments), call.id, call.original, call.grant, call.repairs)
        dispatch = ToolDispatch([view[call.name]], rules=self, names=view.names)
        return await dispatch.call(call, context, raising=True)


AnyRule = Rules | HookSet | ToolMiddleware | ExecutionHook | Sequence[Any] | object
"""Anything that a round or a single call accepts as rules."""


def _rules_of_one(rule: Any) -> Rules:
    if isinstance(rule, Guard):
        return Rules(guards=[rule])
    if not callable(rule) and any(name.endswith("_hook") for name in dir(rule)):
        hooks = HookSet()
        hooks.register(rule)
        return Rules(hooks=hooks)
    try:
        return Rules(middleware=[cast("Any", rule)])
    except DefinitionError as fault:
        return Rules(hooks=_hook_for_all(rule, fault))


def _hook_for_all(rule: Any, no_middleware: DefinitionError) -> HookSet:
    if not callable(rule) or isinstance(rule, type) or "next" in signature(rule).parameters:
        raise no_middleware
    hooks = HookSet()
    try:
        hooks.execution(EVERY_TOOL)(cast("ExecutionHook", rule))
    except DefinitionError as no_hook:
        raise DefinitionError(f"{rule!r} is not a rule: {no_middleware}; {no_hook}") from None
    return hooks


def rules_from(
    rules: AnyRule | None,
    hooks: HookSet | None,
    middleware: Sequence[ToolMiddleware],
    tool_middleware: Mapping[Any, Sequence[ToolMiddleware]] | None,
) -> Rules:
    """The given rules, or rules made from the parts."""
    if rules is None:
        return Rules(HookSet() if hooks is None else hooks, middleware, tool_middleware or {})
    if hooks is not None or middleware or tool_middleware:
        raise DefinitionError(
            "rules=… cannot be given together with hooks or middleware; join them with rules.merged(…)"
        )
    return Rules.of(rules)


def _joined(every: Iterable[Mapping[Any, Sequence[ToolMiddleware]]]) -> dict[Any, list[ToolMiddleware]]:
    joined: dict[Any, list[ToolMiddleware]] = {}
    for one in every:
        for selector, layers in one.items():
            joined.setdefault(selector, []).extend(layers)
    return joined
