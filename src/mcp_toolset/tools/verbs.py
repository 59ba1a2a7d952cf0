"""The verbs of toolsets: each returns a new toolset in which every binding passes one more step.

When a toolset is compiled, the steps run once, from the innermost outward. A verb raises `UnknownToolError`
for a selector that matches no tool of a toolset of local tools.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from inspect import isawaitable, iscoroutinefunction, signature
from typing import TYPE_CHECKING, Any, Generic, TypeVar, Unpack, cast

from mcp_toolset._index import marked
from mcp_toolset._records import replace
from mcp_toolset.errors import DefinitionError, UnknownToolError
from mcp_toolset.tools.binding import (
    EVERY_TOOL,
    Supplies,
    ToolBinding,
    ToolNames,
    ToolSelector,
    public_name_of,
    use_of,
)
from mcp_toolset.tools.definition import Tagged, check_name, check_prefix, checked_tags, frozen, public_name
from mcp_toolset.tools.hidden_text import in_log
from mcp_toolset.tools.signature import with_injected
from mcp_toolset.tools.source import ToolSource
from mcp_toolset.tools.transform import (
    UNPREPARED,
    ArgumentStep,
    ArgumentTransform,
    BySelector,
    NamedStep,
    PrepareCall,
    PrepareDefinition,
    PreparedStep,
    TurnOf,
    TurnStep,
    prepared_step,
    turn_step,
)
from mcp_toolset.tools.view import Each, KnownTools, ToolView, rules_of, unbound

if TYPE_CHECKING:
    from mcp_toolset.extensions.keywords import DeferredKeywords


Transform = Callable[[ToolBinding], ToolBinding | None]  # One step: the changed binding, or `None`.

Step = Transform | Each | PreparedStep | NamedStep[Any] | TurnStep
"""A step, or what makes a step for a turn, or for the present tools."""

_log = logging.getLogger("mcp_toolset.names")

T = TypeVar("T")
V = TypeVar("V")


class ToolsetVerbs(Generic[T]):
    """The toolset that a verb returns: another one, a `T`; `Toolset` implements it."""

    def through(self, step: Step, *, defers: bool = False, extensions: Collection[str] = ()) -> T:
        """The toolset with every binding passed through a step."""
        raise NotImplementedError

    def compiled(self, turn: object) -> list[ToolBinding]:
        raise NotImplementedError

    def sources(self) -> list[ToolSource]:
        raise NotImplementedError

    def known_tools(self) -> KnownTools:
        raise NotImplementedError

    def carrying(self, rules: object) -> T:
        """Add rules to the toolset, which apply to its tools wherever the toolset is mounted.

        `rules` is `Rules`, or one rule of any form: see `Rules.of`. The rules run inside the rules of the
        server or the loop, and use the names of this toolset. In a round they run when its calls run. A tool
        that a carried policy denies to every caller is left out. Observers are for a server or a loop.
        """
        made = rules_of(rules)
        made.check_carried(ToolView(self.compiled(UNPREPARED), known=self.known_tools()))
        # A tool that no caller may call is no tool: it would be listed, found and granted in vain.
        return self.through(
            Each(lambda binding: None if made.denies(binding) else binding.carrying(made), made)
        )

    def prefixed(self, prefix: str) -> T:
        """Rename every tool to `prefix_name`; hooks and middleware for the former names still apply."""
        check_prefix(prefix)
        return self.through(Each(lambda binding: binding.called(public_name(binding.name, prefix=prefix))))

    def renamed(self, names: BySelector[str]) -> T:
        """Rename tools: `{"old": "new"}`; all other tools keep their names."""
        new = self._known("renamed", names)
        for before, after in new.items():
            check_name(after, f"renamed({before!r})")
        return self.through(
            NamedStep("renamed", new, lambda binding, name: binding if name is None else binding.called(name))
        )

    def filtered(
        self,
        predicate: Callable[[ToolBinding], bool] | None = None,
        *,
        include: ToolSelector | Iterable[ToolSelector] = (EVERY_TOOL,),
        exclude: ToolSelector | Iterable[ToolSelector] = (),
    ) -> T:
        """Keep only some of the tools: by tools, name patterns (`get_*`) and a predicate."""
        if predicate is not None:
            _check_predicate(predicate)
        wanted = self._known("include", dict.fromkeys(_several(include), True))
        unwanted = self._known("exclude", dict.fromkeys(_several(exclude), False))
        kept: Any = self
        if EVERY_TOOL not in wanted:
            kept = kept.through(NamedStep("include", wanted, _kept))
        if unwanted:
            kept = kept.through(NamedStep("exclude", unwanted, partial(_kept, by_default=True)))
        if predicate is None:
            return kept.through(Each(lambda binding: binding))
        # The predicate may depend on anything, so it is called each time.
        chosen: Transform = lambda binding: binding if _told(predicate(binding)) else None  # noqa: E731
        return kept.through(chosen)

    def described(self, descriptions: BySelector[str]) -> T:
        """Replace the descriptions of some tools, by a mapping or `Descriptions`."""
        texts = self._known("described", descriptions)
        return self.through(NamedStep("described", texts, redescribed))

    def with_arguments(self, transforms: BySelector[Mapping[str, ArgumentTransform]]) -> T:
        """Hide, rename or describe parameters of some tools, or give them defaults.

        `{"search": {"key": hide(value="…"), "q": rename("query") | describe("What to look for")}}`.
        Hooks see the arguments as the model sends them. If a mounted tool lacks the parameter, the tool is
        left out, because a renamed parameter could reveal a hidden one; `set_aside()` and the log name it.
        """
        known = self._known("with_arguments", transforms)
        return self.through(ArgumentStep({selector: dict(one) for selector, one in known.items()}))

    def prepared(self, define: PrepareDefinition | None = None, *, call: PrepareCall | None = None) -> T:
        """Adapt tools and calls to the input of each turn.

        Args:
            define: `(binding[, turn]) -> ToolDefinition | None`, called when a view is made; `None`
                leaves the tool out. If it raises, the tool is hidden and the error is logged.
            call: `(call[, turn]) -> arguments`, called for each call before its arguments are
                validated. If it raises, the call does not run.

        `turn` is the value of `view(turn=…)`. For calls on a server, and without `view(turn=…)`, it is the
        value of `with_turn`, otherwise `None`. A turn of another type than annotated is an error.
        """
        if define is None and call is None:
            raise DefinitionError("prepared() needs a function of the definition, or call=…")
        return self.through(prepared_step(define, call))

    def with_turn(self, turn_of: TurnOf) -> T:
        """Set the turn of each call of these tools, for `.prepared(call=…)` and providers.

        On a server, the function is called for each request that needs the turn: `lambda context:
        Turn(context.principal)`, or `turn_from_meta("example.com/turn", Turn)`. In a loop, the turn of
        `view(turn=…)` wins over it; the innermost `with_turn` wins. It is no check of the caller: use a hook.
        A call that needs the turn does not run if the function raises.
        """
        return self.through(turn_step(turn_of))

    def granting(self, *capabilities: str) -> T:
        """Grant these tools capabilities beyond the default ones."""
        if not capabilities or not all(isinstance(one, str) and one for one in capabilities):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise DefinitionError(f"granting() takes names of capabilities, not {capabilities!r}")
        granted = frozenset(capabilities)
        return self.through(
            Each(
                lambda binding: replace(binding, capabilities=granted | (binding.capabilities or frozenset()))
            )
        )

    def tagged(self, *tags: str, metadata: Mapping[str, Any] | None = None) -> T:
        """Add tags and metadata to these tools, also to mounted ones; clients do not see them.

        `tagged("admin")`, the function, selects the tools that have a tag; a policy reads `binding.tags`.
        """
        added, noted = checked_tags(tags, "tagged()"), frozen(dict(metadata or {}))
        return self.through(
            Each(
                lambda binding: replace(
                    binding, tags=binding.tags | added, metadata=frozen({**binding.metadata, **noted})
                )
            )
        )

    def injecting(self, supplies: Supplies) -> T:
        """Supply values for injected parameters, by name or type, or by a function of a call's context.

        Values of an outer toolset or of the call itself win over them.
        """
        given: object = supplies
        if not isinstance(given, Mapping) and not callable(given):
            kind = type(given).__name__
            raise DefinitionError(f"injecting({kind} …): give values by type, as in {{{kind}: value}}")
        return self.through(Each(lambda binding: with_injected(binding, supplies)))

    def off(self, *selectors: ToolSelector) -> T:
        """Exclude some tools, or all if none is named, from the default availability."""
        if any(isinstance(one, list | tuple | set) for one in cast("tuple[object, ...]", selectors)):
            raise DefinitionError(f"off() takes tools one by one, off('a', 'b'), not {selectors[0]!r}")
        chosen = self._known("off", dict.fromkeys(selectors or (EVERY_TOOL,), True))
        return self.through(
            NamedStep("off", chosen, lambda binding, off: replace(binding, on=False) if off else binding)
        )

    def deferred(self, **extensions: Unpack[DeferredKeywords]) -> T:
        """Defer all tools: a model must search for a tool and resolve it before a call.

        With `code=True`, models may also run code that calls granted tools; see docs/code-mode.md.
        """
        for key in extensions:
            if key not in marked("deferred"):
                raise TypeError(f"deferred() got an unexpected keyword argument {key!r}")
        wanted = [key for key, said in extensions.items() if said]
        step = Each(lambda binding: replace(binding, deferred=True))
        return self.through(step, defers=True, extensions=wanted)

    def _known(self, verb: str, by: BySelector[V]) -> dict[ToolSelector, V]:
        table = dict(cast("Mapping[ToolSelector, V]", by))
        if not set(table) - {EVERY_TOOL}:
            return table
        bindings, known = self.compiled(UNPREPARED), self.known_tools()
        require_known([one for one in table if not isinstance(one, str | Tagged)], bindings)
        if not known.sources:
            _require_bound(verb, table, bindings, known)
        return table


def _check_predicate(predicate: object) -> None:
    said = "filtered() takes a plain function of (binding), or names as include=… or exclude=…"
    if not callable(predicate) or iscoroutinefunction(predicate):
        raise DefinitionError(f"{said}, not {predicate!r}")
    try:
        signature(predicate).bind(None)
    except TypeError:
        raise DefinitionError(f"{said}; this one takes {signature(predicate)}") from None


def _told(kept: object) -> bool:
    """A predicate's answer; `DefinitionError` for an answer that is true whatever it says."""
    if isinstance(kept, str) or isawaitable(kept):
        raise DefinitionError(f"the function of filtered() returns True or False, not {kept!r}")
    return bool(kept)


def _several(chosen: ToolSelector | Iterable[ToolSelector]) -> Iterable[ToolSelector]:
    """The chosen selectors; a single one may be given by itself. A text would else be split into letters."""
    is_one = isinstance(chosen, str | type) or not isinstance(chosen, Iterable)
    return [cast("ToolSelector", chosen)] if is_one else cast("Iterable[ToolSelector]", chosen)


def _kept(binding: ToolBinding, keep: bool | None, *, by_default: bool = False) -> ToolBinding | None:
    return binding if (by_default if keep is None else keep) else None


def redescribed(binding: ToolBinding, text: str | None) -> ToolBinding:
    return binding if text is None else replace(binding, definition=binding.definition.described(text))


def require_known(selectors: Iterable[object], bindings: Iterable[ToolBinding]) -> None:
    selectors = list(selectors)
    table = {binding.name: binding for binding in bindings} if selectors else {}
    for selector in selectors:
        public_name_of(selector, table)


def _require_bound(
    verb: str, selectors: Iterable[ToolSelector], bindings: Iterable[ToolBinding], known: KnownTools
) -> None:
    uses = [use for one in selectors if (use := use_of(one, verb)) is not None]
    for missing in unbound(uses, ToolNames(bindings), known):
        if missing.kind == "unknown":
            near = f"; did you mean {' or '.join(missing.near)}?" if missing.near else ""
            raise UnknownToolError(missing.name, f" (in {verb}){near}")
        if missing.kind == "ambiguous":
            raise DefinitionError(str(missing))
        _log.warning("%s", in_log(missing))
