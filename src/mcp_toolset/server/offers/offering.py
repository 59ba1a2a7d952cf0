"""`Offering`: what one server offers beside its tools, its own and that of every mounted server."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol, cast, runtime_checkable

from mcp_toolset._records import replace
from mcp_toolset.catalog.grants.access import EVERYTHING, Visible
from mcp_toolset.catalog.registry.registry import ToolRegistry
from mcp_toolset.context.offer_kinds import (
    KINDS,
    PROMPTS,
    RESOURCES,
    TEMPLATES,
    Ending,
    Kind,
    ListChange,
    Offers,
    Wire,
)
from mcp_toolset.errors import InvalidArgumentsError
from mcp_toolset.protocol.cache_hints import CacheHint, strictest
from mcp_toolset.protocol.eras import joint_meta
from mcp_toolset.protocol.json_rpc import METHOD_NOT_FOUND, MCPError
from mcp_toolset.server.offers.local_offers import LocalOffers
from mcp_toolset.server.offers.public_uris import LOCAL, Addresses, Names, Origin, app_uri, apps_of
from mcp_toolset.server.unlisted_mounts import UnlistedMounts
from mcp_toolset.server.visibility import Visibility
from mcp_toolset.tools.core.call import Identity, ToolCall, ToolContext
from mcp_toolset.tools.core.result import ToolResult
from mcp_toolset.tools.core.source import ToolSource, fits
from mcp_toolset.tools.view.view import ToolBinding

if TYPE_CHECKING:
    from mcp_toolset.context.client import ServedClient


_PAGE_KEYS: Final = ("ui/resourceUri", "openai/outputTemplate")
_PAGES: Final = ("ui", *_PAGE_KEYS)
"""Keys of a tool's `_meta` under which the page of its app stands; all but the first hold its address."""


def with_app_address(binding: ToolBinding, prefixes: Callable[[], Mapping[str, str]]) -> ToolBinding:
    """The binding of a tool under the public address of its page, if it has one.

    Args:
        binding: The tool.
        prefixes: Gives what stands before the pages of each mounted source's apps.
    """
    meta = binding.definition.meta
    if not binding.source or not meta or not any(key in meta for key in _PAGES):
        return binding
    apps = prefixes()

    def public(uri: Any) -> Any:
        return (app_uri(apps, binding.source, uri) if isinstance(uri, str) else None) or uri

    changed = {key: public(meta[key]) for key in _PAGE_KEYS if key in meta}
    ui = meta.get("ui")
    if isinstance(ui, Mapping) and "resourceUri" in ui:
        page = cast("Mapping[str, Any]", ui)
        changed["ui"] = {**page, "resourceUri": public(page["resourceUri"])}
    return replace(binding, definition=replace(binding.definition, meta={**meta, **changed}))


def cursor_at(start: int) -> str:
    """The cursor of the page that begins with this entry."""
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


class PassingSource(ToolSource, Protocol):
    """A mounted source that may be asked for what it does not list."""

    @property
    def instructions(self) -> str: ...

    def server_info(self) -> dict[str, Any]:
        """What it says it is; empty while that is unknown."""
        ...

    def admits(self, name: str) -> bool:
        """Whether a name is not that of something which it lists or which is set aside."""
        ...

    def passed(self, name: str) -> ToolBinding | None:
        """What sends calls of an unlisted tool on; `None` if the tool is held back."""
        ...


@runtime_checkable
class PassingToolset(Protocol):
    """A toolset that may consist of one `PassingSource`, as the server lists it."""

    def passing(self) -> PassingSource | None:
        """The source; `None` if unlisted names are refused."""
        ...


class Passing:
    """The server behind a bridge that serves it alone, with `unlisted="pass"`."""

    def __init__(self, registry: ToolRegistry, visibility: Visibility) -> None:
        self._registry = registry
        self._visibility = visibility

    def source(self) -> PassingSource | None:
        """The source; `None` while a second source, a verb, a rule of names or a policy stands before it.

        A rule that knows tools by their names and definitions cannot judge a tool that is not listed.
        """
        registry = self._registry
        if len(registry.sources()) != 1 or registry.chooses or self._visibility.policy is not None:
            return None
        found = (each.passing() for each in registry.toolsets() if fits(each, PassingToolset))
        return next((source for source in found if source is not None), None)


_NAMING: Final = ("resource_link", "resource")
"""Content blocks that name a resource."""

_Lists = Mapping[str, Mapping[str, Sequence[Wire]]]
"""The entries of each source, by the method that lists them."""

PAGE: Final = 500
"""Entries on one page of a list."""


class Offering:
    """Lists of several sources as one, each thing under a public name (`addresses`) that leads back."""

    def __init__(
        self,
        local: LocalOffers,
        mounted: Callable[[], Mapping[str, Offers]],
        unlisted: UnlistedMounts | None = None,
        visible: Visible = EVERYTHING,
        passing: Callable[[], PassingSource | None] = lambda: None,
    ) -> None:
        """Combine.

        Args:
            local: What the application offers itself.
            mounted: Gives the mounted sources by name, in order, as they are now.
            unlisted: The mounts of which it is not known yet what they offer.
            visible: Which of the mounted sources exist for a caller.
            passing: The source that is asked for what no source lists.
        """
        self.passing = passing
        self.local = local
        self._mounted = mounted
        self._unlisted = unlisted
        self._visible = visible
        self.addresses = Addresses()
        self._lists: dict[str, list[Wire]] = {}
        self._settled: object = None
        self._common: _Lists = {}
        self._told: dict[str, list[Wire]] = {}
        self._before: _Lists = {}

    def declares(self, capability: str, feature: str = "", *, identity: Identity | None = None) -> bool:
        """Whether any source offers this to a caller, or may: an unlisted mount may offer anything."""
        seen = self.seen(identity).values()
        if any(offers.declares(capability, feature) or offers.may_declare() for offers in seen):
            return True
        return self._unlisted is not None and self._unlisted.presumed()

    def declared(self, capability: str, feature: str, identity: Identity | None) -> bool:
        """Whether a source that a caller may know of is known to have declared something."""
        return any(offers.declares(capability, feature) for offers in self.seen(identity).values())

    def extensions(self) -> Mapping[str, Any]:
        """The extensions of a server to which every request is passed on."""
        source = self.passing()
        return {} if source is None else self._sources()[source.source_name].extensions()

    def server_info(self) -> dict[str, Any]:
        """What a server to which every request is passed on says it is; empty for none."""
        source = self.passing()
        return {} if source is None else source.server_info()

    async def ask(self, method: str, params: Mapping[str, Any], context: ToolContext) -> Wire:
        """The answer to a request of a method that is not MCP's own."""
        source = self.passing()
        if source is None:
            raise MCPError(METHOD_NOT_FOUND, "Method not found", method)
        return await self._sources()[source.source_name].ask(method, params, context)

    def has(self, capability: str) -> bool:
        """Whether any source has a capability, whichever callers may know of the source."""
        return any(offers.declares(capability) for offers in self._sources().values())

    async def arrive(self) -> None:
        """Wait a bounded time for mounts of which it is not known yet what they offer."""
        if self._unlisted is not None:
            await self._unlisted.arrive(offers=True)

    async def news(self) -> dict[str, frozenset[str]]:
        """The capabilities whose lists are not what they were when this was last asked.

        With each, the sources that list something else; none if only names differ.
        """
        await self.settle()
        told, self._told = self._told, dict(self._lists)
        before, self._before = self._before, self._common
        news: dict[str, frozenset[str]] = {}
        for kind in KINDS:
            if told.get(kind.method, []) != self._told[kind.method]:
                found = _differing(kind.method, before, self._before)
                news[kind.capability] = news.get(kind.capability, frozenset()) | found
        return news

    def tells_itself(self, source: str, client: ServedClient) -> bool:
        """Whether a client has a session of its own with a source, which tells it of changes."""
        offers = self._mounted().get(source)
        return offers is not None and offers.tells_itself(client)

    def list_news(self) -> list[ListChange]:
        """The lists of single clients, tools included, that have changed since this was asked last."""
        return [each for offers in self._mounted().values() for each in offers.list_news()]

    def said(self) -> dict[str, frozenset[str]]:
        """By mount, the lists that its server has said to have changed since this was asked last."""
        return {name: each for name, offers in self._mounted().items() if (each := offers.said())}

    async def settle(self) -> None:
        """Take the lists of all sources, and name what they hold."""
        sources = self._sources()
        listed = {
            source: {
                kind.method: await offers.listed(kind) if offers.declares(kind.capability) else ()
                for kind in KINDS
            }
            for source, offers in sources.items()
        }
        reading = {source: offers.declares("resources") for source, offers in sources.items()}
        more = {
            source: {kind.method: offers.listed_to_some(kind) for kind in KINDS}
            for source, offers in sources.items()
        }
        # Lists that are what they were are the same objects, so that comparing them is quick.
        if (listed, more, reading) == self._settled:
            return
        self._settled, self._common = (listed, more, reading), listed
        self.addresses = Addresses.of(
            _names(source, listed[source], more[source], reads=reads) for source, reads in reading.items()
        )
        self._lists = {kind.method: list(self._public(kind, listed)) for kind in KINDS}

    async def page(self, kind: Kind, cursor: str | None, context: ToolContext) -> Wire:
        """One page of a list, with the cache hint of the whole."""
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

    def _listed_to(self, kind: Kind, context: ToolContext) -> list[Wire]:
        """What a client sees: the sessions of some list what others do not."""
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

    def seen(self, identity: Identity | None) -> dict[str, Offers]:
        """The sources that exist for a caller, by name."""
        every, hides = self._sources(), self._visible.hides_server
        if self._visible.group(identity) is None:
            return every
        return {name: offers for name, offers in every.items() if name == LOCAL or not hides(name, identity)}

    def sees_some(self, sources: Collection[str], identity: Identity | None) -> bool:
        """Whether some of these sources exist for a caller; `sources` is empty where any may be meant."""
        return not sources or not all(self._visible.hides_server(name, identity) for name in sources)

    def leads(self, uri: str, identity: Identity | None) -> bool:
        """Whether what is told of a public URI comes from a source that exists for a caller."""
        seen = self.seen(identity)
        return any(source in seen for source, _ in self.addresses.origins(uri))

    async def read(self, uri: str, context: ToolContext) -> Wire:
        """Read the resource that a public URI leads to."""
        fault = LookupError("Resource not found")
        for source, native in await self._origins(uri, context.identity):
            try:
                answer = await self._sources()[source].read(native, context)
            except LookupError as missing:
                fault = missing
                continue
            return {**answer, **self._contents(source, answer)}
        raise fault

    def _contents(self, source: str, answer: Wire) -> dict[str, Any]:
        if "contents" not in answer or not self.addresses.ambiguous:
            return {}
        contents = cast("Sequence[Wire]", answer["contents"])
        return {"contents": [self._readdressed(source, part) for part in contents]}

    def _readdressed(self, source: str, thing: Wire) -> Wire:
        uri: Any = thing.get("uri")
        return {**thing, "uri": self.addresses.uri(source, uri)} if isinstance(uri, str) else thing

    async def prompt(self, name: str, arguments: Mapping[str, str], context: ToolContext) -> Wire:
        """Get the prompt of a public name; raises as `read` does."""
        source, native = await self._prompt_origin(name, context.identity)
        answer = await self._sources()[source].prompt(native, arguments, context)
        if "messages" not in answer or not self.addresses.ambiguous:
            return answer
        messages = cast("Sequence[Wire]", answer["messages"])
        return {
            **answer,
            "messages": [{**one, "content": self.block(source, one.get("content"))} for one in messages],
        }

    async def complete(self, params: Mapping[str, Any], context: ToolContext) -> Wire:
        """Complete an argument of a public prompt or template; raises as `read` does."""
        reference = cast("Wire", params["ref"])
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

    async def watch(self, uri: str, updated: Callable[[], None], context: ToolContext) -> Ending:
        """Call `updated` when the resource of a public URI has changed; raises as `read` does."""
        for source, native in await self._origins(uri, context.identity):
            if self._sources()[source].declares("resources", "subscribe"):
                return await self._sources()[source].watch(native, updated, context)
        raise LookupError("Resource not found, or its server does not support subscriptions")

    def block(self, source: str, block: Any) -> Any:
        """A content block of a source's, with public URIs in its links and embedded resources."""
        if not isinstance(block, Mapping):
            return block
        wire = cast("Wire", block)
        match wire.get("type"):
            case "resource_link":
                return self._readdressed(source, wire)
            case "resource" if isinstance(wire.get("resource"), Mapping):
                return {**wire, "resource": self._readdressed(source, wire["resource"])}
            case _:
                return wire

    def bound(self, binding: ToolBinding) -> ToolBinding:
        """The binding of a mounted tool, with public URIs in the results where sources share any."""
        if not binding.source:
            return binding
        source, execute = binding.source, binding.execute

        async def readdressed(call: ToolCall, context: ToolContext) -> ToolResult:
            result = await execute(call, context)
            if not self.addresses.ambiguous or not any(
                block.get("type") in _NAMING for block in result.content
            ):
                return result
            content = [self.block(source, block) for block in result.content]
            return replace(result, wire={**result.wire, "content": content})

        return replace(binding, execute=readdressed)

    def apps(self) -> dict[str, str]:
        """What stands before the pages of each mounted source's apps; see `with_app`."""
        return apps_of(self._mounted())

    def with_app(self, binding: ToolBinding) -> ToolBinding:
        """The binding of a mounted tool whose page, if it has one, is named by its public address."""
        return with_app_address(binding, self.apps)

    def _sources(self) -> dict[str, Offers]:
        return {LOCAL: self.local, **self._mounted()}

    def _hint(self, kind: Kind, sources: Iterable[Offers]) -> CacheHint:
        hint = strictest(offers.hint(kind) for offers in sources if offers.declares(kind.capability))
        return CacheHint(hint.ttl_ms, "private") if self._visible.varies else hint

    def _public(self, kind: Kind, listed: _Lists) -> Iterable[Wire]:
        named = {RESOURCES: self.addresses.resources, TEMPLATES: self.addresses.templates}
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
    source: str, lists: Mapping[str, Sequence[Wire]], more: Mapping[str, Sequence[Wire]], *, reads: bool
) -> Names:
    def names(kind: Kind) -> list[str]:
        entries = (*lists[kind.method], *more[kind.method])
        return list(dict.fromkeys(str(entry[kind.identity]) for entry in entries))

    return Names(source, names(RESOURCES), names(TEMPLATES), names(PROMPTS), reads=reads)


def _differing(method: str, before: _Lists, now: _Lists) -> frozenset[str]:
    return frozenset(
        source
        for source in before.keys() | now.keys()
        if list(before.get(source, {}).get(method, ())) != list(now.get(source, {}).get(method, ()))
    )
