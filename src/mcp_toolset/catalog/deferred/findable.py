"""`FindableTools`: the tools that a caller may find, and why some cannot be called.

`HitIds` holds the ids of hits. The answers of `search_tools` and `resolve_tools` are here too.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import field, fields
from difflib import SequenceMatcher
from time import gmtime, strftime
from typing import Any, Final, Literal, cast

from mcp_toolset._records import dataclass
from mcp_toolset.catalog.deferred.preparing import mended, next_call, query_of, signature_of
from mcp_toolset.catalog.grants.access import AccessPolicy
from mcp_toolset.catalog.grants.ledger import GrantLedger, ToolGrant
from mcp_toolset.catalog.search.entry import DESCRIPTION_LINE, CatalogEntry, shortened
from mcp_toolset.catalog.search.index import SearchIndex
from mcp_toolset.tools.binding import MAX_NEAR
from mcp_toolset.tools.call import ToolContext
from mcp_toolset.tools.definition import ToolDefinition, mounted_name, prefix_from, public_name, qualified
from mcp_toolset.tools.result import encodable
from mcp_toolset.tools.source import STARTING, SourceStatus, ToolSource
from mcp_toolset.tools.toolset import chosen_id
from mcp_toolset.tools.view import ToolBinding

HitState = Literal["available", "listed", "offline", "changed", "filtered", "unauthorised"]
"""The present state of a found tool; a `listed` tool needs no grant."""


@dataclass(frozen=True, slots=True)
class Hit:
    """One tool in the answer of `search_tools`."""

    id: str  # the id for `resolve_tools`
    signature: str  # the public name, with the names of the parameters
    description: str  # one line
    state: HitState = "available"  # left out if it is `available`
    reason: str | None = None  # why the tool is not available, or how it is called
    retry_in: float | None = None  # seconds until another try makes sense
    score: float | None = None  # from 0 to 1; left out without a query


@dataclass(frozen=True, slots=True)
class Resolution:
    """The outcome for one id in the answer of `resolve_tools`."""

    id: str  # the id in the request
    status: Literal["granted", "not_available"]
    grant: str | None = None  # the handle for `call_tool` and `call_read_only_tool`
    expires_in: int | None = None  # seconds that the grant lasts
    reason: str | None = None  # why there is no grant, and what to do
    retry_in: float | None = None  # seconds until another try makes sense
    definition: dict[str, Any] | None = None
    stub: str | None = None  # the definition as a typed Python function, if stubs were requested


MAX_OTHERS: Final = 5  # things beside tools in one answer of `search_tools`
SEARCH_AGAIN: Final = 5.0  # seconds after which a search may see the tools of a server that is starting


@dataclass(frozen=True, slots=True)
class Unavailable:
    """A server that is not ready; its tools may be missing among the hits."""

    server: str
    state: str
    reason: str
    retry_in: float | None = None

    @classmethod
    def of(cls, server: str, status: SourceStatus) -> Unavailable:
        """The status of a server; for one that is starting also when to search again."""
        again = SEARCH_AGAIN if status.is_starting else status.retry_in
        return cls(server, status.state, status.reason, again)

    @property
    def is_starting(self) -> bool:
        return self.state in STARTING


def servers_missing(away: Sequence[Unavailable]) -> str:
    """The text about servers whose tools a search could not see, and when to search again; empty for none."""
    starting = ", ".join(one.server for one in away if one.is_starting)
    down = ", ".join(one.server for one in away if not one.is_starting)
    verb = "are" if ", " in starting else "is"
    texts = [f"{starting} {verb} starting: search again in {SEARCH_AGAIN:g} s"] if starting else []
    if down:
        texts.append(f"{down} cannot be reached, so that more may be there")
    return "; ".join(texts)


Beside = Mapping[str, str]
"""Something that callers find beside tools; see `Extension.findable`."""


@dataclass(frozen=True, slots=True)
class OtherHit:
    """Something beside tools in the answer of `search_tools`."""

    kind: str
    name: str
    description: str  # one line
    address: str
    how: str  # how it is used
    server: str | None = None


class OtherIndex:
    """Searches what callers find beside tools; the index of the last things is kept."""

    def __init__(self) -> None:
        self._known: tuple[Sequence[Beside], SearchIndex] = ((), SearchIndex([]))

    def search(self, query: str, things: Sequence[Beside], server: str | None = None) -> list[OtherHit]:
        """The things that fit a query, the best first, at most `MAX_OTHERS`."""
        if self._known[0] != things:
            made = (
                ToolDefinition(thing["name"], f"{thing['kind']}: {thing['description']}", {"type": "object"})
                for thing in things
            )
            named = enumerate(made)
            index = SearchIndex([CatalogEntry(one, str(number)) for number, one in named])
            self._known = (things, index)
        hits = self._known[1].search(query, limit=len(things) or 1)
        matching = [things[int(hit.name)] for hit in hits if hit.fits]
        return [other_hit(one) for one in matching if server in (None, one["server"])][:MAX_OTHERS]


def other_hit(one: Beside) -> OtherHit:
    line = shortened(one["description"], DESCRIPTION_LINE)
    return OtherHit(one["kind"], one["name"], line, one["address"], one["how"], one["server"] or None)


@dataclass(frozen=True, slots=True)
class SearchAnswer:
    """The answer of `search_tools`."""

    hits: list[Hit]
    others: list[OtherHit] = field(default_factory=list[OtherHit])
    resolved: list[Resolution] = field(default_factory=list[Resolution])
    unavailable: list[Unavailable] = field(default_factory=list[Unavailable])
    note: str | None = None


Answer = Hit | OtherHit | Resolution | Unavailable | SearchAnswer


def answer_json(answer: Answer) -> dict[str, Any]:
    """An answer as JSON, without empty members and without `available`, the usual state."""
    found: dict[str, Any] = {}
    for each in fields(answer):
        value = getattr(answer, each.name)
        if isinstance(value, list):
            value = [answer_json(one) for one in cast("list[Answer]", value)]
        if each.name == "hits" or value not in (None, [], "available"):
            found[each.name] = value
    return found


LONGEST_ID: Final = 200  # the largest length of an id in a catalog
_LEAST_SIMILARITY: Final = 0.6  # from 0 to 1; a less similar id is not suggested for an unknown one


@dataclass(frozen=True, slots=True)
class _ToolIds:
    """The ids of one tool: `short` unless another tool has it too, else `full`."""

    binding: ToolBinding
    short: str
    full: str

    @property
    def is_local(self) -> bool:
        return not self.binding.source

    def is_of(self, binding: ToolBinding) -> bool:
        """True if these are the ids of this tool, and not of an earlier tool of its name."""
        known = self.binding
        return (known.source, known.tool_id, known.definition.name) == (
            binding.source,
            binding.tool_id,
            binding.definition.name,
        ) and known.origin is binding.origin


class HitIds:
    """The ids of one catalog's tools; a hit has the shortest id that names no other tool."""

    def __init__(self) -> None:
        self._known: dict[str, _ToolIds] = {}
        self._names: dict[str, str | frozenset[str]] = {}  # nearly every id names one tool

    def add(self, bindings: Iterable[ToolBinding]) -> None:
        for binding in bindings:
            known = self._known.get(binding.name)
            if known is not None and known.is_of(binding):
                continue
            self.remove([binding.name])
            known = self._known[binding.name] = _ids_of(binding)
            for id in (known.short, known.full):
                self._name(id, self._named(id) | {binding.name})

    def remove(self, names: Iterable[str]) -> None:
        for name in names:
            known = self._known.pop(name, None)
            for id in () if known is None else {known.short, known.full}:
                self._name(id, self._named(id) - {name})

    def id_of(self, name: str) -> str:
        """The shortest id that names only this tool."""
        known = self._known[name]
        return next((id for id in (known.short, known.full) if self._having(id) == {name}), name)

    def spellings(self, name: str) -> set[str]:
        """The public name and the ids of a tool."""
        known = self._known[name]
        return {name, known.short, known.full}

    def named(self, text: str, sees: Callable[[str], bool] = lambda name: True) -> list[str]:
        """The public names of the tools that have an id, among those that a caller `sees`."""
        having = sorted(name for name in self._having(text) if sees(name))
        # Local tools have names that the program chose: such a name wins over equal ids of other tools.
        if text in having and all(self._known[name].is_local for name in having):
            return [text]
        return having

    def near(self, text: str, names: Iterable[str]) -> list[str]:
        """The ids of tools with names like a text, the most similar first."""
        alike = SequenceMatcher(b=text.casefold(), autojunk=False)
        scored: list[tuple[float, str]] = []
        for name in names:
            for spelling in self.spellings(name):
                alike.set_seq1(spelling.casefold())
                # The quick bounds cost a tenth of the exact ratio, and most names are unlike.
                if alike.real_quick_ratio() < _LEAST_SIMILARITY or alike.quick_ratio() < _LEAST_SIMILARITY:
                    continue
                if (ratio := alike.ratio()) >= _LEAST_SIMILARITY:
                    scored.append((-ratio, self.id_of(name)))
        return list(dict.fromkeys(id for _, id in sorted(scored)))[:MAX_NEAR]

    def _having(self, text: str) -> set[str]:
        """The public names of the tools that have this id or name."""
        return {*self._named(text), *({text} & self._known.keys())}

    def _named(self, id: str) -> frozenset[str]:
        names = self._names.get(id, frozenset[str]())
        return frozenset((names,)) if isinstance(names, str) else names

    def _name(self, id: str, names: frozenset[str]) -> None:
        if names:
            self._names[id] = names if len(names) > 1 else next(iter(names))
        else:
            self._names.pop(id, None)


def _ids_of(binding: ToolBinding) -> _ToolIds:
    own = binding.own_id
    if own.rstrip("@").endswith(f"@{binding.asked or binding.name}"):
        # One tool is there under several names, so only its names can be ids.
        return _ToolIds(binding, binding.name, binding.name)
    if binding.source:
        short = mounted_name(prefix_from(binding.source), own)
        return _ToolIds(binding, short, qualified(short, f"{binding.source}\n{own}"))
    return _ToolIds(binding, _usable(chosen_id(binding) or binding.definition.name), _usable(own))


def _usable(id: str) -> str:
    return encodable(id) if len(id) <= LONGEST_ID else public_name(id)


MAX_GROUPS: Final = 64  # groups of callers whose hidden tools are remembered


class FindableTools:
    """The deferred tools, quarantined ones included, and the reason why one cannot be called."""

    def __init__(
        self,
        ledger: GrantLedger,
        policy: AccessPolicy,
        sources: Callable[[], Mapping[str, ToolSource]],
        listed_to: Callable[[ToolContext], Collection[str]] = lambda context: (),
    ) -> None:
        self.tools: dict[str, ToolBinding] = {}  # those that can be resolved and called, by public name
        self.held: dict[str, tuple[ToolBinding, str]] = {}  # quarantined tools, each with the reason
        self.listed: dict[str, ToolBinding] = {}  # listed tools, which need no grant
        self.ids = HitIds()  # the ids by which tools are found
        self.policy = policy  # who may use which tool
        self._ledger = ledger
        self._sources = sources
        self._listed_to = listed_to
        self._held_since: dict[str, str] = {}
        self._hidden: dict[Hashable, frozenset[str]] = {}
        self._is_personal = False

    def changed(
        self,
        tools: dict[str, ToolBinding],
        held: dict[str, tuple[ToolBinding, str]],
        listed: dict[str, ToolBinding],
    ) -> None:
        """Take the tools of a catalog that has changed."""
        now = strftime("%Y-%m-%d %H:%M UTC", gmtime())
        self._held_since = {name: self._held_since.get(name, now) for name in held}
        self.tools, self.listed = tools, listed
        self.held = {
            name: (tool, f"held since {self._held_since[name]}: {reason}; a person must accept it")
            for name, (tool, reason) in held.items()
        }
        self._hidden = {}
        self._is_personal = any(tool.personal is not None for tool in self.every().values())

    def every(self) -> dict[str, ToolBinding]:
        """All deferred tools, quarantined ones included."""
        return self.tools | {name: binding for name, (binding, _) in self.held.items()}

    def findable(self) -> dict[str, ToolBinding]:
        """All tools that a search may find, listed ones included."""
        return self.every() | self.listed

    def hidden(self, context: ToolContext) -> frozenset[str]:
        """The names of the tools that a caller may not find."""
        hidden = self._hidden_deferred(context)
        return hidden | (self.listed.keys() - set(self._listed_to(context))) if self.listed else hidden

    def may_hide(self, context: ToolContext) -> bool:
        """True if some tool may be hidden from a caller."""
        return self._hides_by_caller or self.policy.visible.group(context.identity) is not None

    @property
    def _hides_by_caller(self) -> bool:
        return bool(self.policy) or self._is_personal

    def _hidden_deferred(self, context: ToolContext) -> frozenset[str]:
        if self._hides_by_caller:
            return self.policy.hidden(self.every(), context)
        group = self.policy.visible.group(context.identity)
        if group is None:
            return frozenset()
        if group not in self._hidden:
            if len(self._hidden) >= MAX_GROUPS:
                self._hidden = {}
            self._hidden[group] = self.policy.hidden(self.every(), context)
        return self._hidden[group]

    def found(self, name: str) -> ToolBinding:
        """The tool with a public name, in whatever state it is."""
        return self.held[name][0] if name in self.held else self.tools.get(name) or self.listed[name]

    def key_of(self, name: str) -> str:
        """The key that stays with a tool when its public name changes: its source and its own id."""
        return tool_key(self.found(name))

    def id_of(self, name: str) -> str:
        """The id of a tool in hits; of a listed tool its name."""
        return name if name in self.listed else self.ids.id_of(name)

    def knows(self, id: str, context: ToolContext) -> bool:
        """True if an id names a tool for a caller."""
        return bool(self.named(id, context)) or self.is_listed(id, context)

    def is_listed(self, name: str, context: ToolContext) -> bool:
        return name in self.listed and name in self._listed_to(context)

    def direct(self, name: str) -> str:
        """The text for a listed tool: call it by its name."""
        tool = self.listed[name]
        _, arguments = mended(tool.definition.input_schema, tool.arguments, {})
        text = f"{name} is listed and needs no grant; call it by its name"
        return f"{text}\n{signature_of(tool.definition, name)}\n{next_call(name, arguments)}"

    def why_held(self, grant: ToolGrant, context: ToolContext) -> str:
        """Why a granted tool is quarantined now; empty if it is not, or if it is hidden from the caller."""
        for tool, reason in self.held.values():
            same = (tool.source, tool.own_id) == (grant.source, grant.tool)
            if same and not self.policy.hides(tool, context):
                return _held_text(grant.name, reason)
        return ""

    def why_held_now(self, id: str, context: ToolContext) -> str:
        """Like `why_held`, for an id without a grant."""
        held = [self.held[name][1] for name in self.named(id, context) if name in self.held]
        return _held_text(id, held[0]) if len(held) == 1 else ""

    def servers(self, hidden: frozenset[str], context: ToolContext) -> list[str]:
        """The servers with tools that a caller may see, in the order of their mounts."""
        seen = {tool.source for name, tool in self.findable().items() if name not in hidden}
        away = {one.server for one in self.unavailable(None, hidden, context)}
        mounted = [name for name in self._sources() if name in seen or name in away]
        return [*mounted, *sorted(seen - {"", *mounted})]

    def named(self, id: str, context: ToolContext) -> list[str]:
        """The public names of the tools that an id names for a caller."""
        return self.ids.named(id, lambda name: not self.policy.hides(self.found(name), context))

    def standing(
        self, binding: ToolBinding, grant: ToolGrant | None, context: ToolContext
    ) -> tuple[HitState, str | None, float | None]:
        """The state of a tool for a caller, the reason for it, and the seconds until another try."""
        if binding.name in self.listed:
            return "listed", "call it by its name", None
        withheld = self.policy.withheld(binding, context)
        if withheld is not None:
            return withheld.state, withheld.reason, withheld.retry_in
        state = self.state(binding)
        moved = "" if grant is None or state[1] else self._ledger.moved(grant, binding)
        return ("changed", f"{moved}; resolve it again", None) if moved else state

    def state(self, binding: ToolBinding) -> tuple[HitState, str | None, float | None]:
        """Like `standing`, without the caller's policy and grants."""
        if binding.name in self.held:
            return "changed", self.held[binding.name][1], None
        source = self._sources().get(binding.source)
        # A tool of a server that is starting can be called: the call waits for the server.
        if source is not None and not ((status := source.status).is_up or status.state == "starting"):
            reason = f": {status.reason}" if status.reason else ""
            return "offline", f"{binding.source} is {status.state}{reason}", status.retry_in
        return "available", None, None

    def unavailable(
        self, server: str | None, hidden: frozenset[str], context: ToolContext
    ) -> list[Unavailable]:
        """The servers whose tools a search could not see."""
        # A server is hidden from the caller if all its known tools are.
        hides = self.policy.visible.hides_server
        asked = None if server is None else server.casefold()
        secret = {self.found(name).source for name in hidden}
        if secret:
            secret -= {tool.source for name, tool in self.findable().items() if name not in hidden}
        return [
            Unavailable.of(name, status)
            for name, source in self._sources().items()
            if not (status := source.status).is_up
            and asked in (None, name.casefold())
            and name not in secret
            and not hides(name, context.identity)
        ]


def tool_key(tool: ToolBinding) -> str:
    return f"{tool.source}\n{tool.own_id}"


def _held_text(name: str, reason: str) -> str:
    following = next_call("search_tools", {"query": query_of(name)})
    return f"{name} is {reason}. Use another tool until then.\n{following}"
