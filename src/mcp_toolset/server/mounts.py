"""The toolsets of a server while it runs: which can be replaced, which join and leave, what is kept of them.

A server is opened without waiting for what is mounted in it, so that a handshake never does: a request that
needs a mount without a first list waits for it by itself (`UnlistedMounts`). A toolset that leaves is out of
the registry first, so that nothing new is called; calls in flight end on the open upstream (`Attachments`).
"""

from __future__ import annotations

import logging
import os
from abc import ABC, abstractmethod
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager
from dataclasses import field
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeVar, cast

import anyio
import anyio.abc
import anyio.to_thread

from mcp_toolset._records import dataclass, replace
from mcp_toolset._rule import slip_in
from mcp_toolset.calls.middleware import Guard
from mcp_toolset.calls.rules import Rules
from mcp_toolset.catalog.cache_folder import VARIABLE, cache_folder
from mcp_toolset.catalog.grants.access import Visible
from mcp_toolset.catalog.registry.registry import SourceHandle, ToolRegistry
from mcp_toolset.catalog.registry.state import RegistryEntry
from mcp_toolset.concurrency.tasks import ThreadEvent, beside, in_worker_if_large
from mcp_toolset.context.offer_kinds import MountedSource
from mcp_toolset.errors import CallError, DefinitionError, InvalidStateError, StateError, StoreError, sole
from mcp_toolset.extending.joined import Extensions
from mcp_toolset.stores.store import path_of
from mcp_toolset.tools.binding import MAX_NEAR, Executor, NameUse
from mcp_toolset.tools.call import Identity, ToolCall, ToolContext
from mcp_toolset.tools.definition import prefix_from
from mcp_toolset.tools.result import ToolResult
from mcp_toolset.tools.source import ToolSource
from mcp_toolset.tools.toolset import Toolset, inside
from mcp_toolset.tools.view import Each, KnownTools, ToolBinding, UnboundName

if TYPE_CHECKING:
    from mcp_toolset.catalog.registry.kept_catalog import KeptCatalog, KeptFiles
    from mcp_toolset.config.models import HubConfig
    from mcp_toolset.security.authenticator import Authenticator
    from mcp_toolset.security.patterns import Permissions, ToolFacts
    from mcp_toolset.security.policy import Group, Policy
    from mcp_toolset.shared.state import SharedState

TIMEOUT: Final = 10.0
"""Seconds that a reload waits for servers that are starting; what is not there by then joins later."""


@dataclass(frozen=True, slots=True)
class ReloadReport:
    """The outcome of a reload, by names of servers.

    Attributes:
        added: Mounted for the first time.
        removed: Mounted no longer.
        restarted: Started again, because they are reached in another way.
        altered: Named, chosen or judged in another way, over the connection that they had.
        starting: Of those added or restarted, the ones that have not answered yet. One that is started
            again is called as it was until then.
        at_restart: Settings that apply from the next start of the server on.
        settings: Settings of the file, such as `permissions`, that have changed and apply now.
        misconfigured: Those whose entries cannot be used, where that was otherwise before; each has its
            reason as its status.
    """

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    restarted: tuple[str, ...] = ()
    altered: tuple[str, ...] = ()
    starting: tuple[str, ...] = ()
    at_restart: tuple[str, ...] = ()
    misconfigured: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """True if anything was different."""
        differs = (self.added, self.removed, self.restarted, self.altered, self.at_restart)
        return any((*differs, self.misconfigured, self.settings))

    def __str__(self) -> str:
        """One line for people."""
        parts = (
            ("added", self.added),
            ("removed", self.removed),
            ("started again", self.restarted),
            ("altered", self.altered),
            ("still starting", self.starting),
            ("to hold from the next start", self.at_restart),
            ("misconfigured", self.misconfigured),
            ("changed", self.settings),
        )
        return "; ".join(f"{what} {', '.join(names)}" for what, names in parts if names) or "nothing differs"


Reload = Callable[..., Awaitable[ReloadReport]]
"""Serves a `HubConfig`, or with `None` the file read again: see `ToolsetServer.reload`."""


class Reloadable(ABC):
    """A toolset of configured servers."""

    accept: Callable[[HubConfig], None]  # asked about each later configuration; what it raises refuses it
    config: HubConfig
    read: Callable[[], HubConfig]

    @abstractmethod
    def authenticator(self) -> Authenticator | None:
        """The callers that the configuration allows; `None` if it names none."""

    @abstractmethod
    def rely_on_callers(self, known: bool) -> None:
        """Refuse rules for some callers, now and at each reload, if nothing says who calls."""

    @abstractmethod
    def share(self, shared: SharedState) -> None: ...

    @abstractmethod
    def watched(self) -> list[Path]: ...  # the files that the configuration came from, and what it refers to

    @abstractmethod
    def reloads(
        self,
        *,
        sources: Callable[[], Mapping[str, ToolSource]],
        changed: Callable[[], None],
        rebuild: Callable[[], Awaitable[None]],
    ) -> AbstractAsyncContextManager[Reload]:
        """Allow reloads for the length of a block, within a server."""


def reloadable_in(toolset: Toolset) -> Reloadable | None:
    """The first configuration in a toolset; `DefinitionError` if another one speaks for the whole server."""
    found = [each for each in toolsets_in(toolset) if isinstance(each, Reloadable)]
    for other in found[1:]:
        for key in _of_whole_server(other) if found[0] is not other else ():
            raise DefinitionError(
                f"{other.config.path}: toolset.{key} would have no effect beside {found[0].config.path}, "
                "whose settings are for the whole server; move it there, or serve the files apart"
            )
    return found[0] if found else None


def _check_attached(toolset: Toolset) -> None:
    """Raise `DefinitionError` if a configuration speaks for the whole server, which is open already."""
    for each in toolsets_in(toolset):
        if isinstance(each, Reloadable) and (key := next(_of_whole_server(each), "")):
            raise DefinitionError(
                f"{each.config.path}: toolset.{key} would have no effect: it is for the whole server, which "
                "is open by now; give the toolset to ToolsetServer(…) when it is made, or remove the section"
            )


def _of_whole_server(toolset: Reloadable) -> Iterator[str]:
    """The keys of a configuration that turn on what a server has from its start."""
    for key, stated in toolset.config.extensions.items():
        # A field of this name is none of ours.
        adds: object = getattr(cast("Any", type(stated)), "adds", False)
        if stated is not None and adds is not True:
            yield key


def toolsets_in(toolset: Toolset) -> Iterator[Toolset]:
    yield toolset
    for member in inside(toolset):
        if isinstance(member, Toolset):
            yield from toolsets_in(member)


LIST_TIMEOUT: Final = 5.0
"""Seconds from the opening on in which requests wait for mounts of which nothing is known."""


class UnlistedMounts:
    """The mounts that were opened with a server and have neither listed nor failed so far."""

    def __init__(self, timeout: float, current: Callable[[], Awaitable[None]]) -> None:
        self._timeout = timeout
        self._current = current
        self._mounts: list[ToolSource] = []
        self._listing = frozenset[int]()
        self._listed: list[ToolSource] = []
        self._is_sole = False
        self._until = float("-inf")
        self._presumed = False

    def begin(self, sources: Sequence[ToolSource], listing: Collection[ToolSource]) -> None:
        """Begin to wait: they were opened now; of `sources`, those of `listing` are in `tools/list`."""
        self._mounts = [source for source in sources if _is_pending(source)]
        self._listing = frozenset(map(id, listing))
        self._listed = list(listing)
        self._is_sole = len(sources) == 1
        self._until = anyio.current_time() + self._timeout
        self._presumed = False

    def __bool__(self) -> bool:
        """True if any mount was unlisted when this was last looked at; costs next to nothing."""
        return bool(self._mounts)

    def away(self, name: str) -> list[ToolSource]:
        """The mounts that never listed and cannot be called now, whose tools would have names like this."""
        # The tools of the only mount may have any name.
        return [
            source
            for source in self._listed
            if (self._is_sole or name.startswith(f"{prefix_from(source.source_name)}_"))
            and not source.status.is_up
            and not _is_known(source)
        ]

    def presumed(self) -> bool:
        """True if clients are to be told that there may be prompts and resources, for now unknown."""
        # What a client has been told once stays so: a list is then empty, not unheard of.
        if not self._presumed and any(map(_is_pending, self._mounts)):
            self._presumed = True
        return self._presumed

    async def arrive(self, *, listed: bool = False, offers: bool = False) -> None:
        """Wait for unlisted mounts, as long as there is time: if `listed`, not for those behind search."""
        if not self._mounts:
            return
        is_pending = _is_pending if offers else _is_unlisted
        if anyio.current_time() < self._until:
            with anyio.CancelScope(deadline=self._until):
                for source in self._mounts:
                    if not listed or id(source) in self._listing:
                        await _until_not(is_pending, [source])
        await self._taken_in()

    async def bring(self, is_there: Callable[[], bool]) -> None:
        while starting := [source for source in self._mounts if _is_unlisted(source)]:
            await _until_not(_is_unlisted, starting)
            await self._current()
            if is_there():
                return
        if self._mounts:
            await self._taken_in()

    async def _taken_in(self) -> None:
        await self._current()
        self._mounts = [source for source in self._mounts if _is_pending(source)]


async def _until_not(is_pending: Callable[[ToolSource], bool], sources: Sequence[ToolSource]) -> None:
    changed = anyio.Event()
    stops = [source.on_change(lambda: changed.set()) for source in sources]
    try:
        while all(map(is_pending, sources)):
            changed = anyio.Event()
            await changed.wait()
    finally:
        for stop in stops:
            stop()


def _is_known(source: ToolSource) -> bool:
    return isinstance(source, MountedSource) and source.known


def _is_unlisted(source: ToolSource) -> bool:
    return not _is_known(source) and source.status.state in ("starting", "closed")


def _is_pending(source: ToolSource) -> bool:
    """True if its tools are unknown, or what it offers beside them."""
    if _is_unlisted(source):
        return True
    if not isinstance(source, MountedSource) or source.offers.known or source.is_personal:
        # Of a personal one, only its callers may ever know.
        return False
    return source.status.state != "offline"


DRAIN: Final = 30.0  # seconds that calls in flight may take when their toolset leaves, unless told otherwise

_T = TypeVar("_T")


@dataclass(eq=False)
class Attachment:
    """One toolset that has joined, and its calls in flight."""

    toolset: Toolset
    leaving: anyio.Event = field(default_factory=anyio.Event)
    closed: anyio.Event = field(default_factory=anyio.Event)
    calls: set[anyio.CancelScope] = field(default_factory=set[anyio.CancelScope])
    idle: anyio.Event = field(default_factory=anyio.Event)

    def counted(self) -> Toolset:
        return self.toolset.through(
            Each(lambda binding: replace(binding, execute=partial(self._execute, binding.execute))),
            defers=self.toolset.defers,
        )

    async def ended(self, drain: float) -> None:
        """Close the toolset after its calls in flight; after `drain` seconds they are cancelled."""
        try:
            with anyio.move_on_after(drain):
                while self.calls:
                    self.idle = anyio.Event()
                    await self.idle.wait()
        finally:
            for scope in self.calls:
                scope.cancel()
            self.leaving.set()
        await self.closed.wait()

    async def _execute(self, execute: Executor, call: ToolCall, context: ToolContext) -> ToolResult:
        with anyio.CancelScope() as scope:
            self.calls.add(scope)
            try:
                return await execute(call, context)
            finally:
                self.calls.discard(scope)
                if not self.calls:
                    self.idle.set()
        raise CallError(f"{call.name} was ended before it was done: it is not offered any more")


class Attachments:
    """Owns the tasks of the toolsets that have joined a server."""

    def __init__(self, registry: ToolRegistry, changed: Callable[[], None]) -> None:
        self._registry = registry
        self._changed = changed
        self._group: anyio.abc.TaskGroup | None = None
        self._joined: dict[SourceHandle, Attachment] = {}

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        try:
            async with anyio.create_task_group() as self._group:
                yield
                self._group.cancel_scope.cancel()
        finally:
            self._group = None
            for handle in list(self._joined):
                self.leave(handle)

    async def join(self, toolset: Toolset) -> SourceHandle:
        _check_attached(toolset)
        await self._beside(partial(self._registry.check, toolset), toolset)
        async with self._opening(toolset) as attachment:
            handle = await self._beside(lambda: self._registry.register(attachment.counted()), toolset)
            self._joined[handle] = attachment
        return handle

    async def change(
        self, handle: SourceHandle, toolset: Toolset, accept: Callable[[], None] | None = None
    ) -> Attachment:
        """Open a toolset and register it in the place of another, which is returned, still open."""
        # An error that `accept` raises leaves everything as it was, as the errors below do.
        self._require(handle)
        _check_attached(toolset)
        await self._beside(partial(self._registry.check, toolset, instead_of=handle), toolset)
        async with self._opening(toolset) as attachment:
            if accept is not None:
                accept()
            before = self._require(handle)
            await self._beside(lambda: self._registry.replace(handle, attachment.counted()), toolset)
            self._joined[handle] = attachment
        return before

    def leave(self, handle: SourceHandle) -> Attachment:
        self._require(handle)
        self._registry.remove(handle)
        return self._joined.pop(handle)

    async def _beside(self, work: Callable[[], _T], toolset: Toolset) -> _T:
        joining = sum(source.status.tools for source in toolset.sources())
        return await in_worker_if_large(work, joining + len(self._registry.names))

    def _require(self, handle: SourceHandle) -> Attachment:
        attachment = self._joined.get(handle)
        if attachment is None:
            raise StateError(f"{handle.name!r} was not attached to this server, or has been detached already")
        return attachment

    @asynccontextmanager
    async def _opening(self, toolset: Toolset) -> AsyncGenerator[Attachment]:
        if self._group is None:
            raise StateError("toolsets are attached while the server is open; enter it first")
        attachment = Attachment(toolset)
        try:
            await self._group.start(self._own, attachment)
        except BaseExceptionGroup as group:
            raise sole(group) from None
        try:
            yield attachment
        except BaseException:
            attachment.leaving.set()
            raise

    async def _own(self, attachment: Attachment, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        try:
            async with attachment.toolset:
                with ExitStack() as stack:
                    for source in attachment.toolset.sources():
                        stack.callback(source.on_change(self._changed))
                    task_status.started()
                    await attachment.leaving.wait()
        finally:
            attachment.closed.set()


Keeping: TypeAlias = "str | os.PathLike[str] | Literal[False] | None"

KEPT_TTL: Final = 30 * 86_400.0  # seconds for which replicas find what a server has listed

_PURPOSE: Final = "catalog"
_log = logging.getLogger("mcp_toolset.catalog")


def folder_for(keep: Keeping, state: object) -> Path | None:
    if keep is False:
        return None
    if keep is not None:
        return Path(keep)
    if (path := path_of(state)) is not None and VARIABLE not in os.environ:
        return path.with_name(f"{path.name}.catalogs")
    folder = cache_folder()
    return None if folder is None else folder / "catalogs"


class KeptCatalogs:
    """The kept catalogs of one server's mounts."""

    def __init__(self, folder: Callable[[], Path | None], shared: SharedState | None = None) -> None:
        self._folder = folder
        self._shared = shared
        self._files: KeptFiles | None = None
        self._changed = ThreadEvent()
        self._sources: dict[str, MountedSource] = {}
        self._saved: dict[str, KeptCatalog] = {}
        self._stops: list[Callable[[], None]] = []
        self.is_used = True  # mounts get what was kept of them

    async def restore(self, sources: Iterable[ToolSource]) -> None:
        """Give each source what is kept of it, and keep what it lists from now on."""
        self._changed.attach()
        fresh = {
            key: source
            for source in sources
            if isinstance(source, MountedSource)
            and (key := source.keep_key) is not None
            and self._sources.get(key) is not source
        }
        files = self._opened() if fresh else None
        if not fresh or (files is None and self._shared is None):
            return
        for key, source in fresh.items():
            self._sources[key] = source
            self._stops.append(source.on_change(self._changed.set))
        loaded: dict[str, KeptCatalog | None] = {}
        if files is not None:
            loaded = await anyio.to_thread.run_sync(lambda: {key: files.load(key) for key in fresh})
        for key, source in fresh.items():
            kept = loaded.get(key) or await self._fetched(key)
            if kept is not None:
                self._saved[key] = kept
                if self.is_used:
                    await source.remember(kept)

    async def _fetched(self, key: str) -> KeptCatalog | None:
        """The lists that another replica has kept; `None` without one, or if its text is not of a replica."""
        if self._shared is None:
            return None
        from mcp_toolset.catalog.registry.kept_catalog import KeptCatalog

        try:
            sealed = await self._shared.kept(_PURPOSE).get(key)
            data = sealed and self._shared.keys.open(_PURPOSE, sealed.decode(), bound=key)
            return KeptCatalog.from_json(data) if data else None
        except (StoreError, InvalidStateError, UnicodeDecodeError) as fault:
            _log.warning("what another replica has listed of a server cannot be used: %s", fault)
            return None

    def running(self) -> AbstractAsyncContextManager[None]:
        return beside(self._follow, last=self._close)

    async def _close(self) -> None:
        for stop in self._stops:
            stop()
        await self._save()
        self._sources, self._stops = {}, []

    def _opened(self) -> KeptFiles | None:
        if self._files is None and (folder := self._folder()) is not None:
            from mcp_toolset.catalog.registry.kept_catalog import KeptFiles

            self._files = KeptFiles(folder)
        return self._files

    async def _follow(self) -> None:
        while True:
            await self._save()
            await self._changed.wait()

    async def _save(self) -> None:
        changed: dict[str, KeptCatalog] = {}
        for key, source in self._sources.items():
            kept = source.kept()
            if kept is not None and kept != self._saved.get(key):
                self._saved[key] = changed[key] = kept
        if self._files is not None and changed:
            await anyio.to_thread.run_sync(self._save_all, self._files, changed)
        if self._shared is not None:
            await self._put(self._shared, changed)

    def _save_all(self, files: KeptFiles, changed: Mapping[str, KeptCatalog]) -> None:
        for key, kept in changed.items():
            files.save(key, kept)
            _log.debug("kept what a mounted server lists: %s.json", key)

    async def _put(self, shared: SharedState, changed: Mapping[str, KeptCatalog]) -> None:
        for key, kept in changed.items():
            sealed = shared.keys.seal(_PURPOSE, kept.to_json().encode(), bound=key)
            try:
                await shared.kept(_PURPOSE).put(key, sealed.encode(), ttl=KEPT_TTL)
            except StoreError as fault:
                _log.warning("other replicas do not get what a server lists: %s", fault)


def permissions_in(toolset: Toolset) -> Iterator[Permissions]:
    """The permissions that toolsets state, such as those of a configuration."""
    stated = (getattr(each, "stated_permissions", None) for each in toolsets_in(toolset))
    return (each for each in stated if each is not None)


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
    """The tools that callers may know of, by the policies of the program and of configurations together."""

    def __init__(
        self,
        own: Policy | None,
        toolsets: Callable[[], Iterable[Toolset]],
        rules: Rules,
        extensions: Extensions,
        served: Callable[[], str],
    ) -> None:
        self._rules = rules
        self.extensions = extensions
        self._served = served
        self._guarded: tuple[tuple[Guard, ...], Rules] = ((), rules)
        self._own_policy = own
        self._applied: tuple[Policy | None, tuple[Guard, ...]] = (None, ())  # a policy, and what applies it
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
            from mcp_toolset.security.policy import Policy

            self._compiled = (stated, Policy.of(*stated) if stated else None)
        return self._compiled[1]

    def rules(self) -> Rules:
        """The rules with the guards: the same object for as long as nothing that these apply changes."""
        policy = self.policy
        if self._applied[0] is not policy:
            self._applied = (policy, () if policy is None else (self._guard_of(policy),))
        guards, known = (*self._applied[1], *self.extensions.guards()), self._guarded[0]
        if len(guards) != len(known) or any(a is not b for a, b in zip(guards, known, strict=True)):
            self._guarded = (guards, replace(self._rules, guards=(*self._rules.guards, *guards)))
        return self._guarded[1]

    def _guard_of(self, policy: Policy) -> Guard:
        if (found := self.extensions.guard_of(policy)) is not None:
            return found
        from mcp_toolset.calls.permissions import AskingGuard

        return AskingGuard(policy, served=self._served(), record=self.extensions.record)

    def is_for_some(self) -> bool:
        """True if rules of the program, or of what it serves, are for some callers only."""
        wanted, guards = self.wanted(), [*self.rules().guards, *self._carried_guards()]
        every = (wanted, *guards, *self.extensions)
        return any(getattr(one, "varies", False) for one in every)

    def unreached(self, callers: Sequence[Identity], *, of_program: bool) -> list[str]:
        """Messages on rules that apply to none of some callers; with `of_program`, none of files."""
        of_files = () if of_program else (self.wanted(), *self.extensions.guards())
        rules = [self._own_policy, *of_files, *self._rules.guards, *self._carried_guards()]
        asked = [one for each in rules if (one := getattr(each, "unreached", None)) is not None]
        return [*dict.fromkeys(told for one in asked for told in one(callers))]

    def _carried_guards(self) -> list[Guard]:
        every = [tool for toolset in self._toolsets() for tool in toolset.everything()]
        carried = {id(one.rules): one.rules for tool in every for one in tool.carried}
        return [guard for rules in carried.values() for guard in rules.guards]

    def records(self, binding: ToolBinding) -> bool:
        carried = (guard for one in binding.carried for guard in one.rules.guards)
        every = (getattr(one, "replaying", None) for one in (*self.rules().guards, *carried))
        return any(replays(binding) is not None for replays in every if replays is not None)

    def limits_of(self, binding: ToolBinding, identity: Identity | None) -> list[Any]:
        guards = self.rules().guards
        bounding = [of for one in guards if (of := getattr(one, "of", None)) is not None]
        return [limit for of in bounding for limit in of(binding, identity)]

    def unused_limits(self, known: KnownTools, tools: Iterable[ToolBinding]) -> Iterator[UnboundName]:
        return unused_by(self.extensions.guards(), known, tools)

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


def unused_by(
    guards: Iterable[Any], known: KnownTools, tools: Iterable[ToolBinding]
) -> Iterator[UnboundName]:
    """The patterns of guards of extensions that fit none of some tools."""
    taking = [each for one in guards if (each := getattr(one, "unused", None))]
    if not taking:
        return
    # Few servers have such guards.
    from mcp_toolset.security.policy import facts_of

    tools = list(tools)
    public = {fact.own if fact.server else fact.name: fact.name for fact in map(facts_of, tools)}
    for unused in taking:
        for place, pattern in unused(tools):
            use = NameUse(pattern, place)
            near = (public[pattern],) if pattern in public else ()
            yield known.missing(use, near or (slip_in(pattern, public.values()) if use.is_pattern else ()))


def unused_patterns(
    policy: Policy,
    known: KnownTools,
    tools: Iterable[ToolBinding],
    judged: Callable[[], Iterable[ToolFacts]] = tuple,
    unjudged: Callable[[], Iterable[str]] = tuple,
    *,
    in_program: bool = False,
) -> list[UnboundName]:
    """The patterns of a policy that fit none of some tools, nor any tool that is known besides.

    Args:
        policy: The policy.
        known: The tools that are known.
        tools: The tools.
        judged: Gets what else the policy judges; it is asked only if a pattern fits no tool.
        unjudged: Gets the servers of which that is not known yet; also asked only then.
        in_program: True if all of it is written in a program, and not only what begins with `policy`.
    """
    # Imported here, because only a policy needs it.
    from difflib import get_close_matches

    from mcp_toolset.security.patterns import fault_of_server

    facts = {policy.facts(tool): None for tool in (*tools, *known.everything())}
    names = {name.lower(): name for fact in facts for name in fact.names()}
    servers = [source.source_name for source in known.sources]
    found: list[UnboundName] = []
    unused = [*policy.unused(facts)]
    if unused and (others := [*judged()]):
        unused = [*policy.unused([*facts, *others])]
    unlisted = [*unjudged()] if unused else []
    for place, pattern in unused:
        plain = pattern.rpartition(":")[2]
        kind = "pattern" if NameUse(pattern, place).is_pattern else "unknown"
        if kind == "pattern":
            told = tuple(slip_in(plain.rpartition("/")[2], names.values()))
        else:
            told = tuple(names[one] for one in get_close_matches(plain.lower(), names, MAX_NEAR))
        if (in_program or place.startswith("policy")) and fault_of_server(pattern, servers) is not None:
            found.append(UnboundName(pattern, place, (), kind="server"))
        else:
            server, sign, _ = plain.rpartition("/")
            late = [one for one in unlisted if not sign or fnmatchcase(one, server)]
            waiting, starting = (*known.waiting, *late), (*known.starting, *late)
            found.append(UnboundName(pattern, place, told, waiting, kind, starting=starting))
    # A file may have rules for a server that it disables, and names its servers itself.
    sections = (one for stated in policy.permissions for one in stated.servers.items())
    for name, section in sections:
        if name not in servers and section.place.startswith("policy"):
            near = tuple(get_close_matches(name, servers))
            found.append(UnboundName(name, "policy.servers", near, kind="server"))
    return found


def hidden_rules(policy: Policy, known: KnownTools, tools: Iterable[ToolBinding]) -> list[UnboundName]:
    """The general rules of a program's policy that never apply, as the rules of each server allow before."""
    from mcp_toolset.security.patterns import plain_pattern, rule_hidden_everywhere

    servers, found = [source.source_name for source in known.sources], list[UnboundName]()
    facts = [policy.facts(tool) for tool in tools] if servers else []
    own = [name for fact in facts if not fact.server for name in fact.names()]
    for stated in policy.permissions:
        before = {name: stated.servers[name] for name in servers if name in stated.servers}
        # The rules of a file were looked at as it was read.
        if not stated.general.place.startswith("policy") or len(before) < len(servers):
            continue
        deny, ask = (
            tuple(one for one in listed if not any(fnmatchcase(name, plain_pattern(one)) for name in own))
            for listed in (stated.general.deny, stated.general.ask)
        )
        if (
            hidden := rule_hidden_everywhere(replace(stated.general, deny=deny, ask=ask), before)
        ) is not None:
            where = f"{stated.general.place}.{hidden.kind}"
            found.append(UnboundName(hidden.pattern, where, (hidden.wide,), kind="hidden"))
    return found
