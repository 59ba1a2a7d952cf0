"""The parts of `DeferredCatalog`: hits of a search, resolutions, and the checks of grants.

`FindableTools` holds the tools that a caller may find, and why some cannot be called. `HitIds` holds the ids
of hits. `Resolver` answers `resolve_tools`. `GrantGate` checks the grant of every call, whether it
comes by `call_tool` or by the tool's name.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import field, fields
from difflib import SequenceMatcher
from functools import partial
from itertools import islice
from time import gmtime, strftime
from typing import Any, Final, Literal, cast

import anyio

from mcp_toolset._records import dataclass
from mcp_toolset.catalog.deferred.preparing import (
    HOLDERS,
    CallReading,
    explained,
    inner_readings,
    key_of,
    mended,
    next_call,
    plain,
    query_of,
    readings_of,
    signature_of,
)
from mcp_toolset.catalog.grants.access import AccessPolicy
from mcp_toolset.catalog.grants.ledger import GrantLedger, GrantRecord, ToolGrant, replay_key
from mcp_toolset.catalog.search.index import SearchIndex
from mcp_toolset.errors import CallError, GrantError, GrantStoreError, InvalidArgumentsError, UnknownToolError
from mcp_toolset.tools.argument_repair import repairs_of, with_repairs
from mcp_toolset.tools.binding import MAX_NEAR, HasContract, StoreMiss, loaded
from mcp_toolset.tools.call import ToolCall, ToolContext
from mcp_toolset.tools.definition import ToolDefinition, mounted_name, prefix_from, public_name, qualified
from mcp_toolset.tools.python_stub import python_stub
from mcp_toolset.tools.result import InputRequired, ToolResult, encodable
from mcp_toolset.tools.source import STARTING, SourceStatus, ToolSource
from mcp_toolset.tools.toolset import chosen_id
from mcp_toolset.tools.validation import SchemaCheck
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


@dataclass(frozen=True, slots=True)
class SearchAnswer:
    """The answer of `search_tools`."""

    hits: list[Hit]
    resolved: list[Resolution] = field(default_factory=list[Resolution])
    unavailable: list[Unavailable] = field(default_factory=list[Unavailable])
    note: str | None = None


Answer = Hit | Resolution | Unavailable | SearchAnswer


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
        self._names: dict[str, set[str]] = {}

    def add(self, bindings: Iterable[ToolBinding]) -> None:
        for binding in bindings:
            known = self._known.get(binding.name)
            if known is not None and known.is_of(binding):
                continue
            self.remove([binding.name])
            known = self._known[binding.name] = _ids_of(binding)
            for id in (known.short, known.full):
                self._names.setdefault(id, set()).add(binding.name)

    def remove(self, names: Iterable[str]) -> None:
        for name in names:
            known = self._known.pop(name, None)
            for id in () if known is None else {known.short, known.full}:
                self._names[id].discard(name)
                if not self._names[id]:
                    del self._names[id]

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
        found: list[tuple[float, str]] = []
        for name in names:
            for spelling in self.spellings(name):
                alike.set_seq1(spelling.casefold())
                # The quick bounds cost a tenth of the exact ratio, and most names are unlike.
                if min(alike.real_quick_ratio(), alike.quick_ratio()) < _LEAST_SIMILARITY:
                    continue
                if (ratio := alike.ratio()) >= _LEAST_SIMILARITY:
                    found.append((-ratio, self.id_of(name)))
        return list(dict.fromkeys(id for _, id in sorted(found)))[:MAX_NEAR]

    def _having(self, text: str) -> set[str]:
        """The public names of the tools that have this id or name."""
        return self._names.get(text, set[str]()) | ({text} & self._known.keys())


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


_UNNEEDED: Final = frozenset(("outputSchema", "execution", "icons", "_meta", "title"))
_SHOWN_HINTS: Final = ("readOnlyHint", "destructiveHint")
_EMPTY: Final[tuple[object, ...]] = (None, {}, [], "")
_MAPS: Final = ("properties", "$defs", "definitions")
_LISTS: Final = ("anyOf", "oneOf", "allOf")
_DEEPEST: Final = 16  # levels of a schema that are made compact; deeper ones are left unchanged


def compact(definition: Mapping[str, Any]) -> dict[str, Any]:
    """A definition without empty members, and without members that only programs read."""
    hints: Mapping[str, Any] = definition.get("annotations") or {}
    kept = {key: value for key, value in definition.items() if key not in _UNNEEDED}
    kept["annotations"] = {key: hints[key] for key in _SHOWN_HINTS if hints.get(key) is not None}
    kept["inputSchema"] = {
        key: value for key, value in _compact_schema(kept["inputSchema"], None, 0).items() if key != "title"
    }
    return {key: value for key, value in kept.items() if value not in _EMPTY}


def _compact_schema(schema: Mapping[str, Any], name: str | None, depth: int) -> dict[str, Any]:
    """A schema without its dialect, and without titles that only repeat the name of a property."""
    found: dict[str, Any] = {}
    for key, value in schema.items():
        if key == "$schema" or (key == "title" and _is_repeated(value, name)):
            continue
        if key in ("description", "required", "default") and value in (None, [], ""):
            continue
        found[key] = value if depth == _DEEPEST else _compact_member(key, value, name, depth + 1)
    return found


def _compact_member(key: str, value: Any, name: str | None, depth: int) -> Any:
    if key in _MAPS and isinstance(value, Mapping):
        table = cast("Mapping[str, Any]", value)
        return {each: _compact_value(part, each, depth) for each, part in table.items()}
    if key in _LISTS and isinstance(value, list | tuple):
        return [_compact_value(part, name, depth) for part in cast("list[Any]", value)]
    return _compact_value(value, name, depth) if key == "items" else value


def _compact_value(value: Any, name: str | None, depth: int) -> Any:
    return (
        _compact_schema(cast("Mapping[str, Any]", value), name, depth)
        if isinstance(value, Mapping)
        else value
    )


def _is_repeated(title: object, name: str | None) -> bool:
    if name is None or not isinstance(title, str):
        return False
    return title.replace(" ", "").casefold() == name.replace("_", "").casefold()


_NO_SUCH: Final = "no such tool; use the id of a search hit"
_SEARCH: Final = next_call("search_tools", {"query": query_of("")})
_COMPARED: Final = 5_000  # names that an unknown id is compared with, if some tools are hidden
_LOOKED_AT: Final = 10  # hits that an unknown id is compared with


class Resolver:
    """Answers `resolve_tools`: a grant for each id, or the reason why there is none."""

    def __init__(
        self,
        shown: FindableTools,
        ledger: GrantLedger,
        index: SearchIndex,
        arrive: Callable[[], Awaitable[None]] | None,
    ) -> None:
        self._shown = shown
        self._ledger = ledger
        self._index = index
        self._arrive = arrive

    async def resolve(
        self, ids: Sequence[str], context: ToolContext, *, stubs: bool = False
    ) -> list[Resolution]:
        """The outcome for each id, in order; a repeated id gets one grant."""
        if not ids:
            return []
        if self._arrive is not None and not all(self._shown.named(id, context) for id in ids):
            # A server that has not listed its tools yet may have the tool.
            await self._arrive()
        replay = replay_key(context)
        wanted = {id: self._available(id, context) for id in ids}
        await _fetch_contracts(wanted)
        records = await self._records(wanted, context, replay)
        return [await loaded(partial(self._resolution, id, records[id], context, stubs)) for id in ids]

    async def _records(
        self, wanted: Mapping[str, ToolBinding | str], context: ToolContext, replay: str
    ) -> dict[str, GrantRecord]:
        """The record of each id: an earlier one of the same request, a valid grant, or a new one."""
        known = {id: await self._recorded(id, found, context, replay) for id, found in wanted.items()}
        if not replay:
            await self._ledger.know_held(context)
            known = {id: self._live(id, found, context) for id, found in wanted.items()}
        asked = [(id, found) for id, found in wanted.items() if known[id] is None]
        fresh = iter(await self._ledger.resolve(asked, context, replay) if asked else ())
        return {id: record or next(fresh) for id, record in known.items()}

    def _live(self, id: str, found: ToolBinding | str, context: ToolContext) -> GrantRecord | None:
        """The caller's grant for the unchanged tool, if at least half of its lifetime is left."""
        if isinstance(found, str):
            return None
        for grant in self._ledger.held(context):
            same = (grant.name, grant.digest) == (found.name, found.definition.digest)
            if same and grant.grant and grant.uses is None and not self._ledger.moved(grant, found):
                if 2 * self._ledger.remaining(grant) >= grant.expires - grant.issued:
                    return GrantRecord(grant.owner, "", id, grant.issued, grant.expires, grant)
        return None

    async def _recorded(
        self, id: str, found: ToolBinding | str, context: ToolContext, replay: str
    ) -> GrantRecord | None:
        """The record that an earlier try of this request has for an id, or for another id of its tool."""
        if not replay:
            return None
        others = () if isinstance(found, str) else sorted(self._shown.ids.spellings(found.name))
        for one in (id, *others):
            if (record := await self._ledger.recall(one, context, replay)) is not None:
                return record
        return None

    def _available(self, id: str, context: ToolContext) -> ToolBinding | str:
        """The tool of an id, or the reason why there is no grant for it."""
        names = self._shown.named(id, context)
        if len(names) > 1:
            ids = list(map(self._shown.ids.id_of, names))
            following = next_call("resolve_tools", {"ids": ids})
            return f"several tools have this id; use {' or '.join(ids)}\n{following}"
        if not names:
            return self._no_such(id, context)
        binding = self._shown.found(names[0])
        _, reason, _ = self._shown.standing(binding, None, context)
        return reason or binding

    def _no_such(self, id: str, context: ToolContext) -> str:
        """The reason for an unknown id; it is the same for a hidden tool, so that it reveals nothing."""
        if self._shown.is_listed(id, context):
            return self._shown.direct(id)
        hidden = self._shown.hidden(context)
        near = self._near(id, hidden, context)
        told = f"no such tool; did you mean {' or '.join(near)}?" if near else _NO_SUCH
        away = servers_missing(self._shown.unavailable(None, hidden, context))
        may_have = f" ({away})" if away else ""
        return f"{told}{may_have}\n{next_call('resolve_tools', {'ids': near[:1]}) if near else _SEARCH}"

    def _near(self, id: str, hidden: frozenset[str], context: ToolContext) -> list[str]:
        """The ids of tools with names like an unknown id."""
        # A search ranks by the words of all tools, which would reveal hidden ones. So if tools may be hidden,
        # the id is compared only with the names that the caller may see.
        if self._shown.may_hide(context):
            others = hidden | self._shown.listed.keys()
            seen = (name for name in self._shown.every() if name not in others)
            return self._shown.ids.near(id, islice(seen, _COMPARED))
        hits = self._index.search(id, limit=_LOOKED_AT, exclude=self._shown.listed.keys(), wait=False)
        return self._shown.ids.near(id, [hit.name for hit in hits])

    def _resolution(
        self, id: str, record: GrantRecord, context: ToolContext, stubs: bool = False
    ) -> Resolution:
        """The answer for one id: the grant of its record, unless the tool cannot be called any more."""
        grant = record.grant
        if grant is None:
            found = self._shown.named(id, context)
            binding = self._shown.tools.get(found[0]) if len(found) == 1 else None
            fault = record.reason
        else:
            binding = self._shown.tools.get(grant.name)
            fault = self._ledger.lapsed(grant) or self._ledger.moved(grant, binding)
        if (
            grant is None
            or fault
            or binding is None
            or self._shown.policy.withheld(binding, context) is not None
        ):
            retry_in = None if binding is None else self._shown.standing(binding, None, context)[2]
            reason = fault or f"{_NO_SUCH}\n{_SEARCH}"
            return Resolution(id=id, status="not_available", reason=reason, retry_in=retry_in)
        binding = binding.contracted()
        return Resolution(
            id=id,
            status="granted",
            grant=grant.grant,
            expires_in=self._ledger.remaining(grant),
            definition=None if stubs else compact(binding.to_wire()),
            stub=python_stub(binding.name, binding.definition) if stubs else None,
        )


async def _fetch_contracts(wanted: dict[str, ToolBinding | str]) -> None:
    """Fetch the schemas of tools that a manifest lists; if that fails, the reason replaces the tool."""
    async with anyio.create_task_group() as fetching:
        for id, found in wanted.items():
            if not isinstance(found, str) and found.contract is not None:
                fetching.start_soon(_fetch_contract, id, found, found.contract, wanted)


async def _fetch_contract(
    id: str, found: ToolBinding, contract: HasContract, wanted: dict[str, ToolBinding | str]
) -> None:
    try:
        await contract.fetch()
        wanted[id] = found.contracted()
    except CallError as fault:
        wanted[id] = str(fault)


_MAX_READINGS: Final = 8  # readings of one call that are compared


class GrantGate:
    """Checks the grants of calls of deferred tools: when they arrive, and right before they run."""

    def __init__(self, ledger: GrantLedger, policy: AccessPolicy, shown: FindableTools) -> None:
        self._ledger = ledger
        self._policy = policy
        self._shown = shown
        self._ids = shown.ids

    def gate(self, call: ToolCall, context: ToolContext) -> ToolGrant:
        """The valid grant of a call; without one, the same error as for a tool that does not exist."""
        try:
            grant = self._found(call.grant or call.name, context)
        except GrantStoreError:
            raise UnknownToolError(call.name) from None
        except StoreMiss as miss:
            raise StoreMiss(partial(_fetched_or_unknown, miss, call.name)) from None
        if grant is None or grant.name != call.name:
            raise UnknownToolError(call.name)
        self._check(grant, context)
        return grant

    def _check(self, grant: ToolGrant, context: ToolContext) -> None:
        """Refuse a grant that is not valid now; the error says how to get a new one."""
        binding = self._shown.tools.get(grant.name)
        if binding is None and (held := self._shown.why_held(grant, context)):
            raise GrantError(held)
        try:
            self._ledger.check(grant, binding)
        except GrantError as fault:
            again = next_call("resolve_tools", {"ids": [grant.name]})
            gone = next_call("search_tools", {"query": query_of(grant.name)})
            raise GrantError(f"{fault}\n{gone if binding is None else again}") from None

    def _found(self, reference: str, context: ToolContext) -> ToolGrant | None:
        """The caller's grant by its handle, its tool's name or id; `None` if a policy withholds the tool."""
        grant = self._ledger.find(reference, context) or self._by_id(reference, context)
        binding = None if grant is None else self._shown.tools.get(grant.name)
        if binding is not None and self._policy.withheld(binding, context) is not None:
            return None
        return grant

    def _by_id(self, id: str, context: ToolContext) -> ToolGrant | None:
        names = self._ids.named(id, lambda name: name != id)
        return self._ledger.find(names[0], context) if len(names) == 1 else None

    async def run(self, binding: ToolBinding, call: ToolCall, context: ToolContext) -> ToolResult:
        """Run a call if it is still granted, and count its use; see `gate` for what it raises."""
        try:
            grant = self.gate(call, context)
        except StoreMiss as miss:
            grant = await loaded(partial(self.gate, call, context), miss)
        self._ledger.used(grant)
        if grant.uses is None:
            return await binding.execute(call, context)
        if not await self._ledger.spend(grant):
            raise GrantError(
                f"the grant for {grant.name} is used up; search for it and resolve it again\n"
                f"{next_call('resolve_tools', {'ids': [grant.name]})}"
            )
        try:
            result = await binding.execute(call, context)
        except InputRequired:
            await self._ledger.refund(grant)
            raise
        # The repeated call of a round trip (2026-07-28) counts as the same use.
        if not result.is_complete:
            await self._ledger.refund(grant)
        return result

    def redirect(self, call: ToolCall, context: ToolContext) -> ToolCall:
        """The call of the granted tool, from a call of `call_tool`."""
        return self._verified(call, context)[1]

    def redirect_read_only(self, call: ToolCall, context: ToolContext) -> ToolCall:
        """Like `redirect`, for `call_read_only_tool`: refuse a tool that may change something."""
        grant, redirected = self._verified(call, context)
        if not _changes_nothing(self._shown.tools[grant.name].definition):
            following = {"grant": redirected.grant, "arguments": redirected.arguments}
            raise GrantError(
                f"{grant.name} is not annotated as read-only; use call_tool\n"
                f"{next_call('call_tool', following)}"
            )
        return redirected

    def verified(self, reference: str, context: ToolContext) -> ToolGrant:
        """The valid grant of a reference; it raises the errors of `redirect`."""
        return self._verified(ToolCall("call_tool", {"grant": reference}), context)[0]

    def _verified(self, call: ToolCall, context: ToolContext) -> tuple[ToolGrant, ToolCall]:
        """The grant of a call of `call_tool`, and the call of its tool; simple mistakes are repaired."""
        reference: str = call.arguments["grant"]
        grant = self._found(reference, context)
        if grant is None and (clean := plain(reference)) != reference:
            grant = self._found(clean, context)
            if grant is not None:
                marked = {**call.arguments, "grant": clean}
                call, reference = with_repairs(call, marked, ["grant is without the marks around it"]), clean
        if grant is None:
            raise self._without_grant(plain(reference), context)
        self._check(grant, context)
        binding = self._shown.tools[grant.name].contracted()
        arguments: dict[str, Any] = call.arguments.get("arguments") or {}
        if not binding.arguments.is_valid(arguments):
            reading = self._unwrapped(binding, grant, reference, arguments)
            if reading is not None:
                arguments = reading.arguments
                call = with_repairs(call, {"grant": reference, "arguments": arguments}, reading.done)
        return grant, ToolCall(grant.name, arguments, call.id, call.original, reference, call.repairs)

    def _without_grant(self, reference: str, context: ToolContext) -> GrantError:
        """The error for a reference that names no grant of the caller."""
        if self._shown.is_listed(reference, context):
            return GrantError(self._shown.direct(reference))
        return GrantError(self._shown.why_held_now(reference, context) or _no_grant(reference))

    def _unwrapped(
        self, binding: ToolBinding, grant: ToolGrant, reference: str, arguments: dict[str, Any]
    ) -> CallReading | None:
        """The arguments without a wrapper object around them, if they fit the tool only then."""
        if _fits(binding, arguments):
            return None
        readings = inner_readings(reference, arguments, self._names(grant) | {reference})
        return next((one for one in readings if _fits(binding, one.arguments)), None)

    def prepare(self, check: SchemaCheck, call: ToolCall, context: ToolContext) -> ToolCall:
        """Repair the arguments of `call_tool`, if they can be read in one way only."""
        if check.is_valid(call.arguments):
            return call
        readings = readings_of(call.arguments)[:_MAX_READINGS]
        granted = [(one, grant) for one in readings if (grant := self._grant_of(one.reference, context))]
        kept = [one for one, grant in granted if {plain(value) for value in one.beside} <= self._names(grant)]
        chosen = self._chosen(call.name, kept, context) or self._closest(kept or readings, context)
        if chosen is None:
            return call
        meant = {"grant": plain(chosen.reference) or chosen.reference, "arguments": chosen.arguments}
        return with_repairs(call, meant, chosen.done) if check.is_valid(meant) else call

    def _closest(self, readings: Sequence[CallReading], context: ToolContext) -> CallReading | None:
        """A reading whose arguments do not fit its tool, for the error; none with a wrapper object."""
        fits = partial(self._fits, context=context, known=False, sure=False)
        plain_ones = (one for one in readings if not any(key_of(key) in HOLDERS for key in one.arguments))
        return next((one for one in plain_ones if not fits(one)), None)

    def _grant_of(self, reference: str, context: ToolContext) -> ToolGrant | None:
        return self._found(reference, context) or self._found(plain(reference), context)

    def _names(self, grant: ToolGrant) -> set[str]:
        """The texts by which a model may name a granted tool: its grant, server, names and ids."""
        names = {grant.source, grant.grant, grant.name}
        if grant.name in self._shown.tools:
            names |= self._ids.spellings(grant.name) | {self._shown.tools[grant.name].definition.name}
        return names

    def _chosen(self, name: str, readings: Sequence[CallReading], context: ToolContext) -> CallReading | None:
        """The only reading that fits; an error if two different readings do."""
        for known in (True, False):
            fitting = [one for one in readings if self._fits(one, context, known=known)]
            different = _different(fitting)
            if len(different) > 1:
                raise InvalidArgumentsError(_two_readings(name, different[:2]))
            if different:
                return different[0]
        return None

    def _fits(self, reading: CallReading, context: ToolContext, *, known: bool, sure: bool = True) -> bool:
        """True if a reading's arguments fit its tool.

        Args:
            reading: A reading of the call.
            context: The caller.
            known: Whether the schema must have all names of the arguments.
            sure: Whether it must have at least the doubtful names.
        """
        grant = self._grant_of(reading.reference, context)
        listed = None if grant is None else self._shown.tools.get(grant.name)
        if listed is None or not _fits(binding := listed.contracted(), reading.arguments):
            return False
        properties: Mapping[str, Any] = binding.definition.input_schema.get("properties") or {}
        must = reading.arguments.keys() if known else reading.doubtful if sure else ()
        return properties.keys() >= set(must)

    def explained(self, binding: ToolBinding, call: ToolCall) -> str:
        """The text after an error of arguments: how the tool is called correctly."""
        calls = "call_read_only_tool" if _changes_nothing(binding.definition) else "call_tool"
        calls = calls if call.grant else call.name
        if binding.contract is not None and binding.contract.known() is not None:
            binding = binding.contracted()
        return explained(binding.definition, binding.arguments, calls, call, call.grant)


async def _fetched_or_unknown(miss: StoreMiss, name: str) -> None:
    """Fetch missing data; if the store fails, raise the error for a tool without a grant."""
    try:
        await miss.load()
    except GrantStoreError:
        raise UnknownToolError(name) from None


def _no_grant(reference: str) -> str:
    told = f"no live grant for {reference!r}; find the tool with search_tools, then resolve_tools"
    if not reference:
        return f"{told}\n{next_call('search_tools', {'query': query_of('')})}"
    return f"{told}\n{next_call('resolve_tools', {'ids': [reference]})}"


def _fits(binding: ToolBinding, arguments: dict[str, Any]) -> bool:
    """True if arguments are valid for a tool, as they are or after repairs."""
    if binding.arguments.is_valid(arguments):
        return True
    if binding.prepare is None:
        return False
    return binding.arguments.is_valid(repairs_of(binding.definition.input_schema, arguments)[0])


def _different(readings: Iterable[CallReading]) -> list[CallReading]:
    """The readings without duplicates."""
    found: dict[str, CallReading] = {}
    for one in readings:
        meant = [plain(one.reference), one.arguments]
        found.setdefault(json.dumps(meant, sort_keys=True, default=str), one)
    return list(found.values())


def _two_readings(name: str, readings: Sequence[CallReading]) -> str:
    calls = [next_call(name, {"grant": one.reference, "arguments": one.arguments}) for one in readings]
    return "Invalid arguments: they can be read in two ways; send the one you mean\n" + "\nor ".join(calls)


def _changes_nothing(definition: ToolDefinition) -> bool:
    """True if a tool is annotated as read-only, and not as destructive as well."""
    return definition.read_only and (definition.annotations or {}).get("destructiveHint") is not True
