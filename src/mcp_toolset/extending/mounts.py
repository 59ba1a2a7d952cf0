"""`MountExtension`: the part of an extension in one mounted server."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, Self

from mcp_toolset._index import declaring, homes, owners
from mcp_toolset._records import dataclass

if TYPE_CHECKING:
    from mcp_toolset.config.extensions import ServerSettings
    from mcp_toolset.tools.call import ToolContext
    from mcp_toolset.tools.definition import ToolDefinition
    from mcp_toolset.tools.result import ToolResult

    Send = Callable[[], Awaitable[ToolResult]]


@dataclass(frozen=True, slots=True)
class DeclaredToMounts:
    """The declaration of an extension to each mounted server, whose client this server is (SEP-2133).

    Attributes:
        identifier: Its name in the client capabilities.
        settings: The value under this name.
        hears: Handlers of notifications of the servers, by method; they get the parameters.
    """

    identifier: str
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    hears: Mapping[str, Callable[[Mapping[str, Any]], Awaitable[None]]] = field(
        default_factory=dict[str, Callable[[Mapping[str, Any]], Awaitable[None]]]
    )


class MountAuth:
    """The credentials of a mounted server: a value of `auth=`, as an `httpx2.Auth` is one."""

    __slots__ = ()

    @property
    def by_caller(self) -> bool:
        """True if each caller has a connection with credentials of its own."""
        return False

    @property
    def forwards(self) -> bool:
        """True if each caller's own `Authorization` is sent on."""
        return False

    @property
    def secrets(self) -> tuple[str, ...]:
        """The values in it that must not be shown."""
        return ()

    def within(self, egress: Any) -> Self:
        """The same with requests that may go besides where an `Egress` allows it."""
        return self


class MountTarget:
    """Base class of a target of `RemoteToolset` that an extension reaches in its own way.

    A target beside a URL, a command and a server of this process. An entry of a file names one by a key of
    the extension's `ServerSettings`; see `ServerSettings.mounts`.
    """

    __slots__ = ()

    def link(self, name: str, headers: Mapping[str, str], hidden: tuple[str, ...], egress: Any) -> Any:
        """The `Link` to the target, of a subclass that opens it.

        Args:
            name: The name of the mount.
            headers: The headers of the mount.
            hidden: Values that must not be shown.
            egress: Hosts to which requests may go besides, an `Egress`.

        Raises:
            DefinitionError: the target cannot be mounted.
        """
        raise NotImplementedError


class MountExtension:
    """Base class of the part of an extension in one connection to a server; override what you need."""

    stated: ServerSettings  # what the entry of the server, or the keywords of `RemoteToolset`, say

    @classmethod
    def of(cls, server: str, stated: ServerSettings, is_ready: Callable[[], bool]) -> Self | None:
        """The part that is asked for; `None` if nothing is.

        Args:
            server: The name of the mount.
            stated: The settings of its entry or its keywords; only an entry has been checked.
            is_ready: True if the server is connected.

        Raises:
            DefinitionError: what is stated cannot be used.
        """
        return None

    @classmethod
    def stand_in(cls, server: str, stated: ServerSettings, *, shares: bool) -> Any:
        """The stand-in (`StandIn`) for clients that cannot be asked, which answers the server; or `None`.

        Args:
            server: The name of the mount.
            stated: As for `of`.
            shares: True if all callers share one session, so that it is not known whose call asks.

        Raises:
            DefinitionError: what is stated cannot be used.
        """
        return None

    @property
    def reason(self) -> str:
        """Why calls are not sent, for the status of the server; empty if they are."""
        return ""

    async def around(self, tool: ToolDefinition, context: ToolContext, send: Send) -> ToolResult:
        """Send a call, which `send` does, as often as it is called."""
        return await send()


def mount_keywords(said: Mapping[str, Any]) -> dict[str, ServerSettings]:
    """The settings of extensions in keywords of `RemoteToolset`, by the key of each.

    Raises:
        TypeError: a keyword is not of an extension.
    """
    # Few mounts have such keywords.
    from mcp_toolset.config.extensions import server_settings_of

    keywords: dict[str, dict[str, Any]] = {}
    for name, value in said.items():
        if (owner := owners("keywords").get(name)) is None:
            raise TypeError(f"RemoteToolset.__init__() got an unexpected keyword argument {name!r}")
        keywords.setdefault(owner, {})[name] = value
    kinds = {owner: server_settings_of(owner) for owner in keywords}
    return {owner: kind(**keywords[owner]) for owner, kind in kinds.items() if kind is not None}


def keywords_of(stated: Mapping[str, ServerSettings]) -> dict[str, Any]:
    """The keywords of `RemoteToolset` for what the entry of a server says."""
    return {name: value for one in stated.values() for name, value in one.keywords().items()}


def target_of(stated: Mapping[str, ServerSettings]) -> MountTarget | None:
    """The target of an entry that has neither a command nor a URL, by the settings of an extension."""
    return next((one.target() for one in stated.values() if one.mounts), None)


def stand_in_of(server: str, stated: Mapping[str, ServerSettings], *, shares: bool) -> Any:
    """The stand-in of a mount, that of the first extension which has one; see `MountExtension.stand_in`."""
    made = (_kind(home).stand_in(server, settings, shares=shares) for home, settings in _parts(stated))
    return next((one for one in made if one is not None), None)


def mount_extensions(
    server: str,
    stated: Mapping[str, ServerSettings],
    is_ready: Callable[[], bool],
    known: Sequence[MountExtension] = (),
) -> tuple[MountExtension, ...]:
    """The parts of extensions in one connection; a known one stays if it was made of the same.

    The arguments are those of `MountExtension.of`, with what is stated by the key of each extension.
    """
    found = list[MountExtension]()
    for home, settings in _parts(stated):
        same = next((one for one in known if one.stated == settings), None)
        made = same or _kind(home).of(server, settings, is_ready)
        if made is not None:
            made.stated = settings
            found.append(made)
    return tuple(found)


def _parts(stated: Mapping[str, ServerSettings]) -> list[tuple[str, ServerSettings]]:
    """The folders of the extensions that something is stated of, in order."""
    return [(home, stated[key]) for key, home in homes("mount").items() if key in stated] if stated else []


def _kind(home: str) -> type[MountExtension]:
    return declaring(home, "mount").MOUNT
