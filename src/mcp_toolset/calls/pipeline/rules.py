"""`Rules`: hooks, middleware and descriptions as one object, for a server, an owned loop or one call.

```python
rules = Rules(hooks=hooks, middleware=[PermissionChecker(policy)])

serve(tools, rules=rules)                                  # every call that a client makes
plan = await ToolRound.from_openai(message, view).apply(rules)     # the calls of one turn
result = await tools.execute("pay", {"amount": 3}, rules=rules)    # one call of your own
```
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from inspect import signature
from types import MappingProxyType
from typing import Any, cast

from mcp_toolset.calls.pipeline.hook_adapters import ExecutionHook
from mcp_toolset.calls.pipeline.hooks import HookSet
from mcp_toolset.calls.pipeline.middleware import NamesTools, ToolMiddleware, check_middleware
from mcp_toolset.calls.pipeline.observation import CallObserver, check_observers
from mcp_toolset.errors import DefinitionError
from mcp_toolset.tools.core.call import ToolCall, ToolContext
from mcp_toolset.tools.core.plain import copied
from mcp_toolset.tools.core.result import ToolResult
from mcp_toolset.tools.toolsets.descriptions import Descriptions
from mcp_toolset.tools.view.tool_names import EVERY_TOOL, NameUse, ToolNames, use_of
from mcp_toolset.tools.view.unbound import NameReport
from mcp_toolset.tools.view.view import ToolBinding, ToolView


@dataclass(frozen=True)
class Rules:
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

    Raises:
        DefinitionError: a middleware cannot be used, or is for something that is not a tool.
    """

    hooks: HookSet = field(default_factory=HookSet)
    middleware: Sequence[ToolMiddleware] = ()
    tool_middleware: Mapping[Any, Sequence[ToolMiddleware]] = field(default_factory=dict[Any, Any])
    descriptions: Descriptions = field(default_factory=Descriptions)
    strict: bool | None = None
    observers: Sequence[CallObserver] = ()
    _own: tuple[tuple[NameUse, tuple[ToolMiddleware, ...]], ...] = field(init=False, repr=False)
    report: NameReport = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Check all rules, and copy them."""
        if not isinstance(cast("object", self.hooks), HookSet):
            raise DefinitionError(f"Rules(hooks=…) takes a HookSet, not {self.hooks!r}")
        put = object.__setattr__
        put(self, "middleware", _layers(self.middleware, "middleware"))
        put(self, "_own", tuple(_owned(self.tool_middleware)))
        put(self, "tool_middleware", MappingProxyType(dict(self.tool_middleware)))
        if not isinstance(cast("object", self.descriptions), Descriptions):
            put(self, "descriptions", Descriptions(self.descriptions))
        put(self, "report", NameReport(self.strict))
        put(self, "observers", check_observers(self.observers))

    @staticmethod
    def of(rules: AnyRule) -> Rules:
        """Rules from any rule: hooks, middleware, a policy object, one hook for every call, or a list.

        Raises:
            DefinitionError: it is none of these.
        """
        if isinstance(rules, Rules):
            return rules
        if isinstance(rules, HookSet):
            return Rules(hooks=rules)
        if isinstance(rules, list | tuple):
            return Rules().merged(*cast("Iterable[AnyRule]", rules))
        return _rules_of_one(rules)

    def merged(self, *others: AnyRule) -> Rules:
        """These rules, then those of `others`: their middleware is inside, their hooks run later."""
        every = [self, *map(Rules.of, others)]
        told = [one.strict for one in every if one.strict is not None]
        return Rules(
            hooks=HookSet(deadline=self.hooks.deadline).merged(*(one.hooks for one in every)),
            middleware=[layer for one in every for layer in one.middleware],
            tool_middleware=_joined(one.tool_middleware for one in every),
            descriptions=Descriptions(_joined_texts(every)),
            strict=told[-1] if told else None,
            observers=[observer for one in every for observer in one.observers],
        )

    @property
    def has_middleware(self) -> bool:
        """Whether there is any middleware."""
        return bool(self.middleware or self._own)

    def around(self, binding: ToolBinding, names: ToolNames) -> tuple[ToolMiddleware, ...]:
        """The middleware around one tool, outermost first."""
        if not self._own:
            return tuple(self.middleware)
        own = (layers for use, layers in self._own if binding.name in names.reached(use))
        return (*self.middleware, *(layer for layers in own for layer in layers))

    def uses(self) -> list[NameUse]:
        """Every name that a rule was given for."""
        layers = [*self.middleware, *(layer for _, own in self._own for layer in own)]
        named = (layer.tool_names() for layer in layers if isinstance(layer, NamesTools))
        own = (use for use, _ in self._own)
        return [*self.hooks.uses(), *own, *(use for uses in named for use in uses), *self.descriptions.uses()]

    def check(self, view: ToolView) -> None:
        """Check the names against the tools of a view.

        Raises:
            UnknownNameError: one of them matches no tool.
            DefinitionError: a hook's input is of another tool's model.
        """
        # Unless strict, the toolset has reported its verbs' names when the view was made.
        verbs = view.known_tools.verbs() if self.strict else ()
        self.report.look(self.uses(), view.names, view.known_tools, verbs)
        self.hooks.require_fitting(view.values(), view.names)

    async def describe(self, view: ToolView) -> list[ToolBinding]:
        """The tools of a view with the texts of these rules; see `ToolView.described`."""
        self.check(view)
        return await self.described(list(view.values()), view.names)

    async def described(self, bindings: list[ToolBinding], names: ToolNames) -> list[ToolBinding]:
        """The bindings with these texts; names are not checked."""
        texts = self.descriptions.of(bindings) if self.descriptions else bindings
        return await self.hooks.describe(texts, names)

    async def run(self, view: ToolView, call: ToolCall, context: ToolContext) -> ToolResult:
        """Run one call of a view like a served call; see `Toolset.execute`.

        Raises:
            UnknownNameError: a rule is for a tool that does not exist.
            UnknownToolError: the view has no such tool.
            InvalidArgumentsError: the arguments do not fit; nothing ran.
        """
        from mcp_toolset.calls.pipeline.dispatch import ToolDispatch

        self.check(view)
        # Middleware may edit arguments in place, and these belong to the caller.
        call = ToolCall(call.name, copied(call.arguments), call.id, call.original, call.grant)
        dispatch = ToolDispatch([view[call.name]], rules=self, names=view.names)
        return await dispatch.call(call, context, raising=True)


AnyRule = Rules | HookSet | ToolMiddleware | ExecutionHook | Sequence[Any] | object
"""Anything that a round or a single call accepts as rules."""


def _rules_of_one(rule: Any) -> Rules:
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
        raise DefinitionError(f"{rule!r} is no rule: {no_middleware}; {no_hook}") from None
    return hooks


def rules_from(
    rules: Rules | None,
    hooks: HookSet | None,
    middleware: Sequence[ToolMiddleware],
    tool_middleware: Mapping[Any, Sequence[ToolMiddleware]] | None,
) -> Rules:
    """The given rules, or rules made from the parts.

    Raises:
        DefinitionError: both were given, or a part cannot be a rule.
    """
    if rules is None:
        return Rules(HookSet() if hooks is None else hooks, middleware, tool_middleware or {})
    if hooks is not None or middleware or tool_middleware:
        raise DefinitionError("give rules, or hooks and middleware; rules.merged(…) joins them")
    if not isinstance(cast("object", rules), Rules):
        raise DefinitionError(
            f"rules=… takes Rules, not {rules!r}; make them with Rules(hooks=…, middleware=[…])"
        )
    return rules


def _layers(layers: Iterable[ToolMiddleware], where: str) -> tuple[ToolMiddleware, ...]:
    if isinstance(layers, str) or not isinstance(cast("object", layers), Iterable):
        raise DefinitionError(f"{where} is a list of middleware, not {layers!r}: {where}=[…]")
    return tuple(check_middleware(layer) for layer in layers)


def _owned(
    by: Mapping[Any, Sequence[ToolMiddleware]],
) -> Iterable[tuple[NameUse, tuple[ToolMiddleware, ...]]]:
    for selector, layers in by.items():
        use = use_of(selector, "tool_middleware")
        if use is None:
            raise DefinitionError(f"tool_middleware is for a tool or a tool's name, not {selector!r}")
        yield use, _layers(layers, f"tool_middleware[{use.name!r}]")


def _joined(every: Iterable[Mapping[Any, Sequence[ToolMiddleware]]]) -> dict[Any, list[ToolMiddleware]]:
    joined: dict[Any, list[ToolMiddleware]] = {}
    for one in every:
        for selector, layers in one.items():
            joined.setdefault(selector, []).extend(layers)
    return joined


def _joined_texts(every: Iterable[Rules]) -> dict[Any, str]:
    return {selector: text for one in every for selector, text in one.descriptions.items()}
