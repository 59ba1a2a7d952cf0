"""`Policy`: which tools exist for a caller, which need an approval; `Verdict`: what it says of one tool."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final, Self, cast

from mcp_toolset.errors import DefinitionError
from mcp_toolset.security.policy.patterns import SectionRules, ToolFacts, hints_of, is_caller, split_hint
from mcp_toolset.security.policy.sections import Kind, Permissions, Section
from mcp_toolset.tools.binding.binding import DEFERRED_CATALOG, ToolBinding
from mcp_toolset.tools.core.definition import ToolDefinition
from mcp_toolset.tools.core.identity import Identity

_VERDICTS: Final = 65_536
"""Verdicts that are remembered: one for each tool and each group of callers."""

_CALLERS: Final = 4096
"""Callers whose group is remembered."""

_DEFINITIONS: Final = 4096
"""Definitions whose hints are remembered."""

Group = tuple[int, ...]
"""The sections that are for a caller: callers of one group get the same verdicts."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a policy says of one tool and one caller.

    Attributes:
        kind: `allow`; `ask` for an approval; `deny`: the tool does not exist for the caller.
        rule: The rule that decided, with its place; empty if no rule is about the tool.
    """

    kind: Kind
    rule: str = ""


_ALLOWED: Final = Verdict("allow")
_NO_HINTS: Final[frozenset[str]] = frozenset()


@dataclass(frozen=True, slots=True)
class Look:
    """A section that was asked about a tool.

    Attributes:
        section: The section.
        kind: What it decides; `None` if none of its patterns fits.
        pattern: The pattern that fits.
    """

    section: Section
    kind: Kind | None = None
    pattern: str = ""


class Policy:
    """Which tools callers may know of and call. A policy never changes; a server can be given another one.

    The sections for the caller are asked first, in order, then the section of the tool's server, then the
    general one. The first with a pattern that fits the tool decides; within it, `deny` outweighs `ask`, and
    `ask` outweighs `allow`. A tool that no section is about is denied if one of them has an `allow` list, and
    allowed otherwise. See docs/policies.md.
    """

    __slots__ = (
        "_callers",
        "_decided",
        "_general",
        "_grouped",
        "_hinted",
        "_hints",
        "_servers",
        "permissions",
    )

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
        """Make a policy of patterns: of public names, of `server/tool`, of hints such as `destructive:*`.

        Args:
            allow: The tools that are allowed; if given, all others are denied.
            ask: The tools that need an approval.
            deny: The tools that do not exist for the caller.
            principals: Rules for single callers, by name, pattern or key; asked before `roles`.
            roles: Rules for callers with a role; asked before `scopes`.
            scopes: Rules for callers with a scope.
            servers: Rules for the tools of a mounted server, by its name.

        Raises:
            DefinitionError: a pattern names nothing, or a rule for some callers has such rules itself.
        """
        callers = [
            replace(_plain(one, f"{kind}[{name!r}]"), **{kind: (name,)})
            for kind, some in (("principals", principals), ("roles", roles), ("scopes", scopes))
            for name, one in (some or {}).items()
        ]
        allowed = None if allow is None else _texts(allow, "allow")
        general = Section("policy", allowed, _texts(ask, "ask"), _texts(deny, "deny"))
        of_servers = {name: _plain(one, f"servers[{name!r}]") for name, one in (servers or {}).items()}
        self._compile(Permissions(general, of_servers, tuple(callers)))

    @classmethod
    def of(cls, permissions: Permissions) -> Self:
        """The policy of sections.

        Raises:
            DefinitionError: a pattern names nothing.
        """
        policy = cls.__new__(cls)
        policy._compile(permissions)
        return policy

    def _compile(self, permissions: Permissions) -> None:
        self.permissions = permissions
        self._general = SectionRules(permissions.general)
        self._servers = {name: SectionRules(one, of_server=True) for name, one in permissions.servers.items()}
        self._callers = [SectionRules(one) for one in permissions.callers]
        self._hinted = any(
            split_hint(pattern)[0] for section in permissions.sections() for _, pattern in section.patterns()
        )
        self._hints = lru_cache(_DEFINITIONS)(_hints_of)
        self._grouped = lru_cache(_CALLERS)(self._matching)
        self._decided = lru_cache(_VERDICTS)(self._verdict)

    def __bool__(self) -> bool:
        """Whether it says anything."""
        return bool(self.permissions)

    @property
    def varies(self) -> bool:
        """Whether it says something about some callers only, so that lists differ by caller."""
        return bool(self._callers)

    def group(self, identity: Identity | None) -> Group:
        """The group of a caller: all callers of a group get the same verdicts."""
        return self._grouped(identity) if self._callers and identity is not None else ()

    def decide(self, binding: ToolBinding, identity: Identity | None) -> Verdict:
        """What the policy says of a tool and a caller; without a caller, the rules for every caller hold.

        The tools of a deferred catalog itself (`search_tools`, …) are allowed: rules are for what they find.
        """
        if binding.place == DEFERRED_CATALOG and not binding.source:
            return _ALLOWED
        return self._decided(self.group(identity), self.facts(binding))

    def facts(self, binding: ToolBinding) -> ToolFacts:
        """What the patterns of this policy look at of a tool."""
        definition = binding.definition
        hints = self._hints(definition) if self._hinted else _NO_HINTS
        return ToolFacts(binding.name, binding.asked, binding.source, definition.name, hints)

    def decide_facts(self, tool: ToolFacts, group: Group) -> Verdict:
        """The same about a tool of which no more is known than this."""
        return self._decided(group, tool)

    def looks(self, tool: ToolFacts, group: Group) -> Iterator[Look]:
        """The sections that are asked about a tool, in order, up to the one that decides."""
        for rules in self._sections(group, tool.server):
            found = rules.first(tool)
            kind, pattern = found or (None, "")
            yield Look(rules.section, kind, pattern)
            if found is not None:
                return

    def _matching(self, identity: Identity) -> Group:
        return tuple(number for number, one in enumerate(self._callers) if _is_for(one.section, identity))

    def _sections(self, group: Group, server: str) -> Iterator[SectionRules]:
        """The sections for the tools of a server and the callers of a group, in order."""
        yield from (self._callers[number] for number in group)
        if server in self._servers:
            yield self._servers[server]
        yield self._general

    def _verdict(self, group: Group, tool: ToolFacts) -> Verdict:
        *before, last = self.looks(tool, group)
        if last.kind is not None:
            return Verdict(last.kind, f"{last.section.place}.{last.kind}: {last.pattern}")
        closing = next((look.section for look in (*before, last) if look.section.allow is not None), None)
        if closing is None:
            return _ALLOWED
        return Verdict("deny", f"{closing.place}.allow: a list that the tool is not in")


def _hints_of(definition: ToolDefinition) -> frozenset[str]:
    return hints_of(definition.annotations)


def _is_for(section: Section, identity: Identity) -> bool:
    """Whether a section is for a caller: each kind that it names has to fit."""
    wanted, name, key = section.principals, identity.name, identity.key
    return (
        (wanted is None or any(is_caller(one, name, key) for one in wanted))
        and (section.roles is None or not identity.roles.isdisjoint(section.roles))
        and (section.scopes is None or not identity.scopes.isdisjoint(section.scopes))
    )


def _plain(policy: Policy, place: str) -> Section:
    """The section of a policy that is nested in another one."""
    if policy.permissions.callers or policy.permissions.servers:
        raise DefinitionError(
            f"policy.{place}: rules for some callers have no such rules themselves; give allow, ask and deny"
        )
    return replace(policy.permissions.general, place=f"policy.{place}")


def _texts(patterns: Sequence[str], kind: str) -> tuple[str, ...]:
    if isinstance(patterns, str) or not all(
        isinstance(one, str) for one in cast("Sequence[object]", patterns)
    ):
        raise DefinitionError(f"policy.{kind} takes a list of patterns, not {patterns!r}")
    return tuple(patterns)
