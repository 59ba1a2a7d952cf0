"""`Policy`: which tools exist for a caller, which need an approval; `Verdict`: what it says of one tool."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final, Self, cast

from mcp_toolset._records import dataclass, replace
from mcp_toolset._rule import Rule
from mcp_toolset.errors import DefinitionError
from mcp_toolset.security.patterns import (
    KINDS,
    Caller,
    Kind,
    Permissions,
    Section,
    SectionRules,
    ToolFacts,
    asked_before,
    hidden_rules,
    hints_of,
    is_for,
    rule_hidden_by_callers,
    split_hint,
)
from mcp_toolset.tools.binding import DEFERRED_CATALOG, EVERY_TOOL, ToolBinding
from mcp_toolset.tools.call import Identity
from mcp_toolset.tools.definition import ToolDefinition

_VERDICTS: Final = 65_536
"""Verdicts that are remembered: one for each tool and each group of callers."""

_CALLERS: Final = 4096
"""Callers whose group is remembered."""

_DEFINITIONS: Final = 4096
"""Definitions whose hints are remembered."""

Group = tuple[tuple[int, int], ...]
"""The sections that are for a caller, by policy and number: callers of one group get the same verdicts."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The decision of a policy about one tool and one caller.

    Attributes:
        kind: `allow`; `ask` for an approval; `deny`: the tool does not exist for the caller.
        rule: The rule that decided, with its place; empty if no rule matches the tool.
    """

    kind: Kind
    rule: str = ""


_ALLOWED: Final = Verdict("allow")
_NO_HINTS: Final[frozenset[str]] = frozenset()


@dataclass(frozen=True, slots=True)
class Look:
    """A section that was asked about a tool."""

    section: Section
    kind: Kind | None = None  # what it decides; `None` if none of its patterns fits
    pattern: str = ""


class Policy(Rule):
    """The tools that callers may see and call. A policy is immutable; a server can get another policy.

    The sections for the caller are checked first, in order, then the section of the tool's server, then the
    general section. The first section with a pattern for the tool decides; within it, `deny` wins over `ask`,
    and `ask` wins over `allow`. If no section has a pattern for the tool, the tool is denied if a checked
    section has an `allow` list, and allowed otherwise. See docs/policies.md.

    Attributes:
        permissions: Its rules as data.
        varies: True if it has rules for some callers only, so that lists differ by caller.
    """

    _decides = ("decide", "decide_facts", "facts", "group", "looks", "permissions", "varies")

    __slots__ = ("_chains", "_decided", "_grouped", "_hinted", "_hints", "permissions", "varies")

    def __init__(
        self,
        *,
        allow: Sequence[str] | None = None,
        ask: Sequence[str] = (),
        deny: Sequence[str] = (),
        principals: Mapping[str, Policy] | None = None,
        roles: Mapping[str, Policy] | None = None,
        scopes: Mapping[str, Policy] | None = None,
        servers: Mapping[str, Policy] | None = None,
    ) -> None:
        """Make a policy of patterns: names, `server/tool`, hints (`destructive:*`) and tags (`tag:money`).

        Args:
            allow: The tools that are allowed; if given, all others are denied.
            ask: The tools that need an approval.
            deny: The tools that do not exist for the caller.
            principals: Rules for single callers, by name, pattern or key; checked before `roles`.
            roles: Rules for callers with a role; checked before `scopes`.
            scopes: Rules for callers with a scope.
            servers: Rules for the tools of a mounted server, by its name.

        Raises:
            DefinitionError: a pattern names nothing, or a rule for some callers has such rules itself.
        """
        for kind, some in (
            ("principals", principals),
            ("roles", roles),
            ("scopes", scopes),
            ("servers", servers),
        ):
            if not isinstance(cast("object", some), Mapping | None):
                raise DefinitionError(
                    f'policy.{kind} takes policies by name, {{"x": Policy(…)}}, not {some!r}'
                )
        callers = [
            replace(_plain(one, f"{kind}[{name!r}]"), **{kind: (name,)})
            for kind, some in (("principals", principals), ("roles", roles), ("scopes", scopes))
            for name, one in (some or {}).items()
        ]
        allowed = None if allow is None else _texts(allow, "allow")
        general = Section("policy", allowed, _texts(ask, "ask"), _texts(deny, "deny"))
        of_servers = {
            name: _plain(section, f"servers[{name!r}]") for name, section in (servers or {}).items()
        }
        stated = Permissions(general, of_servers, tuple(callers))
        for rule, after, before in hidden_rules(stated):
            raise DefinitionError(
                f"{after.place}.{rule.kind}: {rule.pattern!r} never applies, as {before.place}.allow is "
                f"asked before it and has {rule.wide!r}: write it into that policy, or in front of it"
            )
        self._compile(stated)

    def unreached(self, callers: Sequence[Caller]) -> Iterator[str]:
        """Messages on rules that apply to none of some callers."""
        return (told for permission in self.permissions for told in _unreached(permission, callers))

    @classmethod
    def of(cls, *permissions: Permissions) -> Self:
        """The policy of sections; of several policies together, the strictest verdict counts.

        Raises:
            DefinitionError: a pattern names nothing.
        """
        policy = cls.__new__(cls)
        policy._compile(*permissions)
        return policy

    def _compile(self, *permissions: Permissions) -> None:
        self.permissions = permissions
        self._chains = tuple(map(_Chain, permissions))
        sections = [section for permission in permissions for section in permission.sections()]
        self._hinted = any(split_hint(text)[0] for section in sections for _, text in section.patterns())
        self.varies = any(one.callers for one in permissions)
        self._hints = lru_cache(_DEFINITIONS)(_hints_of)
        self._grouped = lru_cache(_CALLERS)(self._group_of)
        self._decided = lru_cache(_VERDICTS)(self._verdict)

    def __bool__(self) -> bool:
        return any(self.permissions)

    @property
    def is_taken(self) -> bool:
        """True if something that applies it has taken it, or it says nothing."""
        return super().is_taken or not self

    def group(self, identity: Identity | None) -> Group:
        """The group of a caller: all callers of a group get the same verdicts."""
        return self._grouped(identity) if self.varies and identity is not None else ()

    def decide(self, binding: ToolBinding, identity: Identity | None) -> Verdict:
        """The verdict about a tool and a caller; without a caller, the rules for every caller apply.

        The tools of a deferred catalog itself (`search_tools`, …) are allowed: rules are for what they find.
        """
        if binding.place == DEFERRED_CATALOG and not binding.source:
            return _ALLOWED
        return self._decided(self.group(identity), self.facts(binding))

    def chooses(self, binding: ToolBinding) -> bool:
        """True if the tool exists for every caller; for who asks once about a tool, as no verdict is kept."""
        hints = _hints_of(binding.definition) if self._hinted else _NO_HINTS
        return self._verdict((), _facts(binding, hints)).kind != "deny"

    def facts(self, binding: ToolBinding) -> ToolFacts:
        """The facts of a tool that the patterns of this policy look at."""
        return _facts(binding, self._hints(binding.definition) if self._hinted else _NO_HINTS)

    def any_tool_of(self, server: str) -> ToolFacts:
        """A tool of a server that fits the patterns for all of its tools (`*`, `server/*`) and no others."""
        return ToolFacts("", server=server, hints=hints_of(None))

    def remembered(self, name: str, asked: str, server: str, own: str) -> ToolFacts:
        """A tool of which nothing is known but its names."""
        return ToolFacts(name, asked, server, own, hints_of(None))

    def decide_facts(self, tool: ToolFacts, group: Group) -> Verdict:
        """The same about a tool of which no more is known than this."""
        return self._decided(group, tool)

    def looks(self, tool: ToolFacts, group: Group) -> Iterator[Look]:
        """The sections that are asked about a tool, in order: each policy up to the one that decides."""
        for number, chain in enumerate(self._chains):
            yield from chain.looks(tool, _numbers(group, number))

    def unused(self, tools: Iterable[ToolFacts]) -> Iterator[tuple[str, str]]:
        """The patterns that fit none of the tools, each with its place."""
        known = list(tools)
        for chain in self._chains:
            yield from chain.unused(known)

    def _group_of(self, identity: Identity) -> Group:
        every = (
            (number, one) for number, chain in enumerate(self._chains) for one in chain.matching(identity)
        )
        return tuple(every)

    def _verdict(self, group: Group, tool: ToolFacts) -> Verdict:
        every = [chain.verdict(tool, _numbers(group, number)) for number, chain in enumerate(self._chains)]
        return min(every, key=lambda verdict: KINDS.index(verdict.kind), default=_ALLOWED)


def _unreached(stated: Permissions, callers: Sequence[Caller]) -> Iterator[str]:
    """Messages on rules that apply to none of some callers."""
    others = (stated.general, *stated.servers.values())
    for section, before in asked_before(stated.callers, callers, others):
        if not before and section.restricts:
            yield f"{section.place} applies to nobody, as no token is meant"
        if (rule := rule_hidden_by_callers(section, before)) is not None:
            yield (
                f"{section.place}.{rule.kind}: {rule.pattern!r} never applies, as rules for each of these "
                f"tokens are asked before it and allow {rule.wide!r}"
            )


class _Chain:
    """The sections of one policy, compiled."""

    def __init__(self, permissions: Permissions) -> None:
        self._general = SectionRules(permissions.general)
        self._servers = {
            name: SectionRules(section, of_server=True) for name, section in permissions.servers.items()
        }
        self._callers = [SectionRules(section) for section in permissions.callers]

    def matching(self, identity: Identity) -> Iterator[int]:
        return (number for number, caller in enumerate(self._callers) if is_for(caller.section, identity))

    def _asked(self, tool: ToolFacts, callers: Iterable[int]) -> Iterator[SectionRules]:
        yield from (self._callers[number] for number in callers)
        if tool.server in self._servers:
            yield self._servers[tool.server]
        yield self._general

    def looks(self, tool: ToolFacts, callers: Iterable[int]) -> Iterator[Look]:
        for rules in self._asked(tool, callers):
            kind, pattern = rules.first(tool) or (None, "")
            yield Look(rules.section, kind, pattern)
            if kind is not None:
                return

    def verdict(self, tool: ToolFacts, callers: Iterable[int]) -> Verdict:
        callers = [*callers]
        *before, last = self.looks(tool, callers)
        if last.kind is None:
            closing = next((look.section for look in (*before, last) if look.section.allow is not None), None)
            if closing is not None:
                return Verdict("deny", f"{closing.place}.allow: a list that the tool is not in")
        elif last.kind != "allow":
            return Verdict(last.kind, f"{last.section.place}.{last.kind}: {last.pattern}")
        # A name that any server may give its tool asks for an approval, and loosens nothing.
        for rules, look in zip(self._asked(tool, callers), (*before, last), strict=False):
            if pattern := rules.asks_own(tool):
                return Verdict("ask", f"{look.section.place}.ask: {pattern}")
        if last.kind is None:
            return _ALLOWED
        return Verdict(last.kind, f"{last.section.place}.{last.kind}: {last.pattern}")

    def unused(self, tools: Sequence[ToolFacts]) -> Iterator[tuple[str, str]]:
        of_servers = (
            (rules, [tool for tool in tools if tool.server == name]) for name, rules in self._servers.items()
        )
        for rules, those in (*((one, tools) for one in (*self._callers, self._general)), *of_servers):
            for kind, pattern in rules.unused(those):
                if pattern != EVERY_TOOL:
                    yield f"{rules.section.place}.{kind}", pattern


def _numbers(group: Group, chain: int) -> Iterator[int]:
    return (number for of, number in group if of == chain)


def _facts(binding: ToolBinding, hints: frozenset[str]) -> ToolFacts:
    return ToolFacts(*binding.judged_names, binding.source, binding.definition.name, hints, binding.tags)


def _hints_of(definition: ToolDefinition) -> frozenset[str]:
    return hints_of(definition.annotations)


def _plain(policy: Policy, place: str) -> Section:
    if not isinstance(policy, Policy):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise DefinitionError(f"policy.{place} takes a Policy(allow=…, ask=…, deny=…), not {policy!r}")
    [stated] = policy.taken().permissions
    if stated.callers or stated.servers:
        raise DefinitionError(
            f"policy.{place}: rules for some callers have no such rules themselves; give allow, ask and deny"
        )
    return replace(stated.general, place=f"policy.{place}")


def _texts(patterns: Sequence[str], kind: str) -> tuple[str, ...]:
    # An iterator can be read once.
    is_list = isinstance(cast("object", patterns), Iterable) and not isinstance(patterns, str | Mapping)
    texts = tuple(cast("Sequence[object]", patterns)) if is_list else ()
    if not is_list or not all(isinstance(text, str) for text in texts):
        raise DefinitionError(f"policy.{kind} takes a list of patterns, not {patterns!r}")
    return cast("tuple[str, ...]", texts)


def facts_of(binding: ToolBinding) -> ToolFacts:
    definition = binding.definition
    hints = hints_of(definition.annotations)
    return ToolFacts(*binding.judged_names, binding.source, definition.name, hints, binding.tags)
