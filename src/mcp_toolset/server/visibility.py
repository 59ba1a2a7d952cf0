"""`Visibility`: the current policy of a server, and the tools that it hides from each caller."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from mcp_toolset._records import replace
from mcp_toolset._rule import slip_in
from mcp_toolset.calls.middleware import Bounding, Guard, NamesPatterns
from mcp_toolset.calls.rules import Rules
from mcp_toolset.catalog.grants.access import Visible
from mcp_toolset.catalog.registry.state import RegistryEntry
from mcp_toolset.extending.joined import Extensions
from mcp_toolset.server.mounts import toolsets_in
from mcp_toolset.tools.binding import MAX_NEAR, NameUse
from mcp_toolset.tools.call import Identity
from mcp_toolset.tools.toolset import Toolset
from mcp_toolset.tools.view import KnownTools, ToolBinding, UnboundName

if TYPE_CHECKING:
    from mcp_toolset.security.policy.patterns import Permissions
    from mcp_toolset.security.policy.policy import Group, Policy


class CallGuards:
    """The guards of one server: they are the same objects for as long as nothing that they apply changes."""

    def __init__(self, served: Callable[[], str], extensions: Extensions) -> None:
        self._served = served
        self._extensions = extensions
        self._policy: tuple[Policy | None, tuple[Guard, ...]] = (None, ())
        self._known: tuple[Guard, ...] = ()

    def of(self, policy: Policy | None) -> tuple[Guard, ...]:
        """What applies a policy, and the guards of extensions."""
        if self._policy[0] is not policy:
            self._policy = (policy, () if policy is None else (self._of_policy(policy),))
        found = (*self._policy[1], *self._extensions.guards())
        if len(found) != len(self._known) or any(a is not b for a, b in zip(found, self._known, strict=True)):
            self._known = found
        return self._known

    def with_patterns(self) -> list[NamesPatterns]:
        return [one for one in self._extensions.guards() if isinstance(one, NamesPatterns)]

    def _of_policy(self, policy: Policy) -> Guard:
        if (found := self._extensions.guard_of(policy)) is not None:
            return found
        from mcp_toolset.calls.permissions import AskingGuard

        return AskingGuard(policy, served=self._served(), record=self._extensions.record)


@runtime_checkable
class Permitting(Protocol):
    """A toolset that says who may use what, such as a configuration's."""

    @property
    def stated_permissions(self) -> Permissions: ...


def permissions_in(toolset: Toolset) -> Iterator[Permissions]:
    return (each.stated_permissions for each in toolsets_in(toolset) if isinstance(each, Permitting))


class Sight:
    """One policy over one set of tools: which servers are left for a caller."""

    def __init__(
        self, policy: Policy | None = None, tools: Iterable[ToolBinding] = (), before: Sight | None = None
    ) -> None:
        self.policy = policy  # `None` where every caller may know of everything
        self._tools: dict[str, list[ToolBinding]] = {}
        self._secret: dict[tuple[Group, str], bool] = {}
        if policy is not None:
            for binding in tools:
                self._tools.setdefault(binding.source, []).append(binding)
            self._tools = {**(before._tools if before is not None else {}), **self._tools}

    def hides_server(self, name: str, identity: Identity | None) -> bool:
        """True if a mounted server does not exist for a caller: not one of its tools does."""
        # A server that lists nothing now is judged by what it listed before. Of one that never did, the rules
        # for all its tools (`*`, `server/*`) decide.
        policy = self.policy
        if policy is None or not name:
            return False
        key = (policy.group(identity), name)
        known = self._secret.get(key)
        if known is None:
            tools = [policy.facts(tool) for tool in self._tools.get(name, ())] or [policy.any_tool_of(name)]
            denied = (policy.decide_facts(tool, key[0]).kind == "deny" for tool in tools)
            known = self._secret[key] = all(denied)
        return known

    def differs(self, before: Sight, names: Iterable[str], identity: Identity | None) -> bool:
        return any(self.hides_server(name, identity) != before.hides_server(name, identity) for name in names)


class Visibility(Visible):
    """What callers may know of, by the policy of the program and those of configurations together."""

    def __init__(
        self, own: Policy | None, toolsets: Callable[[], Iterable[Toolset]], rules: Rules, guards: CallGuards
    ) -> None:
        self._rules = rules
        self._guards = guards
        self._guarded: tuple[tuple[Guard, ...], Rules] = ((), rules)
        self._own = () if own is None else own.permissions
        self._toolsets = toolsets
        self._compiled: tuple[tuple[Permissions, ...], Policy | None] = ((), None)
        self.sight = Sight(self.wanted())  # what holds now; replaced by each compilation

    @property
    def policy(self) -> Policy | None:
        return self.sight.policy

    @property
    def varies(self) -> bool:
        return self.policy is not None and self.policy.varies

    def wanted(self) -> Policy | None:
        """The policy that is stated now: of several, the strictest verdict counts."""
        found = (one for toolset in self._toolsets() for one in permissions_in(toolset))
        stated = tuple(one for one in (*self._own, *found) if one)
        if stated != self._compiled[0]:
            # Few servers have a policy, and all of them start.
            from mcp_toolset.security.policy.policy import Policy

            self._compiled = (stated, Policy.of(*stated) if stated else None)
        return self._compiled[1]

    def rules(self) -> Rules:
        guards = self._guards.of(self.policy)
        if self._guarded[0] is not guards:
            self._guarded = (guards, replace(self._rules, guards=(*self._rules.guards, *guards)))
        return self._guarded[1]

    def is_for_some(self) -> bool:
        """True if a policy or guards of the program, or of what it serves, are for some callers only."""
        every = [tool for toolset in self._toolsets() for tool in toolset.everything()]
        carried = {id(one.rules): one.rules for tool in every for one in tool.carried}
        guards = [guard for rules in (self.rules(), *carried.values()) for guard in rules.guards]
        wanted = self.wanted()
        return (wanted is not None and wanted.varies) or any(getattr(one, "varies", False) for one in guards)

    def limits_of(self, binding: ToolBinding, identity: Identity | None) -> list[Any]:
        guards = self.rules().guards
        return [one for each in guards if isinstance(each, Bounding) for one in each.of(binding, identity)]

    def unused_limits(self, known: KnownTools, tools: Iterable[ToolBinding]) -> Iterator[UnboundName]:
        if not (guards := self._guards.with_patterns()):
            return
        # Few servers have such guards.
        from mcp_toolset.security.policy.policy import facts_of

        tools = list(tools)
        public = {fact.own if fact.server else fact.name: fact.name for fact in map(facts_of, tools)}
        for one in guards:
            for place, pattern in one.unused(tools):
                use = NameUse(pattern, place)
                near = (public[pattern],) if pattern in public else ()
                yield known.missing(
                    use, near or (slip_in(pattern, public.values()) if use.is_pattern else ())
                )

    def group(self, identity: Identity | None) -> object:
        return None if self.policy is None else (self.policy, self.policy.group(identity))

    def hides(self, binding: ToolBinding, identity: Identity | None) -> bool:
        return self.policy is not None and self.policy.decide(binding, identity).kind == "deny"

    def hides_server(self, name: str, identity: Identity | None) -> bool:
        return self.sight.hides_server(name, identity)

    def hides_absent(self, entry: RegistryEntry, identity: Identity | None) -> bool:
        if self.policy is None:
            return False
        facts = self.policy.remembered(entry.name, entry.asked, entry.source, entry.id)
        return self.policy.decide_facts(facts, self.policy.group(identity)).kind == "deny"


def unused_patterns(policy: Policy, known: KnownTools, tools: Iterable[ToolBinding]) -> list[UnboundName]:
    """The patterns of a policy that fit none of some tools, nor any tool that is known besides."""
    # Imported here, because only a policy needs it.
    from difflib import get_close_matches

    from mcp_toolset.security.policy.patterns import fault_of_server

    facts = {policy.facts(tool): None for tool in (*tools, *known.everything())}
    names = {name.lower(): name for fact in facts for name in fact.names()}
    servers = [source.source_name for source in known.sources]
    found: list[UnboundName] = []
    for place, pattern in policy.unused(facts):
        plain = pattern.rpartition(":")[2]
        kind = "pattern" if NameUse(pattern, place).is_pattern else "unknown"
        if kind == "pattern":
            told = tuple(slip_in(plain.rpartition("/")[2], names.values()))
        else:
            told = tuple(names[one] for one in get_close_matches(plain.lower(), names, MAX_NEAR))
        if place.startswith("policy") and fault_of_server(pattern, servers) is not None:
            found.append(UnboundName(pattern, place, (), kind="server"))
        else:
            found.append(UnboundName(pattern, place, told, known.waiting, kind, starting=known.starting))
    # A file may have rules for a server that it disables, and names its servers itself.
    sections = (one for stated in policy.permissions for one in stated.servers.items())
    for name, section in sections:
        if name not in servers and section.place.startswith("policy"):
            near = tuple(get_close_matches(name, servers))
            found.append(UnboundName(name, "policy.servers", near, kind="server"))
    return found
