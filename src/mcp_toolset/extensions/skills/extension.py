"""`Skills`: serves skills from folders, and carries those of mounted servers (SEP-2640).

A skill of a mounted server keeps its name, its frontmatter and its digests. Its address names the server as
soon as several are mounted, so that two skills of one name stay two.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import field
from functools import partial
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self, TypeVar, cast

import anyio
import anyio.to_thread

from mcp_toolset._records import dataclass, replace
from mcp_toolset.calls.background import BackgroundWork
from mcp_toolset.context.connection import EXTENSION_TABLES, RequestContext
from mcp_toolset.context.offer_kinds import MountedSource
from mcp_toolset.context.request import WireContext
from mcp_toolset.errors import DefinitionError, LoginRequiredError, UpstreamError, UpstreamProtocolError
from mcp_toolset.extending.extension import Extension
from mcp_toolset.extensions.skills.address_forms import AddressForm, forms_of
from mcp_toolset.extensions.skills.entries import DYNAMIC, Entry, entry_fault, public
from mcp_toolset.extensions.skills.frontmatter import SCHEME, SKILL_FILE
from mcp_toolset.protocol.eras import STRICTEST, CacheHint, strictest
from mcp_toolset.protocol.json_rpc import INVALID_PARAMS, RESOURCE_NOT_FOUND, MCPError
from mcp_toolset.protocol.methods import is_modern
from mcp_toolset.security.patterns import ToolFacts, hints_of
from mcp_toolset.server.offering import cursor_at, start_of
from mcp_toolset.tools.definition import mounted_name, prefix_from
from mcp_toolset.tools.hidden_text import in_log

if TYPE_CHECKING:
    from mcp_toolset.config.extensions import Settings
    from mcp_toolset.context.offer_kinds import Offers
    from mcp_toolset.extending.extension import Answer
    from mcp_toolset.extending.host import Host
    from mcp_toolset.extensions.skills.folder import Skill, SkillFolder
    from mcp_toolset.extensions.skills.settings import SkillsSettings
    from mcp_toolset.tools.call import Identity, ToolContext

SKILLS: Final = "io.modelcontextprotocol/skills"
SERVER_META_KEY: Final = "mcp-toolset/server"
"""In the `_meta` of an entry: the mounted server that has the skill."""

PAGE_FILES: Final = 2_000  # files of all skills on one page of `skills/list`, at least one skill's
PAGE: Final = 100  # skills on one page of it
MAX_PAGES: Final = 100  # pages of a mounted server's list that are read
MAX_SKILLS: Final = 5_000  # skills of one mounted server
MAX_KEPT: Final = 256  # lists of mounted servers that are kept for a moment
LEAST_KEPT: Final = 2.0  # seconds for which they are kept at least
MOST_KEPT: Final = 300.0  # seconds for which they are kept at most
SEARCH_WAIT: Final = 1.5  # seconds that a search waits for one server's list, which it then finds later
LIST_WAIT: Final = 5.0  # seconds that a list waits for it
MOST_WAIT: Final = 20.0  # seconds after which a server has not said its skills
SILENT: Final = 30.0  # seconds for which a server is not asked again that did not say them
MAX_ASKED: Final = 64  # lists that are asked for at once, and waited for by nobody

_LISTS: Final = "skills/list"
_GETS: Final = "skills/get"
_READS: Final = "resources/directory/read"
_MISSING: Final = (INVALID_PARAMS, RESOURCE_NOT_FOUND)
_READ_ONLY: Final = hints_of({"readOnlyHint": True, "destructiveHint": False})
_log = logging.getLogger("mcp_toolset.server")

Place = str | PathLike[str]
_Key = tuple[str, str | None]  # a mounted server, and whose list it is
_V = TypeVar("_V")


@dataclass(frozen=True, slots=True)
class _Listing:
    """The skills of a mounted server, with its own addresses."""

    entries: Sequence[Entry]
    hint: CacheHint
    until: float  # a time of the event loop


@dataclass(slots=True)
class _SkillRequest:
    """A list that a mounted server is asked for, by whoever wants it."""

    since: float  # a time of the event loop
    ended: anyio.Event = field(default_factory=anyio.Event)
    listing: _Listing | None = None


_Skill = tuple[str, Entry]
"""A server, empty for the program's own, and a skill of it, with the addresses of the server."""


class Skills(Extension):
    """Serves skills from folders, and carries those of mounted servers; see docs/skills.md."""

    key = "skills"
    carries: ClassVar[tuple[str, ...]] = (SKILLS,)
    schemes: ClassVar[tuple[str, ...]] = (SCHEME,)

    def __new__(cls, *folders: Place) -> Self:
        """One without folders reads no resources of its own."""
        kind: Any = _ServedSkills if folders else cls
        return super().__new__(kind)

    def __init__(self, *folders: Place) -> None:
        """Say where skills are; without a folder, only those of mounted servers are carried.

        Args:
            folders: Folders; each folder in one of them with a `SKILL.md` is a skill.

        Raises:
            DefinitionError: a folder is not there, or is no path.
        """
        for folder in folders:
            if not isinstance(folder, str | PathLike) or not fspath(folder):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise DefinitionError(
                    f"skills takes the path of a folder, or a list of paths, not {folder!r}"
                )
        paths = [Path(fspath(one)).absolute() for one in folders]
        for path in paths:
            if not path.is_dir():
                raise DefinitionError(f"skills: there is no folder {path}; make it, or correct the path")
        self._folders = _opened(paths)
        self._told: set[str] = set()
        self._presumed = False  # clients were told of skills before it was known whether there are any
        self._kept: dict[_Key, _Listing] = {}
        self._silent: dict[_Key, float] = {}  # servers that did not say their skills, and until when
        self._asked: dict[_Key, _SkillRequest] = {}
        self._names: dict[str, set[str]] = {}  # the names of skills that mounted servers have listed
        self._work: BackgroundWork | None = None
        self._personal: frozenset[str] = frozenset()  # mounted servers with a connection for each caller

    @classmethod
    def of(cls, said: Any, stated: Settings | None, host: Host) -> Self:
        """The extension for a keyword, a folder or several, else for the folder of the configuration."""
        if said is not None and said is not True:
            several = isinstance(said, Sequence) and not isinstance(said, str | bytes)
            return cls(*cast("Sequence[Place]", said if several else [said]))
        folder = None if stated is None else cast("SkillsSettings", stated).folder
        return cls() if folder is None else cls(folder)

    def intercept(self, method: str, answer: Answer) -> Answer:
        """Declare the extension, list and guard its resources, and answer its methods."""
        stage = {
            "": self._own_method,
            "initialize": self._introduced,
            "server/discover": self._introduced,
            "resources/list": self._listed,
            "resources/templates/list": partial(self._without_denied, "resourceTemplates", "uriTemplate"),
            "resources/read": self._guarded,
            "resources/subscribe": self._guarded,
            "subscriptions/listen": self._heard,
            "completion/complete": self._completed,
        }.get(method)
        return answer if stage is None else partial(stage, answer)

    def compiled(self, sources: Mapping[str, Any]) -> None:
        """Forget what mounted servers listed, as they may be others."""
        self._kept, self._silent, self._asked = {}, {}, {}
        every = sources.items()
        self._personal = frozenset(
            name for name, one in every if isinstance(one, MountedSource) and one.is_personal
        )

    async def findable(self, context: ToolContext) -> Sequence[Mapping[str, str]]:
        """The skills of a caller."""
        found, _ = await self._all(context, SEARCH_WAIT)
        address = await self._addressing(found)
        return [
            {
                "kind": "skill",
                "name": entry["frontmatter"]["name"],
                "description": entry["frontmatter"]["description"],
                "address": address(server, entry["uri"]),
                "server": server,
                "how": "read its address as a resource, and follow it",
            }
            for server, entry in found
        ]

    def judged(self) -> list[ToolFacts]:
        """The skills of its folders, and those that mounted servers have listed."""
        own = (_facts("", skill.name) for folder in self._folders for skill in folder.skills())
        listed = (_facts(server, name) for server, names in self._names.items() for name in names)
        return [*own, *listed]

    def unjudged(self) -> list[str]:
        """The mounted servers with skills that they have not listed yet."""
        return [server for server, _ in self._carried(None) if server not in self._names]

    # What it says of itself

    def _settings(self, identity: Identity | None) -> dict[str, Any] | None:
        """Its settings for a caller; `None` if there are no skills for it."""
        theirs = [one for _, one in self._carried(identity)]
        if not theirs and not self._folders:
            # What clients are told at the handshake holds for as long as they are connected.
            if not self._awaits(identity):
                return None
            self._presumed = True
            return {"directoryRead": True}
        reads = bool(self._folders) or any(capability.get("directoryRead") is True for capability in theirs)
        return {"directoryRead": True} if reads else {}

    def _awaits(self, identity: Identity | None) -> bool:
        """True if it is not known yet whether some mounted server has skills."""
        return not all(offers.known for offers in self.host.servers(identity).values())

    def _carried(self, identity: Identity | None) -> list[tuple[str, Mapping[str, Any]]]:
        """The mounted servers with skills that exist for a caller, each with its settings."""
        every = ((name, _declared(offers)) for name, offers in self.host.servers(identity).items())
        return [(name, settings) for name, settings in every if settings is not None]

    async def _introduced(self, answer: Answer, request: RequestContext) -> dict[str, Any]:
        result = await answer(request)
        if (settings := self._settings(request.identity)) is None:
            return result
        capabilities = result["capabilities"]
        declared = {**capabilities.get("extensions", {}), SKILLS: settings}
        return {**result, "capabilities": {**capabilities, "extensions": declared}}

    # Its methods

    async def _own_method(self, answer: Answer, request: RequestContext) -> dict[str, Any]:
        ask = {_LISTS: self._list, _GETS: self._get, _READS: self._children}.get(request.method)
        if ask is None:
            return await answer(request)
        if self._awaits(request.identity):
            await self.host.arrived()
            for offers in self.host.servers(request.identity).values():
                if not offers.known and not offers.extensions():
                    await offers.learned(WireContext(request), log_in=False)
        settings = self._settings(request.identity)
        if not self._presumed and (settings is None or (request.method == _READS and not settings)):
            return await answer(request)
        return await self.host.relayed(request, partial(ask, is_modern(request.protocol_version)))

    async def _list(self, modern: bool, params: Mapping[str, Any], context: ToolContext) -> dict[str, Any]:
        start = start_of(params.get("cursor"))
        found, hint = await self._all(context, LIST_WAIT, again=not start)
        if start and start >= len(found):
            raise _invalid("Unknown cursor: the list has ended, or has changed; list again")
        end, files = start, 0
        while end < len(found) and end - start < PAGE and (end == start or files < PAGE_FILES):
            files += len(found[end][1]["resources"])
            end += 1
        address = await self._addressing(found)
        page: dict[str, Any] = {"skills": [_carried_entry(one, address) for one in found[start:end]]}
        if modern:
            page |= hint.to_wire()
        return page if end >= len(found) else {**page, "nextCursor": cursor_at(end)}

    async def _get(self, modern: bool, params: Mapping[str, Any], context: ToolContext) -> dict[str, Any]:
        uri = _address(params)
        own = {one.uri: one for one in await self._own(context)}
        if uri in own:
            return {**_strictest(modern), "skill": own[uri].to_wire()}
        for server, native, offers in await self._origins(uri, context):
            try:
                result = await offers.ask(_GETS, {"uri": native}, context)
            # What the server says of an address would tell a skill that is not there from a denied one.
            except UpstreamProtocolError:
                continue
            entry: Any = result.get("skill")
            if fault := entry_fault(entry) or ("" if entry["uri"] == native else "it is of another skill"):
                _log.warning("%s: its skill %s is refused: %s", server, in_log(native), in_log(fault))
            elif seen := self._seen(server, [entry], await self._beside(server, native, context), context):
                (found,) = seen
                skill = _carried_entry(found, await self._addressing([found]))
                return {**_strictest(modern), **result, "skill": skill}
        raise _invalid(f"No skill is served at {uri}")

    async def _children(
        self, modern: bool, params: Mapping[str, Any], context: ToolContext
    ) -> dict[str, Any]:
        uri = _address(params)
        if (own := await self._own_children(uri, context)) is not None:
            return {**_strictest(modern), "resources": own}
        for server, native, offers in await self._origins(uri, context):
            reads = (_declared(offers) or {}).get("directoryRead") is True
            if not reads or self._hides_path(server, native, context.identity):
                continue
            sent = {"uri": native, **({"cursor": params["cursor"]} if "cursor" in params else {})}
            try:
                result = await offers.ask(_READS, sent, context)
            except UpstreamProtocolError:
                continue
            address = partial((await self.host.addresses()).uri, server)
            beside = await self._beside(server, native, context)
            denied = self._denied_folders(server, beside, context.identity)
            if self._hides_file(server, native, denied, context.identity):
                continue
            children = [one for one in _objects(result.get("resources")) if isinstance(one.get("uri"), str)]
            listed = [
                {**child, "uri": address(child["uri"])}
                for child in children
                if not self._hides_file(server, child["uri"], denied, context.identity)
            ]
            return {**_strictest(modern), **result, "resources": listed}
        raise _invalid(f"{uri} is no directory")

    # Resources

    async def _listed(self, answer: Answer, request: RequestContext) -> dict[str, Any]:
        result = await self._without_denied("resources", "uri", answer, request)
        if not self._folders or "nextCursor" in result:
            return result
        listed = {one["uri"] for one in result["resources"]}
        own = [one.resource() for one in await self._own(WireContext(request)) if one.uri not in listed]
        return {**result, "resources": [*result["resources"], *own]}

    async def _without_denied(
        self, kind: str, key: str, answer: Answer, request: RequestContext
    ) -> dict[str, Any]:
        """A list of resources, or of their templates, without what is in denied skills of mounted servers."""
        result = await answer(request)
        if self.host.policy is None:
            return result
        context = WireContext(request)
        seen = [one for one in result[kind] if not await self._is_hidden(one[key], context)]
        if len(seen) < len(result[kind]) and self.host.policy.varies and "cacheScope" in result:
            result = {**result, "cacheScope": "private"}
        return {**result, kind: seen}

    async def _guarded(self, answer: Answer, request: RequestContext) -> dict[str, Any]:
        uri = (request.params or {}).get("uri")
        if self.host.policy is None or not isinstance(uri, str):
            return await answer(request)
        code = INVALID_PARAMS if request.modern else RESOURCE_NOT_FOUND
        return await self._unless_hidden(
            uri, MCPError(code, "Resource not found", {"uri": uri}), answer, request
        )

    async def _completed(self, answer: Answer, request: RequestContext) -> dict[str, Any]:
        """Values for a variable of a template, unless the template is of a denied skill."""
        params = request.params or {}
        reference, settled = _object(params.get("ref")), _object(params.get("context"))
        template = reference.get("uri")
        if self.host.policy is None or not isinstance(template, str):
            return await answer(request)
        filled = template
        for name, value in _object(settled.get("arguments")).items():
            # As a function, since a text may have references to groups in it.
            filled = re.sub(
                rf"\{{[+#./;?&]?{re.escape(name)}[*]?\}}", lambda _, value=value: str(value), filled
            )
        missing = _invalid(f"Unknown resource template: {template}")
        if filled != template and await self._is_hidden(filled, WireContext(request)):
            raise missing
        return await self._unless_hidden(template, missing, answer, request)

    async def _heard(self, answer: Answer, request: RequestContext) -> dict[str, Any]:
        """A stream of changes, without those of files of denied skills."""
        params = request.params or {}
        wanted = _object(params.get("notifications"))
        uris = cast("Sequence[str]", wanted.get("resourceSubscriptions") or ())
        if self.host.policy is None or not uris:
            return await answer(request)
        context = WireContext(request)
        seen = [uri for uri in uris if not await self._is_hidden(uri, context)]
        heard = {**params, "notifications": {**wanted, "resourceSubscriptions": seen}}
        changed = copy(request)
        changed.params = heard
        return await answer(changed)

    async def _unless_hidden(
        self, uri: str, missing: MCPError, answer: Answer, request: RequestContext
    ) -> dict[str, Any]:
        """The answer about an address, or the error `missing` if it is of a denied skill."""
        context = WireContext(request)
        hidden = await self._is_hidden(uri, context)
        # A server that the caller has to log in to lists its skills afterwards.
        try:
            result = None if hidden else await answer(request)
        except MCPError as fault:
            if not (fault.code in _MISSING and any(form.is_of_skills for form in forms_of(uri))):
                raise
            result = None
        if hidden is None and result is not None:
            hidden = await self._is_hidden(uri, context)
        if result is None or hidden:
            raise missing
        return result

    # Where skills are

    async def _all(
        self, context: ToolContext, within: float, *, again: bool = True
    ) -> tuple[list[_Skill], CacheHint]:
        """The skills that exist for a caller, its own first, and how long their list may be kept.

        A mounted server has `within` seconds; without `again`, folders are taken as they were last.
        """
        found: list[_Skill] = [("", one.to_wire()) for one in await self._own(context, again=again)]
        servers = [name for name, _ in self._carried(context.identity)]
        listings: dict[str, _Listing | None] = {}

        async def take(server: str) -> None:
            listings[server] = await self._listing(server, context, within)

        async with anyio.create_task_group() as group:
            for server in servers:
                group.start_soon(take, server)
        hints = [STRICTEST] if self._folders or None in listings.values() else []
        for server in servers:
            if (listing := listings[server]) is None:
                continue
            hints.append(listing.hint)
            found += self._seen(server, listing.entries, listing.entries, context)
        hint = strictest(hints)
        varies = self.host.policy is not None and self.host.policy.varies
        return found, CacheHint(hint.ttl_ms, "private") if varies else hint

    async def _addressing(self, found: Sequence[_Skill]) -> Callable[[str, str], str]:
        """A function that gives clients' addresses for those of these skills, by server."""
        addresses = await self.host.addresses() if any(server for server, _ in found) else None

        def address(server: str, uri: str) -> str:
            return addresses.uri(server, uri) if server and addresses is not None else uri

        return address

    async def _own(self, context: ToolContext, *, again: bool = True) -> list[Skill]:
        """The skills of the program's folders that exist for a caller."""
        if not self._folders:
            return []
        skills: dict[str, Skill] = {}
        addresses = await self.host.addresses()
        for folder in self._folders:
            known = () if again else folder.known
            for one in known or await anyio.to_thread.run_sync(folder.skills):
                owner = next((name for name, _ in addresses.origins(one.uri)), "")
                if one.uri in skills or owner:
                    other = f"the mounted server {owner}" if owner else "another folder"
                    self._tell(f"the skill {one.uri} is left out: {other} has its address; rename its folder")
                elif self._is_chosen(one.uri) and not self._hides_path("", one.uri, context.identity):
                    files = (
                        file for file in one.files if not self._hides_path("", file.uri, context.identity)
                    )
                    skills[one.uri] = replace(one, files=tuple(files))
        return [skills[uri] for uri in sorted(skills)]

    async def _own_children(self, uri: str, context: ToolContext) -> list[dict[str, Any]] | None:
        chosen = self._folders and self._is_chosen(f"{uri}/")
        if chosen and not self._hides_path("", uri, context.identity):
            for folder in self._folders:
                if (children := await anyio.to_thread.run_sync(folder.children, uri)) is not None:
                    hides = self._hides_path
                    return [child for child in children if not hides("", child["uri"], context.identity)]
        return None

    async def own_contents(self, uri: str, context: ToolContext) -> list[dict[str, Any]]:
        """The contents of a file of the program's folders; `LookupError` if there is none."""
        if self._is_chosen(uri) and not self._hides_path("", uri, context.identity):
            for folder in self._folders:
                if (contents := await anyio.to_thread.run_sync(folder.read, uri)) is not None:
                    return [contents]
        raise LookupError("Resource not found")

    async def _origins(self, uri: str, context: ToolContext) -> list[tuple[str, str, Offers]]:
        """The mounted servers with skills that may have an address, each with its own address for it."""
        servers = self.host.servers(context.identity)
        seen = {name for name, _ in self._carried(context.identity)}
        if not seen:
            return []
        origins = (await self.host.addresses()).origins(uri, ["", *seen])
        return [(server, native, servers[server]) for server, native in origins if server in seen]

    async def _listing(self, server: str, context: ToolContext, within: float = MOST_WAIT) -> _Listing | None:
        """The skills of a mounted server; `None` if it does not say them within so many seconds.

        What it says later is for those who ask later.
        """
        who = None if context.identity is None else context.identity.key
        key = server, who or (context.client_key if isinstance(context, WireContext) else "local")
        now = anyio.current_time()
        if self._silent.get(key, now) > now:
            return None
        if (known := self._kept.get(key)) and known.until > now:
            return known
        asked = self._asked.get(key)
        # Which connection of a personal server is a caller's may depend on more than who it is.
        if asked is None and (key[1] is None or server in self._personal or len(self._asked) >= MAX_ASKED):
            asked = _SkillRequest(now)
            with anyio.move_on_after(within) as waiting:
                await self._ask(server, key, asked, context)
            if waiting.cancelled_caught:
                self._note_silent(key)
            return asked.listing
        if asked is None:
            asked = self._asked[key] = _SkillRequest(now)
            self._background().start(self._ask, server, key, asked, context)
        with anyio.move_on_after(max(asked.since + within - now, 0)):
            await asked.ended.wait()
        return asked.listing

    def _background(self) -> BackgroundWork:
        if self._work is None:
            work = cast("BackgroundWork", self.host.need(BackgroundWork))
            self._work = work.beside(max_running=2 * MAX_ASKED, timeout=2 * MOST_WAIT)
        return self._work

    async def _ask(self, server: str, key: _Key, asked: _SkillRequest, context: ToolContext) -> None:
        """Ask a mounted server for its skills."""
        try:
            offers = self.host.servers(context.identity).get(server)
            if offers is None:
                return
            with anyio.fail_after(MOST_WAIT):
                asked.listing = await self._walked(server, offers, context)
            if self._asked.get(key) is asked:
                _put(self._kept, key, asked.listing)
        except LoginRequiredError:
            return
        except (UpstreamError, TimeoutError) as fault:
            reason = str(fault) or f"{server}: it did not list them within {MOST_WAIT:g} s"
            self._tell(f"{reason}, so its skills are left out")
            self._note_silent(key)
        finally:
            if self._asked.get(key) is asked:
                del self._asked[key]
            asked.ended.set()

    def _note_silent(self, key: _Key) -> None:
        _put(self._silent, key, anyio.current_time() + SILENT)

    async def _walked(self, server: str, offers: Offers, context: ToolContext) -> _Listing:
        entries, hints = dict[str, Entry](), list[CacheHint]()
        cursor: object = None
        for _ in range(MAX_PAGES):
            page = await offers.ask(_LISTS, {} if cursor is None else {"cursor": cursor}, context)
            hints.append(CacheHint.of(page))
            for entry in _objects(page.get("skills")):
                fault = entry_fault(entry)
                if fault or entry["uri"] in entries:
                    fault = fault or "its address is listed twice"
                    self._tell(f"{server}: a skill is left out: {fault}")
                elif len(entries) < MAX_SKILLS:
                    entries[entry["uri"]] = entry
            before, cursor = cursor, page.get("nextCursor")
            if not isinstance(cursor, str) or cursor == before or len(entries) >= MAX_SKILLS:
                break
        is_first = server not in self._names
        self._names[server] = {one["frontmatter"]["name"] for one in entries.values()}
        if is_first:
            self.host.judge_again()
        hint = strictest(hints)
        seconds = min(max(hint.ttl_ms / 1000, LEAST_KEPT), MOST_KEPT)
        return _Listing([*entries.values()], hint, anyio.current_time() + seconds)

    # Policies

    def _hides(self, server: str, name: str, identity: Identity | None) -> bool:
        """True if the policy denies a skill, as it denies a read-only tool of this server with its name."""
        policy = self.host.policy
        if policy is None:
            return False
        return policy.decide_facts(_facts(server, name), policy.group(identity)).kind == "deny"

    async def _is_hidden(self, uri: str, context: ToolContext) -> bool | None:
        """True if an address is of a file of a mounted server's skill that the policy denies.

        `None` while a server that may have it has not listed its skills to the caller.
        """
        addresses = await self.host.addresses()
        seen = self.host.servers(context.identity)
        result = False if all(one.known for one in seen.values()) else None
        skilled = {name for name, _ in self._carried(context.identity)}
        for server, native in addresses.origins(uri, ["", *seen]):
            if not server:
                continue
            beside = await self._beside(server, native, context) if server in skilled else ()
            denied = self._denied_folders(server, beside, context.identity)
            if self._hides_file(server, native, denied, context.identity):
                return True
            result = None if beside is None else result
        return result

    async def _beside(self, server: str, uri: str, context: ToolContext) -> Sequence[Entry] | None:
        """The skills of a server that say in whose folder an address is; `None` if it does not say them.

        An address of the scheme `skill` says it itself.
        """
        if self.host.policy is None or all(form.is_of_skills for form in forms_of(uri)):
            return ()
        listing = await self._listing(server, context)
        return None if listing is None else listing.entries

    def _seen(
        self, server: str, entries: Iterable[Entry], beside: Sequence[Entry] | None, context: ToolContext
    ) -> list[_Skill]:
        """The skills of a mounted server that exist for a caller, each with the files that do."""
        found: list[_Skill] = []
        around = self._denied_folders(server, beside, context.identity)
        for entry in entries:
            own = self._denied_folders(server, [entry], context.identity)
            denied = around | own if own - around else around
            if self._hides_file(server, entry["uri"], denied, context.identity):
                continue
            if (files := entry["resources"]) != DYNAMIC and self.host.policy is not None:
                files = [
                    one for one in files if not self._hides_file(server, one["uri"], denied, context.identity)
                ]
            found.append((server, {**entry, "resources": files}))
        return found

    def _denied_folders(
        self, server: str, skills: Iterable[Entry] | None, identity: Identity | None
    ) -> frozenset[AddressForm]:
        """The folders of those of these skills that the policy denies."""
        if self.host.policy is None:
            return frozenset()
        return frozenset(
            form
            for one in skills or ()
            if self._hides(server, one["frontmatter"]["name"], identity)
            for form in forms_of(one["uri"].removesuffix(SKILL_FILE))
        )

    def _hides_file(
        self, server: str, uri: str, denied: Collection[AddressForm], identity: Identity | None
    ) -> bool:
        """True if a file is in the folder of a denied skill, by its path or by these folders."""
        if self.host.policy is None:
            return False
        return self._hides_path(server, uri, identity) or (
            bool(denied) and any(folder in denied for form in forms_of(uri) for folder in form.folders())
        )

    def _is_chosen(self, uri: str) -> bool:
        """True if an address of the program's own is of a skill that this view of the server has."""
        parts = uri.partition("://")[2].split("/")
        # What is in the folder of a skill is of that skill.
        return any(self.host.includes(ToolFacts(part, hints=_READ_ONLY)) for part in parts[:-1] or parts)

    def _hides_path(self, server: str, uri: str, identity: Identity | None) -> bool:
        """True if an address of the scheme `skill` is in the folder of a skill that the policy denies."""
        if self.host.policy is None:
            return False
        # Any folder of the path may be a skill; the last part is a file, or itself a folder.
        parts = {part for form in forms_of(uri) if form.is_of_skills for part in form.parts}
        return any(self._hides(server, part, identity) for part in parts if part != SKILL_FILE)

    def _tell(self, text: str) -> None:
        if text not in self._told:
            if len(self._told) >= MAX_KEPT:
                self._told.clear()
            self._told.add(text)
            _log.warning("%s", in_log(text))


class _ServedSkills(Skills):
    """One that has folders, and so resources of its own."""

    def read_resource(self, uri: str, context: ToolContext) -> Any:
        """A file of a skill, by its address."""
        return self.own_contents(uri, context) if uri.startswith(f"{SCHEME}://") else None


def _opened(paths: Sequence[Path]) -> list[SkillFolder]:
    if not paths:
        return []
    # A bridge that carries skills of others has no folder.
    from mcp_toolset.extensions.skills.folder import SkillFolder

    return [SkillFolder(path) for path in paths]


def _declared(offers: Offers) -> Mapping[str, Any] | None:
    """The settings of a server's skills; up to 2025-11-25, an SDK may keep them in `experimental`."""
    tables = offers.extensions()
    declared = (tables.get(kind, {}).get(SKILLS) for kind in EXTENSION_TABLES)
    return next((cast("Mapping[str, Any]", one) for one in declared if isinstance(one, Mapping)), None)


def _facts(server: str, name: str) -> ToolFacts:
    """A skill as policies judge it: as a read-only tool of its name."""
    public_name = mounted_name(prefix_from(server), name) if server else name
    return ToolFacts(public_name, "", server, name, _READ_ONLY)


def _carried_entry(found: _Skill, address: Callable[[str, str], str]) -> Entry:
    """The entry of a skill as a client gets it."""
    server, entry = found
    if not server:
        return entry
    meta: Any = entry.get("_meta")
    given = cast("Mapping[str, Any]", meta if isinstance(meta, Mapping) else {})
    made = public(entry, partial(address, server))
    return {**made, "_meta": {**given, SERVER_META_KEY: server}}


def _put(kept: dict[_Key, _V], key: _Key, value: _V) -> None:
    if len(kept) >= MAX_KEPT:
        kept.clear()
    kept[key] = value


def _strictest(modern: bool) -> dict[str, Any]:
    """The cache hint of an answer without one, in the modern era."""
    return STRICTEST.to_wire() if modern else {}


def _objects(value: object) -> Iterable[Mapping[str, Any]]:
    every = cast("list[Any]", value) if isinstance(value, list) else []
    return [cast("Mapping[str, Any]", one) for one in every if isinstance(one, Mapping)]


def _object(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def _address(params: Mapping[str, Any]) -> str:
    uri = params.get("uri")
    if not isinstance(uri, str):
        raise _invalid("uri must be a string")
    return uri


def _invalid(message: str) -> MCPError:
    return MCPError(INVALID_PARAMS, message)


EXTENSION: Final = Skills
