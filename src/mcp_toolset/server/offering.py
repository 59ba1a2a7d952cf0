"""`Offering`: what one server offers beside its tools, its own and that of every mounted server."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar, cast, runtime_checkable

from pydantic_core import to_json, to_jsonable_python

from mcp_toolset._records import dataclass, replace
from mcp_toolset.catalog.grants.access import EVERYTHING, Visible
from mcp_toolset.concurrency.backoff import Turn
from mcp_toolset.context import offer_kinds
from mcp_toolset.errors import InvalidArgumentsError, InvalidOutputError
from mcp_toolset.extending.host import ResourceAddresses
from mcp_toolset.protocol.eras import STRICTEST, CacheHint, joint_meta, strictest
from mcp_toolset.protocol.json_rpc import METHOD_NOT_FOUND, MCPError
from mcp_toolset.server.mounts import UnlistedMounts
from mcp_toolset.tools.call import Identity, ToolCall, ToolContext
from mcp_toolset.tools.result import ToolResult
from mcp_toolset.tools.source import CompletionProvider, PromptProvider, ResourceProvider, UpdatingResources
from mcp_toolset.tools.view import ToolBinding

if TYPE_CHECKING:
    from pydantic import BaseModel

    from mcp_toolset.context.connection import ServedClient
    from mcp_toolset.tools.source import Reference


LOCAL: Final = ""  # the source name of what the server has itself
Origin = tuple[str, str]  # a source and the name that it uses itself
APP: Final = "ui"  # the scheme of apps (the extension `io.modelcontextprotocol/ui`)

_OUTSIDE: Final = re.compile(r"[^a-z0-9.-]")


@dataclass(frozen=True, slots=True)
class Names:
    """The names that one source gives."""

    source: str  # its name, empty for what is local
    resources: Sequence[str] = ()  # the URIs that it lists
    templates: Sequence[str] = ()  # its URI templates
    prompts: Sequence[str] = ()  # the names of its prompts
    reads: bool = False  # whether it answers reads at all


@dataclass(frozen=True, slots=True)
class AddressPrefixes:
    """The first parts of addresses that say which mounted server has them: `ui://SERVER/…`."""

    names: Mapping[str, str]  # the part of each server; none has one if a single server is mounted
    schemes: Collection[str] = (APP,)  # the schemes of which this holds

    @classmethod
    def of(cls, sources: Iterable[str], schemes: Collection[str]) -> AddressPrefixes:
        mounted = [source for source in sources if source]
        names = _schemes(mounted, ()) if len(mounted) > 1 else {}
        return cls({source: place for place, source in names.items()}, frozenset((APP, *schemes)))

    def takes(self, uri: str) -> bool:
        """True if an address has one of the schemes."""
        return uri.partition("://")[0] in self.schemes

    def uri(self, source: str, native: str) -> str | None:
        """The public address of something of a source; `None` if it keeps its own address."""
        scheme, mark, rest = native.partition("://")
        if source not in self.names or not mark or scheme not in self.schemes:
            return None
        return f"{scheme}://{self.names[source]}/{rest}"

    def origin(self, uri: str) -> Origin | None:
        """The source that a public address names, and its own address."""
        scheme, mark, rest = uri.partition("://")
        place, slash, native = rest.partition("/")
        if not (mark and slash) or scheme not in self.schemes:
            return None
        owner = next((source for source, known in self.names.items() if known == place), None)
        return None if owner is None else (owner, f"{scheme}://{native}")


@dataclass(frozen=True)
class Addresses(ResourceAddresses):
    """The table for the sources as they are now; build it with `of`."""

    resources: Mapping[str, Origin] = field(default_factory=dict[str, Origin])
    templates: Mapping[str, Origin] = field(default_factory=dict[str, Origin])
    prompts: Mapping[str, Origin] = field(default_factory=dict[str, Origin])
    schemes: Mapping[str, str] = field(default_factory=dict[str, str])
    readers: Sequence[str] = ()
    places: AddressPrefixes = field(default_factory=lambda: AddressPrefixes({}))

    @classmethod
    def of(cls, sources: Iterable[Names], placed: Collection[str] = ()) -> Addresses:
        parts = list(sources)
        listed = {uri.partition("+")[0] for part in parts for uri in (*part.resources, *part.templates)}
        schemes = _schemes([part.source for part in parts if part.source and part.reads], listed)
        scheme_of = {source: scheme for scheme, source in schemes.items()}

        places = AddressPrefixes.of([part.source for part in parts], placed)

        def by_scheme(source: str, uri: str) -> str:
            return places.uri(source, uri) or f"{scheme_of[source]}+{uri}"

        def always(source: str, uri: str) -> bool:
            return places.uri(source, uri) is not None

        return cls(
            resources=_table([(part.source, part.resources) for part in parts], by_scheme, always),
            templates=_table([(part.source, part.templates) for part in parts], by_scheme, always),
            prompts=_table(
                [(part.source, part.prompts) for part in parts], lambda source, name: f"{source}_{name}"
            ),
            schemes=schemes,
            readers=[part.source for part in parts if part.reads],
            places=places,
        )

    def origins(self, uri: str, seen: Collection[str] | None = None) -> list[Origin]:
        """The sources to ask for a public URI, of those `seen`, the likeliest first."""
        seen = self._every if seen is None else seen
        listed = self.resources.get(uri)
        if listed is not None and listed[0] in seen:
            return [listed]
        if (placed := self.places.origin(uri)) is not None:
            if placed[0] in seen:
                return [placed]
            # It names a server that this caller does not see, so no other server is asked for it.
            return [(LOCAL, uri)] if LOCAL in self.readers else []
        scheme, plus, native = uri.partition("+")
        if plus and self.schemes.get(scheme) in seen:
            return [(self.schemes[scheme], native)]
        matching = self._matching(uri, seen)
        if matching is not None:
            return [(matching, uri)]
        mounted = [source for source in self.readers if source and source in seen]
        sole = mounted if len(mounted) == 1 else []
        return [(source, uri) for source in ([LOCAL] if LOCAL in self.readers else []) + sole]

    def guesses(self, uri: str) -> bool:
        """True if a URI is in no list, so that it may be of any source that reads."""
        scheme, plus, _ = uri.partition("+")
        named = uri in self.resources or self.places.takes(uri) or (plus and scheme in self.schemes)
        return not named and self._matching(uri, self._every) is None

    def uri(self, source: str, native: str) -> str:
        listed = self._public.get((source, native))
        if listed is not None:
            return listed
        placed = self.places.uri(source, native)
        if placed is not None:
            return placed
        if (source, native) in self.origins(native)[:1] or source not in self.readers:
            return native
        return f"{self._scheme_of[source]}+{native}" if source in self._scheme_of else native

    @cached_property
    def ambiguous(self) -> bool:
        """True if clients may have other addresses for resources than servers."""
        return len(self.readers) > 1 or bool(self.places.names)

    @cached_property
    def _every(self) -> Collection[str]:
        named = {source for table in (self.resources, self.templates) for source, _ in table.values()}
        return {LOCAL, *self.readers, *self.places.names, *named}

    @cached_property
    def _scheme_of(self) -> Mapping[str, str]:
        return {source: scheme for scheme, source in self.schemes.items()}

    @cached_property
    def _public(self) -> Mapping[Origin, str]:
        return {origin: public for public, origin in self.resources.items()}

    @cached_property
    def _ends(self) -> Mapping[str, Sequence[Origin]]:
        """By what templates start with: what they end with, and their sources."""
        found: dict[str, list[Origin]] = {}
        for template, (source, _) in self.templates.items():
            start, end = fixed_ends(template)
            found.setdefault(start, []).append((end, source))
        return found

    @cached_property
    def _starts(self) -> tuple[Sequence[str], Sequence[int]]:
        """The beginnings of templates, sorted, and for each the longest of the others that it starts with."""
        starts, shorter = sorted(self._ends), list[int]()
        for at, start in enumerate(starts):
            before = at - 1
            while before >= 0 and not start.startswith(starts[before]):
                before = shorter[before]
            shorter.append(before)
        return starts, shorter

    def _matching(self, uri: str, seen: Collection[str]) -> str | None:
        """The source of the template with the longest fixed start that a URI fits."""
        starts, shorter = self._starts
        # All between a start of the URI and the URI, in this order, have this start.
        at = bisect_right(starts, uri) - 1
        while at >= 0:
            start = starts[at]
            for end, source in self._ends[start] if uri.startswith(start) else ():
                if source in seen and len(uri) >= len(start) + len(end) and uri.endswith(end):
                    return source
            at = shorter[at]
        return None


_T = TypeVar("_T")


async def _each(parts: Iterable[_T], made: Callable[[_T], Any]) -> list[Any]:
    """Make something of each part of a result, however many a server sends; others have their turns."""
    turn, found = Turn(), list[Any]()
    for part in parts:
        found.append(made(part))
        await turn.pause()
    return found


def fixed_ends(template: str) -> tuple[str, str]:
    """The start and the end of every URI of a template (RFC 6570); optional parts end nothing."""
    start, brace, _ = template.partition("{")
    if not brace:
        return template, ""
    end = template.rpartition("}")[2]
    return start, end


def _table(
    named: Sequence[tuple[str, Sequence[str]]],
    qualify: Callable[[str, str], str],
    always: Callable[[str, str], bool] = lambda source, name: False,
) -> dict[str, Origin]:
    wanted = Counter(name for _, names in named for name in names)
    origins = [(source, name) for source, names in named for name in names]
    public = {
        (source, name): qualify(source, name)
        if source and (wanted[name] > 1 or always(source, name))
        else name
        for source, name in origins
    }
    met = Counter(public.values())
    table: dict[str, Origin] = {}
    for source, name in origins:
        shown = public[source, name]
        while shown in table or (shown != name and (shown in wanted or met[shown] > 1)):
            shown = f"{shown}_{digest_of(source, shown)}"
        table[shown] = (source, name)
    return table


def digest_of(source: str, name: str) -> str:
    return hashlib.sha256(f"{source}\n{name}".encode("utf-8", "surrogatepass")).hexdigest()[:7]


def _schemes(sources: Sequence[str], taken: Collection[str]) -> dict[str, str]:
    schemes: dict[str, str] = {}
    for source in sources:
        legal = _OUTSIDE.sub("-", source.lower())
        scheme = legal if legal[:1].isalpha() else f"m{legal}"
        while scheme in schemes or scheme in taken:
            scheme = f"{scheme}-{digest_of(source, scheme)}"
        schemes[scheme] = source
    return schemes


MAX_COMPLETIONS: Final = 100  # values in one answer (server/utilities/completion)

Reader = Callable[[str, ToolContext], list[dict[str, Any]] | Awaitable[list[dict[str, Any]]] | None]
"""A reader of resources that are not listed; it returns `None` for an address that is not its own."""


class LocalOffers(offer_kinds.Offers):
    """Adapts the providers that an application gives to its server."""

    def __init__(
        self,
        resources: Sequence[ResourceProvider],
        prompts: Sequence[PromptProvider],
        completions: CompletionProvider | None,
        logs: Callable[[], bool],
        hint: CacheHint = STRICTEST,
        readers: Sequence[Reader] = (),
    ) -> None:
        self._hint = hint
        self._logs = logs
        self._resources = resources
        self._prompts = prompts
        self._completions = completions
        self._readers = readers

    def offer(self, resources: Sequence[ResourceProvider], prompts: Sequence[PromptProvider]) -> None:
        """Offer other resources and prompts from now on."""
        self._resources, self._prompts = resources, prompts

    @property
    def offered(self) -> tuple[Sequence[ResourceProvider], Sequence[PromptProvider]]:
        return self._resources, self._prompts

    def declares(self, capability: str, feature: str = "") -> bool:
        match capability:
            case "resources":
                if feature == "subscribe":
                    return any(isinstance(one, UpdatingResources) for one in self._resources)
                return bool(self._resources) or (bool(self._readers) and not feature)
            case "prompts":
                return bool(self._prompts)
            case "completions":
                return self._completions is not None
            case "logging":
                return self._logs()
            case _:
                return False

    def on_change(self, callback: Callable[[], None]) -> Callable[[], None]:
        ends = [part.on_change(callback) for part in (*self._resources, *self._prompts)]

        def end() -> None:
            for each in ends:
                each()

        return end

    async def listed(self, kind: offer_kinds.Kind) -> Sequence[offer_kinds.Wire]:
        key = "name"
        if kind is offer_kinds.PROMPTS:
            entries = [entry for one in self._prompts for entry in await one.list_prompts()]
        elif kind is offer_kinds.RESOURCES:
            key, entries = "uri", [entry for one in self._resources for entry in await one.list_resources()]
        else:
            key, entries = (
                "uriTemplate",
                [entry for one in self._resources for entry in await one.list_resource_templates()],
            )
        if len(self._prompts if kind is offer_kinds.PROMPTS else self._resources) < 2:
            return [_wire(entry) for entry in entries]
        found: dict[Any, offer_kinds.Wire] = {}
        for wire in map(_wire, entries):
            found.setdefault(wire.get(key), wire)
        return list(found.values())

    def hint(self, kind: offer_kinds.Kind) -> CacheHint:
        return self._hint

    def meta(self, kind: offer_kinds.Kind) -> offer_kinds.Wire:
        return {}

    async def read(self, uri: str, context: ToolContext) -> offer_kinds.Wire:
        for read in self._readers:
            if (contents := read(uri, context)) is not None:
                return {"contents": await contents if isinstance(contents, Awaitable) else contents}
        fault = LookupError("Resource not found")
        for one in self._resources:
            try:
                return {"contents": [_wire(part) for part in await one.read_resource(uri)]}
            except LookupError as missing:
                fault = missing
        raise fault

    async def prompt(self, name: str, arguments: Mapping[str, str], context: ToolContext) -> offer_kinds.Wire:
        fault = LookupError(f"Unknown prompt: {name}")
        for one in self._prompts:
            try:
                return _wire(await one.get_prompt(name, arguments, context))
            except LookupError as missing:
                fault = missing
        raise fault

    async def complete(self, params: Mapping[str, Any], context: ToolContext) -> offer_kinds.Wire:
        if self._completions is None:
            return {"completion": {"values": [], "total": 0, "hasMore": False}}
        argument = params["argument"]
        settled: Any = params.get("context")
        others: Any = settled.get("arguments") if settled else None
        reference = _reference(params["ref"])
        found = await self._completions(reference, argument["name"], argument["value"], others or {})
        if isinstance(found, Mapping) or hasattr(found, "model_dump"):
            return {"completion": _wire(cast("BaseModel | Mapping[str, Any]", found))}
        values = list(cast("Sequence[str]", found))
        completion = {
            "values": values[:MAX_COMPLETIONS],
            "total": len(values),
            "hasMore": len(values) > MAX_COMPLETIONS,
        }
        return {"completion": _wire(completion)}

    async def watch(self, uri: str, updated: Callable[[], None], context: ToolContext) -> offer_kinds.Ending:
        stops = [
            one.on_update(lambda changed: updated() if changed == uri else None)
            for one in self._resources
            if isinstance(one, UpdatingResources)
        ]

        async def end() -> None:
            for stop in stops:
                stop()

        return end


def _reference(wire: Mapping[str, Any]) -> Reference:
    from mcp_types import PromptReference, ResourceTemplateReference

    model = PromptReference if wire["type"] == "ref/prompt" else ResourceTemplateReference
    return model.model_validate(wire, by_name=False)


def _wire(given: BaseModel | Mapping[str, Any]) -> dict[str, Any]:
    try:
        if isinstance(given, Mapping):
            wire = cast("dict[str, Any]", to_jsonable_python(given, by_alias=True))
        else:
            wire = given.model_dump(by_alias=True, mode="json", exclude_none=True)
        to_json(wire)
    except ValueError as fault:
        raise InvalidOutputError(f"a provider gave what has no JSON form: {fault}") from None
    return wire


_PAGE_KEYS: Final = ("ui/resourceUri", "openai/outputTemplate")
_PAGES: Final = ("ui", *_PAGE_KEYS)
"""Keys of a tool's `_meta` under which the page of its app stands; all but the first hold its address."""


def has_page(binding: ToolBinding) -> bool:
    """True for a tool that names the page of an app."""
    meta = binding.definition.meta
    return bool(meta) and any(key in meta for key in _PAGES)


def with_app_address(binding: ToolBinding, places: Callable[[], AddressPrefixes]) -> ToolBinding:
    meta = binding.definition.meta
    if not binding.source or not meta or not has_page(binding):
        return binding
    public = with_public_pages(meta, binding.source, places())
    return replace(binding, definition=replace(binding.definition, meta=public))


def with_public_pages(meta: offer_kinds.Wire, source: str, places: AddressPrefixes) -> dict[str, Any]:
    """The `_meta` of a source's tool or result, with the addresses that clients have for pages of apps."""

    def public(uri: Any) -> Any:
        return (places.uri(source, uri) if isinstance(uri, str) else None) or uri

    changed = {key: public(meta[key]) for key in _PAGE_KEYS if key in meta}
    ui = meta.get("ui")
    if isinstance(ui, Mapping) and "resourceUri" in ui:
        page = cast("Mapping[str, Any]", ui)
        changed["ui"] = {**page, "resourceUri": public(page["resourceUri"])}
    return {**meta, **changed}


def cursor_at(start: int) -> str:
    return base64.urlsafe_b64encode(f"from {start}".encode()).decode()


def start_of(cursor: str | None) -> int:
    """The entry that the page of a cursor begins with; 0 without a cursor."""
    if cursor is None:
        return 0
    try:
        word, _, number = base64.urlsafe_b64decode(cursor.encode()).decode().partition(" ")
        start = int(number)
    except (ValueError, binascii.Error):
        word, start = "", 0
    if word != "from" or start <= 0:
        raise InvalidArgumentsError("Unknown cursor: it is none of this server's")
    return start


@runtime_checkable
class PassingToolset(Protocol):
    """A toolset that may consist of one `MountedSource`, as the server lists it."""

    def passing(self) -> offer_kinds.MountedSource | None: ...


_NAMING: Final = ("resource_link", "resource")  # content blocks that name a resource

_Lists = Mapping[str, Mapping[str, Sequence[offer_kinds.Wire]]]
"""The entries of each source, by the method that lists them."""

PAGE: Final = 500  # entries on one page of a list


class Offering:
    """Lists of several sources as one, each thing under a public name (`addresses`) that leads back."""

    def __init__(
        self,
        local: LocalOffers,
        mounted: Callable[[], Mapping[str, offer_kinds.Offers]],
        unlisted: UnlistedMounts | None = None,
        visible: Visible = EVERYTHING,
        passing: Callable[[], offer_kinds.MountedSource | None] = lambda: None,
        schemes: Collection[str] = (),
    ) -> None:
        self.passing = passing
        self._schemes = schemes
        self.local = local
        self._mounted = mounted
        self._unlisted = unlisted
        self._visible = visible
        self.addresses = Addresses()
        self._lists: dict[str, list[offer_kinds.Wire]] = {}
        self._settled: object = None
        self._common: _Lists = {}
        self._told: dict[str, list[offer_kinds.Wire]] = {}
        self._before: _Lists = {}
        self._follows = False  # another offering asks the sources what they say
        self._followers: list[
            Callable[[Mapping[str, frozenset[str]], Sequence[offer_kinds.ListChange]], None]
        ] = []
        self._heard: dict[str, frozenset[str]] = {}
        self._heard_lists: list[offer_kinds.ListChange] = []

    def declares(self, capability: str, feature: str = "", *, identity: Identity | None = None) -> bool:
        seen = self.seen(identity).values()
        if any(offers.declares(capability, feature) or offers.may_declare() for offers in seen):
            return True
        return self._unlisted is not None and self._unlisted.presumed()

    def declared(self, capability: str, feature: str, identity: Identity | None) -> bool:
        return any(offers.declares(capability, feature) for offers in self.seen(identity).values())

    def extensions(self) -> Mapping[str, Any]:
        source = self.passing()
        return {} if source is None else self._sources()[source.source_name].extensions()

    def server_info(self) -> dict[str, Any]:
        source = self.passing()
        return {} if source is None else source.server_info()

    async def ask(self, method: str, params: Mapping[str, Any], context: ToolContext) -> offer_kinds.Wire:
        source = self.passing()
        if source is None:
            raise MCPError(METHOD_NOT_FOUND, "Method not found", method)
        return await self._sources()[source.source_name].ask(method, params, context)

    def has(self, capability: str) -> bool:
        return any(offers.declares(capability) for offers in self._sources().values())

    async def arrive(self) -> None:
        if self._unlisted is not None:
            await self._unlisted.arrive(offers=True)

    async def news(self) -> dict[str, frozenset[str]]:
        """The capabilities whose lists are not what they were when this was last asked."""
        # With each, the sources that list something else; none if only names differ.
        await self.settle()
        told, self._told = self._told, dict(self._lists)
        before, self._before = self._before, self._common
        news: dict[str, frozenset[str]] = {}
        for kind in offer_kinds.KINDS:
            if told.get(kind.method, []) != self._told[kind.method]:
                found = _differing(kind.method, before, self._before)
                news[kind.capability] = news.get(kind.capability, frozenset()) | found
        return news

    def tells_itself(self, source: str, client: ServedClient) -> bool:
        offers = self._mounted().get(source)
        return offers is not None and offers.tells_itself(client)

    def list_news(self) -> list[offer_kinds.ListChange]:
        found, self._heard_lists = self._heard_lists, []
        if self._follows:
            return found
        found = [each for offers in self._mounted().values() for each in offers.list_news()]
        for hear in self._followers if found else ():
            hear({}, found)
        return found

    def said(self) -> dict[str, frozenset[str]]:
        found, self._heard = self._heard, {}
        if self._follows:
            return found
        found = {name: each for name, offers in self._mounted().items() if (each := offers.said())}
        for hear in self._followers if found else ():
            hear(found, [])
        return found

    def follow(self, other: Offering, told: Callable[[], None]) -> Callable[[], None]:
        """Be told by another offering of the same sources what these say, as they say it once.

        Args:
            other: The other offering, which asks the sources.
            told: Called when there is something to be asked by `said` and `list_news`.

        Returns:
            What ends that.
        """

        def hear(said: Mapping[str, frozenset[str]], lists: Sequence[offer_kinds.ListChange]) -> None:
            mounted = self._mounted()
            for name, each in said.items():
                if name in mounted:
                    self._heard[name] = self._heard.get(name, frozenset()) | each
            self._heard_lists += lists
            told()

        self._follows = True
        other._followers.append(hear)
        return partial(other._followers.remove, hear)

    async def settle(self) -> None:
        sources = self._sources()
        listed = {
            source: {
                kind.method: await offers.listed(kind) if offers.declares(kind.capability) else ()
                for kind in offer_kinds.KINDS
            }
            for source, offers in sources.items()
        }
        reading = {source: offers.declares("resources") for source, offers in sources.items()}
        more = {
            source: {kind.method: offers.listed_to_some(kind) for kind in offer_kinds.KINDS}
            for source, offers in sources.items()
        }
        # Lists that are what they were are the same objects, so that comparing them is quick.
        if (listed, more, reading) == self._settled:
            return
        self._settled, self._common = (listed, more, reading), listed
        self.addresses = Addresses.of(
            [_names(source, listed[source], more[source], reads=reads) for source, reads in reading.items()],
            self._schemes,
        )
        self._lists = {kind.method: list(self._public(kind, listed)) for kind in offer_kinds.KINDS}

    async def page(
        self, kind: offer_kinds.Kind, cursor: str | None, context: ToolContext
    ) -> offer_kinds.Wire:
        start = start_of(cursor)
        if not start:
            for offers in self.seen(context.identity).values():
                await offers.look(kind, context)
        await self.settle()
        entries = self._listed_to(kind, context)
        if start and start >= len(entries):
            raise InvalidArgumentsError("Unknown cursor: the list has ended, or has changed; list again")
        sources = self.seen(context.identity).values()
        shown = entries[start : start + PAGE]
        page: dict[str, Any] = {kind.key: shown, **self._hint(kind, sources).to_wire()}
        if meta := joint_meta(offers.meta(kind) for offers in sources):
            page["_meta"] = meta
        if start + PAGE < len(entries):
            page["nextCursor"] = cursor_at(start + PAGE)
        return page

    def _listed_to(self, kind: offer_kinds.Kind, context: ToolContext) -> list[offer_kinds.Wire]:
        """The entries that a client sees: the sessions of some list what others do not."""
        own = {
            source: {kind.method: entries}
            for source, offers in self.seen(context.identity).items()
            if (entries := offers.listed_to(kind, context)) is not None
        }
        listed = {**self._common, **own}
        seen = {name: listed[name] for name in self.seen(context.identity) if name in listed}
        if not own and len(seen) == len(listed):
            return self._lists[kind.method]
        return list(self._public(kind, seen))

    def seen(self, identity: Identity | None) -> dict[str, offer_kinds.Offers]:
        every, hides = self._sources(), self._visible.hides_server
        if self._visible.group(identity) is None:
            return every
        return {name: offers for name, offers in every.items() if name == LOCAL or not hides(name, identity)}

    def sees_some(self, sources: Collection[str], identity: Identity | None) -> bool:
        """True if some of these sources exist for a caller; `sources` is empty where any may be meant."""
        return not sources or not all(self._visible.hides_server(name, identity) for name in sources)

    def leads(self, uri: str, identity: Identity | None) -> bool:
        seen = self.seen(identity)
        return any(source in seen for source, _ in self.addresses.origins(uri))

    async def read(self, uri: str, context: ToolContext) -> offer_kinds.Wire:
        fault = LookupError("Resource not found")
        for source, native in await self._origins(uri, context.identity):
            try:
                answer = await self._sources()[source].read(native, context)
            except LookupError as missing:
                fault = missing
                continue
            if "contents" not in answer or not self.addresses.ambiguous:
                return answer
            contents = cast("Sequence[offer_kinds.Wire]", answer["contents"])

            def readdressed(
                thing: offer_kinds.Wire, source: str = source, native: str = native
            ) -> offer_kinds.Wire:
                return (
                    {**thing, "uri": uri} if thing.get("uri") == native else self._readdressed(source, thing)
                )

            return {**answer, "contents": await _each(contents, readdressed)}
        raise fault

    def _readdressed(self, source: str, thing: offer_kinds.Wire) -> offer_kinds.Wire:
        uri: Any = thing.get("uri")
        return {**thing, "uri": self.addresses.uri(source, uri)} if isinstance(uri, str) else thing

    async def prompt(self, name: str, arguments: Mapping[str, str], context: ToolContext) -> offer_kinds.Wire:
        source, native = await self._prompt_origin(name, context.identity)
        answer = await self._sources()[source].prompt(native, arguments, context)
        if "messages" not in answer or not self.addresses.ambiguous:
            return answer
        messages = cast("Sequence[offer_kinds.Wire]", answer["messages"])

        def readdressed(one: offer_kinds.Wire) -> offer_kinds.Wire:
            return {**one, "content": self.block(source, one.get("content"))}

        return {**answer, "messages": await _each(messages, readdressed)}

    async def complete(self, params: Mapping[str, Any], context: ToolContext) -> offer_kinds.Wire:
        reference = cast("offer_kinds.Wire", params["ref"])
        if reference["type"] == "ref/prompt":
            source, native = await self._prompt_origin(reference["name"], context.identity)
            reference = {**reference, "name": native}
        else:
            source, native = await self._template_origin(reference["uri"], context.identity)
            reference = {**reference, "uri": native}
        offers = self._sources()[source]
        if not (offers.declares("completions") or self.passing()):
            return {"completion": {"values": []}}
        return await offers.complete({**params, "ref": reference}, context)

    async def watch(self, uri: str, updated: Callable[[], None], context: ToolContext) -> offer_kinds.Ending:
        for source, native in await self._origins(uri, context.identity):
            if self._sources()[source].declares("resources", "subscribe"):
                return await self._sources()[source].watch(native, updated, context)
        raise LookupError("Resource not found, or its server does not support subscriptions")

    def block(self, source: str, block: Any) -> Any:
        if not isinstance(block, Mapping):
            return block
        wire = cast("offer_kinds.Wire", block)
        match wire.get("type"):
            case "resource_link":
                return self._readdressed(source, wire)
            case "resource" if isinstance(wire.get("resource"), Mapping):
                return {**wire, "resource": self._readdressed(source, wire["resource"])}
            case _:
                return wire

    def bound(self, binding: ToolBinding) -> ToolBinding:
        if not binding.source:
            return binding
        source, execute = binding.source, binding.execute

        async def readdressed(call: ToolCall, context: ToolContext) -> ToolResult:
            result = await execute(call, context)
            changed: dict[str, Any] = {}
            if self.addresses.ambiguous and any(block.get("type") in _NAMING for block in result.content):
                changed["content"] = await _each(result.content, partial(self.block, source))
            meta = result.wire.get("_meta") if self.addresses.places.names else None
            if meta and any(key in meta for key in _PAGES):
                changed["_meta"] = with_public_pages(meta, source, self.addresses.places)
            return replace(result, wire={**result.wire, **changed}) if changed else result

        return replace(binding, execute=readdressed)

    def places(self) -> AddressPrefixes:
        return AddressPrefixes.of(self._mounted(), self._schemes)

    def with_app(self, binding: ToolBinding) -> ToolBinding:
        return with_app_address(binding, self.places)

    def _sources(self) -> dict[str, offer_kinds.Offers]:
        return {LOCAL: self.local, **self._mounted()}

    def _hint(self, kind: offer_kinds.Kind, sources: Iterable[offer_kinds.Offers]) -> CacheHint:
        hint = strictest(offers.hint(kind) for offers in sources if offers.declares(kind.capability))
        return CacheHint(hint.ttl_ms, "private") if self._visible.varies else hint

    def _public(self, kind: offer_kinds.Kind, listed: _Lists) -> Iterable[offer_kinds.Wire]:
        named = {
            offer_kinds.RESOURCES: self.addresses.resources,
            offer_kinds.TEMPLATES: self.addresses.templates,
        }
        public = {origin: name for name, origin in named.get(kind, self.addresses.prompts).items()}
        for source, lists in listed.items():
            for entry in lists[kind.method]:
                name = public[source, entry[kind.identity]]
                yield entry if name == entry[kind.identity] else {**entry, kind.identity: name}

    async def _origins(self, uri: str, identity: Identity | None) -> list[Origin]:
        if not self._lists:
            await self.settle()
        found = self.addresses.origins(uri, self.seen(identity))
        return found or [(source.source_name, uri) for source in (self.passing(),) if source is not None]

    async def _prompt_origin(self, name: str, identity: Identity | None) -> Origin:
        if name not in self.addresses.prompts:
            await self.settle()
        found = self.addresses.prompts.get(name)
        if found is None and (source := self.passing()) is not None and source.admits(name):
            return source.source_name, name
        if found is None or found[0] not in self.seen(identity):
            raise LookupError(f"Unknown prompt: {name}")
        return found

    async def _template_origin(self, template: str, identity: Identity | None) -> Origin:
        if template not in self.addresses.templates:
            await self.settle()
        seen = self.seen(identity)
        found = self.addresses.templates.get(template)
        if found is None or found[0] not in seen:
            found = next(iter(await self._origins(template, identity)), None)
        if found is None:
            raise LookupError(f"Unknown resource template: {template}")
        return found


def _names(
    source: str,
    lists: Mapping[str, Sequence[offer_kinds.Wire]],
    more: Mapping[str, Sequence[offer_kinds.Wire]],
    *,
    reads: bool,
) -> Names:
    def names(kind: offer_kinds.Kind) -> list[str]:
        entries = (*lists[kind.method], *more[kind.method])
        return list(dict.fromkeys(str(entry[kind.identity]) for entry in entries))

    return Names(
        source,
        names(offer_kinds.RESOURCES),
        names(offer_kinds.TEMPLATES),
        names(offer_kinds.PROMPTS),
        reads=reads,
    )


def _differing(method: str, before: _Lists, now: _Lists) -> frozenset[str]:
    return frozenset(
        source
        for source in before.keys() | now.keys()
        if list(before.get(source, {}).get(method, ())) != list(now.get(source, {}).get(method, ()))
    )
