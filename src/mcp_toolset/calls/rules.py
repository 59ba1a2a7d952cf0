"""`Rules`: hooks, middleware and descriptions as one object, for a server, an owned loop or one call."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from inspect import signature
from types import MappingProxyType
from typing import Any, cast

from mcp_toolset._index import mend
from mcp_toolset._records import dataclass, replace
from mcp_toolset._rule import Rule, require_kept, require_one_form, take
from mcp_toolset.calls.bound_hooks import ExecutionHook
from mcp_toolset.calls.hooks import HookSet
from mcp_toolset.calls.middleware import Guard, NamesTools, ToolMiddleware, check_middleware
from mcp_toolset.calls.observers import CallObserver, check_observers
from mcp_toolset.errors import DefinitionError
from mcp_toolset.tools.binding import (
    EVERY_TOOL,
    NameUse,
    ToolBinding,
    ToolNames,
    ToolSelector,
    identity,
    use_of,
)
from mcp_toolset.tools.call import ToolCall, ToolContext
from mcp_toolset.tools.definition import check_prefix, copied, public_name
from mcp_toolset.tools.result import ToolResult
from mcp_toolset.tools.toolset import redescribed
from mcp_toolset.tools.transform import BySelector, NamedStep
from mcp_toolset.tools.view import AnyRules, KnownTools, NameReport, ToolView, UnboundName, unbound


class Descriptions(Mapping["ToolSelector", str]):
    """An immutable mapping from tools to the texts that replace their descriptions."""

    __slots__ = ("_report", "_texts")

    def __init__(self, texts: BySelector[str] | None = None) -> None:
        self._texts: dict[ToolSelector, str] = {}
        for selector, text in (texts or {}).items():
            if use_of(selector, "descriptions") is None or not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise DefinitionError(f"descriptions are texts by tool, not {selector!r}: {text!r}")
            self._texts[selector] = text
        self._report = NameReport()

    def __getitem__(self, selector: ToolSelector) -> str:
        return self._texts[selector]

    def __iter__(self) -> Iterator[ToolSelector]:
        return iter(self._texts)

    def __len__(self) -> int:
        return len(self._texts)

    def __or__(self, other: BySelector[str]) -> Descriptions:
        return Descriptions({**self._texts, **dict(other.items())})

    def prefixed(self, prefix: str) -> Descriptions:
        """The same texts for a toolset that is `.prefixed(prefix)`."""
        check_prefix(prefix)
        named = {key: key if not isinstance(key, str) else public_name(key, prefix=prefix) for key in self}
        return Descriptions({named[key]: text for key, text in self._texts.items()})

    def uses(self) -> list[NameUse]:
        """The uses of the texts' selectors."""
        return [use for one in self._texts if (use := use_of(one, "descriptions")) is not None]

    def of(self, bindings: list[ToolBinding]) -> list[ToolBinding]:
        """The tools with these texts; names are not checked."""
        step = NamedStep("descriptions", self._texts, redescribed).among(bindings)
        return [done for one in bindings if (done := step(one)) is not None]

    async def describe(self, view: ToolView) -> list[ToolBinding]:
        """The tools of a view with these texts; see `ToolView.with_texts`."""
        self._report.look(self.uses(), view.names, view.known_tools)
        return self.of(list(view.values()))


@dataclass(frozen=True)
class Rules(Rule, AnyRules):
    """Hooks, middleware and descriptions that apply to tools wherever they are called.

    Attributes:
        hooks: Execution, result and description hooks; hooks may be added later.
        middleware: Around every call, outermost first; hooks run inside.
        tool_middleware: Around the calls of some tools, by name, pattern, tool or toolset; inside the
            middleware for all.
        descriptions: Texts that replace descriptions, before description hooks see them.
        strict: The action on a name that matches no tool. By default that is an error where all tools are
            known, and a warning where servers are mounted. `True` makes it an error there too, once they have
            listed their tools, and `False` a warning everywhere. See docs/names.md.
        observers: Called with a `CallReport` of each call.
        guards: Checks that run before all other rules, or last, directly before the tool; see
            `mcp_toolset.policy`.

    Raises:
        DefinitionError: a middleware cannot be used, or is for something that is not a tool.
    """

    _decides = ("around", "denies", "describe", "described", "reworded", "run")

    hooks: HookSet = field(default_factory=HookSet)
    middleware: Sequence[ToolMiddleware] = ()
    tool_middleware: Mapping[Any, Sequence[ToolMiddleware]] = field(default_factory=dict[Any, Any])
    descriptions: Descriptions = field(default_factory=Descriptions)
    strict: bool | None = None
    observers: Sequence[CallObserver] = ()
    guards: Sequence[Guard] = ()
    _own: tuple[tuple[NameUse, tuple[ToolMiddleware, ...]], ...] = field(init=False, repr=False)
    report: NameReport = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(cast("object", self.hooks), HookSet):
            raise DefinitionError(f"Rules(hooks=…) takes a HookSet, not {self.hooks!r}")
        put = object.__setattr__
        put(self, "middleware", _layers(self.middleware, "middleware"))
        put(self, "_own", tuple(_owned(self.tool_middleware)))
        # As they were taken: an iterator can be read once.
        taken = {selector: own for selector, (_, own) in zip(self.tool_middleware, self._own, strict=True)}
        put(self, "tool_middleware", MappingProxyType(taken))
        if not isinstance(cast("object", self.descriptions), Descriptions):
            put(self, "descriptions", Descriptions(self.descriptions))
        if not isinstance(cast("object", self.strict), bool | None):
            raise DefinitionError(f"Rules(strict=…) takes True, False or None, not {self.strict!r}")
        put(self, "report", NameReport(self.strict))
        put(self, "observers", check_observers(self.observers))
        if not isinstance(cast("object", self.guards), Iterable):
            raise DefinitionError(f"guards is a list{mend('guards')}, not {self.guards!r}")
        put(self, "guards", tuple(self.guards))
        guards = cast("Sequence[object]", self.guards)
        if unfit := [one for one in guards if not isinstance(one, Guard) or isinstance(one, type)]:
            raise DefinitionError(f"guards is a list{mend('guards')}, and has {unfit[0]!r}")
        for one in guards:
            require_one_form(one)
        take(self.hooks, *self.middleware, *self.guards, *(one for _, own in self._own for one in own))

    @property
    def is_taken(self) -> bool:
        """True if something that applies them has taken these rules, or they are none."""
        parts = (self.has_middleware, self.guards, self.observers, self.descriptions)
        return super().is_taken or not (any(parts) or not self.hooks.is_empty)

    @property
    def has_middleware(self) -> bool:
        """True if there is any middleware."""
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
        """Raise `UnknownNameError` or `DefinitionError` if a rule does not fit the tools of a view."""
        self.taken()
        # Unless strict, the toolset has reported its verbs' names when the view was made.
        verbs = view.known_tools.verbs() if self.strict else ()
        unused = self.unused(view.known_tools, view.values())
        self.report.look(self.uses(), view.names, view.known_tools, [*verbs, *unused])
        self.require_fitting(view.values(), view.names)

    def require_fitting(self, bindings: Iterable[ToolBinding], names: ToolNames) -> None:
        """Check the typed inputs of hooks, also of those that tools carry; see `HookSet.require_fitting`."""
        bindings = list(bindings)
        self.hooks.require_fitting(bindings, names)
        for rules, own in carriers(bindings).values():
            rules.hooks.require_fitting(own, ToolNames(own))

    def check_carried(self, view: ToolView) -> None:
        """Raise the same if a toolset cannot carry these rules; see `Toolset.carrying`."""
        if self.observers:
            raise DefinitionError("observers see every call of a server or a loop; give them to its rules")
        self.check(view)

    def missing(self, view: ToolView) -> list[UnboundName]:
        """The names of carried rules that match no tool, if they were not reported before."""
        if self.strict is False:
            return []
        known = view.known_tools
        found = [*unbound(self.uses(), view.names, known), *self.unused(known, view.values())]
        told = (
            set[tuple[str, str]]() if known.sources else {(one.where, one.name) for one in self.report.found}
        )
        return [one for one in found if (one.where, one.name) not in told]

    def denies(self, binding: ToolBinding) -> bool:
        """True if a policy among the guards denies a tool to every caller."""
        return any(denies(binding) for one in self.guards if (denies := getattr(one, "denies", None)))

    def unused(self, known: KnownTools, tools: Iterable[ToolBinding]) -> list[UnboundName]:
        """The names and patterns of guards that fit none of some tools, nor any tool that is known."""
        taking = [unused for one in self.guards if (unused := getattr(one, "unused", None)) is not None]
        tools = list(tools) if taking else []
        if not any(True for unused in taking for _ in unused(tools)):
            return []
        # Patterns do not fit the name that a tool had before a prefix.
        past = {(identity(one), name) for one in tools for name in one.former}
        besides = (one for one in known.everything() if (identity(one), one.name) not in past)
        every = [*tools, *besides]
        names = ToolNames(every)
        found = (NameUse(name, place) for unused in taking for place, name in unused(every))
        # A pattern has a hint and a server before the name.
        plain = ((use, use.name.rpartition(":")[2].rpartition("/")[2]) for use in found)
        return [known.missing(use, names.near(replace(use, name=name))) for use, name in plain]

    async def describe(self, view: ToolView) -> list[ToolBinding]:
        """The tools of a view with the texts of these rules; see `ToolView.with_texts`."""
        self.check(view)
        return await self.described(list(view.values()), view.names)

    async def described(self, bindings: list[ToolBinding], names: ToolNames) -> list[ToolBinding]:
        """The bindings with the texts of what they carry, then with these; names are not checked."""
        if any(binding.carried for binding in bindings):
            bindings = await _with_carried(bindings)
        return await self.reworded(bindings, names)

    async def reworded(self, bindings: list[ToolBinding], names: ToolNames) -> list[ToolBinding]:
        """The bindings with the texts of these rules alone."""
        texts = self.descriptions.of(bindings) if self.descriptions else bindings
        return await self.hooks.describe(texts, names)

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
            hooks=HookSet(timeout=self.hooks.timeout).merged(*(one.hooks for one in every)),
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
        from mcp_toolset.calls.dispatch import ToolDispatch

        self.check(view)
        # Middleware may edit arguments in place, and these belong to the caller.
        call = ToolCall(call.name, copied(call.arguments), call.id, call.original, call.grant, call.repairs)
        dispatch = ToolDispatch([view[call.name]], rules=self, names=view.names)
        return await dispatch.call(call, context, raising=True)


def carriers(bindings: Iterable[ToolBinding]) -> dict[int, tuple[Rules, list[ToolBinding]]]:
    """The rules that tools carry, the innermost of each tool first, each with the tools as they know them."""
    found: dict[int, tuple[Rules, list[ToolBinding]]] = {}
    for binding in bindings:
        for one in reversed(binding.carried):
            found.setdefault(id(one.rules), (one.rules, []))[1].append(binding.known_to(one))
    return found


async def _with_carried(bindings: list[ToolBinding]) -> list[ToolBinding]:
    """The bindings with the texts of the rules that they carry."""
    now = {binding.name: binding for binding in bindings}
    for rules, carrying in carriers(bindings).values():
        present = [one for one in carrying if _public(one) in now]
        known = [replace(one, definition=now[_public(one)].definition) for one in present]
        described = {_public(one): one for one in await rules.reworded(known, ToolNames(known))}
        for public in {_public(one) for one in known}:
            before, after = now.pop(public), described.get(public)
            if after is not None:
                now[public] = replace(before, definition=after.definition)
    return [now[binding.name] for binding in bindings if binding.name in now]


def _public(known: ToolBinding) -> str:
    """The public name of a tool that stands under the names by which carried rules know it."""
    return known.carried[0].name


def _layers(layers: Iterable[ToolMiddleware], where: str) -> tuple[ToolMiddleware, ...]:
    if isinstance(layers, str) or not isinstance(cast("object", layers), Iterable):
        raise DefinitionError(f"{where} is a list of middleware, not {layers!r}: {where}=[…]")
    return tuple(check_middleware(layer) for layer in layers)


def _owned(
    by: Mapping[Any, Sequence[ToolMiddleware]],
) -> Iterable[tuple[NameUse, tuple[ToolMiddleware, ...]]]:
    if not isinstance(cast("object", by), Mapping):
        raise DefinitionError(f'tool_middleware takes lists by tool, {{"pay": [layer]}}, not {by!r}')
    for selector, layers in by.items():
        use = use_of(selector, "tool_middleware")
        if use is None:
            raise DefinitionError(f"tool_middleware is for a tool or a tool's name, not {selector!r}")
        yield use, _layers(layers, f"tool_middleware[{use.name!r}]")


AnyRule = Rules | HookSet | ToolMiddleware | ExecutionHook | Sequence[Any] | object
"""Anything that a round or a single call accepts as rules."""


def _rules_of_one(rule: Any) -> Rules:
    if callable(rule):
        require_one_form(rule)
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
