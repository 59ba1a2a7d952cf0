"""`Profiles`: named views of one server, made when they are first asked for."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from copy import copy
from dataclasses import field
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self, cast

import anyio
import anyio.abc

from mcp_toolset._records import dataclass, replace
from mcp_toolset.config.jsonc import Place
from mcp_toolset.errors import DefinitionError, TargetError, ToolsetError
from mcp_toolset.extending.extension import Extension
from mcp_toolset.extensions.profiles.settings import Profile, ProfilesSettings
from mcp_toolset.security.patterns import is_for, split_hint

if TYPE_CHECKING:
    from mcp_toolset.config.extensions import Settings
    from mcp_toolset.extending.host import Host, ServedView, ViewOptions
    from mcp_toolset.tools.call import Identity
    from mcp_toolset.tools.source import ToolSource

_NONE: Final[Mapping[str, Profile]] = MappingProxyType({})

_IN_PROGRAM: Final = Place("ToolsetServer", ("profiles",))

DRAIN: Final = 30.0
"""Seconds that calls in flight may take when their profile is removed."""


@dataclass(eq=False, slots=True)
class _Opened:
    """A profile that was asked for: its view, open in a task until it is left."""

    profile: Profile
    view: ServedView | None = None
    fault: Exception | None = None
    ready: anyio.Event = field(default_factory=anyio.Event)
    left: anyio.Event = field(default_factory=anyio.Event)


class Profiles(Extension):
    """The profiles of one server."""

    key: ClassVar = "profiles"
    in_views: ClassVar = "none"
    views_at: ClassVar = "/p/"

    def __init__(self, profiles: Mapping[str, Any] | None = None, *, chosen: str = "") -> None:
        """Take profiles beside those of the configuration.

        Args:
            profiles: Profiles by name, as in a file: `{"work": {"tools": ["github/*"]}}`.
            chosen: The profile that one client gets in place of the server: on stdio, and for commands.

        Raises:
            ConfigError: a profile cannot be used as it is written.
        """
        self._own: Mapping[str, Profile] = _read(profiles or {})
        self.chosen = chosen
        self._now = self._own  # with those of the configuration
        self._opened: dict[str, _Opened] = {}
        self._group: anyio.abc.TaskGroup | None = None

    @classmethod
    def of(cls, said: Any, stated: Settings | None, host: Host) -> Self:
        """Build the extension from its keyword: profiles by name, or the name of the one to use."""
        if isinstance(said, str):
            if not said:
                raise DefinitionError("profiles: the name of the profile is empty; name one, or leave it out")
            return cls(chosen=said)
        return cls(None if said is True else said)

    def showing(self, name: str) -> Self:
        """The same profiles, with the one that one client gets."""
        shown = copy(self)
        shown.chosen = name
        return shown

    @classmethod
    def at_restart(cls, before: Settings | None, now: Settings | None) -> bool:
        """True for the first profiles of a file: every other change holds at once."""
        return before is None

    def bind(self, host: Host) -> Self:
        """Open the profiles of one server.

        Raises:
            TargetError: there is no profile like the chosen one.
        """
        bound = super().bind(host)
        bound._opened, bound._group, bound._now = {}, None, bound.profiles
        if bound.chosen:
            # Before servers are started.
            bound._require(bound.chosen)
        return bound

    @property
    def varies(self) -> bool:
        """True if the profiles of the program have rules for some callers only."""
        own = replace(ProfilesSettings(), profiles=self._own)
        return any(True for _ in own.for_callers(_IN_PROGRAM))

    @property
    def profiles(self) -> Mapping[str, Profile]:
        """The profiles now, by name."""
        stated = cast("ProfilesSettings | None", self.host.stated(self.key))
        return {**(_NONE if stated is None else stated.profiles), **self._own}

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Own the open profiles for the length of a block."""
        async with anyio.create_task_group() as self._group:
            try:
                yield
            finally:
                group, self._group, self._opened = self._group, None, {}
                group.cancel_scope.cancel()

    async def view(self, name: str, identity: Identity | None) -> ServedView | None:
        """The view of a profile for a caller; `None` if the profile does not exist for that caller.

        Raises:
            ToolsetError: the profile cannot be served as it is written.
        """
        profile = self._now.get(name)
        if profile is None or not (profile.callers is None or _may_use(profile, identity)):
            return None
        # Nearly every request is for a view that is open.
        opened = self._opened.get(name)
        return opened.view if opened is not None and opened.view is not None else await self._open(profile)

    async def _open(self, profile: Profile) -> ServedView | None:
        opened = self._opened.get(profile.name)
        if opened is None:
            if self._group is None:
                return None
            opened = self._opened[profile.name] = _Opened(profile)
            self._group.start_soon(self._run, opened)
        await opened.ready.wait()
        if opened.fault is not None:
            raise opened.fault
        return opened.view

    def shown(self) -> ViewOptions | None:
        """The chosen profile.

        Raises:
            TargetError: there is no such profile.
        """
        return self._require(self.chosen).options if self.chosen else None

    async def entered(self) -> ServedView | None:
        """The chosen profile, for the one client of this process.

        Raises:
            TargetError: there is no such profile.
        """
        if not self.chosen:
            return None
        return await self._open(self._require(self.chosen))

    def _require(self, name: str) -> Profile:
        if (profile := self._now.get(name)) is not None:
            return profile
        known = [*self._now]
        near = get_close_matches(name, known, n=1)
        mend = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known) or 'none'}"
        raise TargetError(f"there is no profile {name!r} in toolset.profiles; {mend}")

    def compiled(self, sources: Mapping[str, ToolSource]) -> None:
        """Take over what the configuration says now; open profiles change, or are left."""
        now = self._now = self.profiles
        for name, opened in list(self._opened.items()):
            profile = now.get(name)
            if profile == opened.profile:
                continue
            if profile is not None and opened.view is not None and opened.view.become(profile.options):
                opened.profile = profile
            else:
                del self._opened[name]
                opened.left.set()

    async def _run(self, opened: _Opened) -> None:
        """Keep a profile open until it is left, and its calls have ended."""
        try:
            async with self.host.viewed(opened.profile.options) as view:
                opened.view = view
                opened.ready.set()
                await opened.left.wait()
                await view.leave(DRAIN)
        except ToolsetError as fault:
            opened.fault = fault
            self._opened.pop(opened.profile.name, None)
        finally:
            opened.ready.set()


def _may_use(profile: Profile, identity: Identity | None) -> bool:
    callers = profile.callers
    return callers is None or (identity is not None and is_for(callers, identity))


def _read(said: Mapping[str, Any]) -> Mapping[str, Profile]:
    if not said:
        return {}
    from mcp_toolset.config.variables import Variables

    variables = Variables(os.environ, Path.cwd(), {})
    # A program mounts servers as it likes: every name of one stands for one.
    servers = dict.fromkeys(_heads(said), "")
    return ProfilesSettings.read(
        dict(said), Place("ToolsetServer", ("profiles",)), variables, servers
    ).profiles


def _heads(said: object) -> Iterator[str]:
    """The names of servers in patterns such as `readOnly:github/*`."""
    if isinstance(said, str):
        yield split_hint(said)[1].rpartition("/")[0]
    elif isinstance(said, Mapping):
        for key, value in cast("Mapping[str, object]", said).items():
            yield from (*_heads(key), *_heads(value))
    elif isinstance(said, Sequence):
        for one in cast("Sequence[object]", said):
            yield from _heads(one)


EXTENSION = Profiles
