"""`MountState`: the present state of a mounted server; `KnownServer`: its description of itself.

`catalog_of` makes the lists of a server that are kept for the next run.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field
from functools import partial
from typing import Any, Final, cast

import anyio

from mcp_toolset._callbacks import Callbacks
from mcp_toolset._records import dataclass
from mcp_toolset.catalog.instructions import clean_instructions, one_line
from mcp_toolset.catalog.pins.policy import scrubbed
from mcp_toolset.catalog.registry.kept_catalog import KeptCatalog
from mcp_toolset.catalog.snapshot import CatalogSnapshot
from mcp_toolset.errors import UpstreamUnavailableError
from mcp_toolset.protocol.methods import IMPLEMENTATION
from mcp_toolset.tools.hidden_text import HiddenTextPolicy, cleaned_metadata
from mcp_toolset.tools.source import SourceState
from mcp_toolset.upstream.target import Link


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """A server's description of itself (MCP schema, `Implementation`)."""

    name: str  # the name of its program
    version: str  # the version of its program
    title: str | None = None  # a name for people
    description: str | None = None  # its purpose
    website_url: str | None = None  # the address of a page about it
    wire: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)

    @classmethod
    def of(cls, wire: object) -> ServerInfo | None:
        """Read `serverInfo`; `None` if it is invalid."""
        if not isinstance(wire, dict) or IMPLEMENTATION.fault(wire) is not None:
            return None
        members = cast("dict[str, Any]", wire)
        given = {key: value for key, value in members.items() if value is not None}
        return cls(
            given["name"],
            given["version"],
            given.get("title"),
            given.get("description"),
            given.get("websiteUrl"),
            given,
        )


MAX_INSTRUCTIONS: Final = 100_000
"""Characters of a server's instructions that are kept; each client costs a search for hidden text."""


class KnownServer:
    """The information and the instructions that a server sent about itself."""

    def __init__(self, link: Link) -> None:
        self.info: ServerInfo | None = None  # `None` before anything is known
        self.instructions = self.about = ""  # its instructions, unchanged, and one line about it
        self._link = link

    def take(self, server: ServerInfo | None, instructions: str) -> None:
        """Note what the server says about itself."""
        instructions = instructions[:MAX_INSTRUCTIONS]
        self.info, self.instructions = server, instructions
        about = "" if server is None else server.description or server.title or ""
        self.about = self._link.secrets.scrubbed(one_line(about or instructions))

    def shown_instructions(self, policy: HiddenTextPolicy) -> str:
        """The instructions for clients: without secrets, and with hidden text treated by `policy`."""
        return clean_instructions(self._link.secrets.scrubbed(self.instructions), policy)

    def identity(self, live: ServerInfo | None) -> str:
        """The target and the server's name, by which pins and grants know the server."""
        server = live or self.info
        return f"{self._link.identity}:{server.name if server else ''}"


LONGEST_ICON: Final = 2048  # characters of an icon's address; a longer one has the image itself in it

Wire = Mapping[str, Any]


def keep_key(link: Link, *settings: str | bool | Collection[str]) -> str | None:
    """The key of a mount's kept lists: a digest of its name, its target and its settings."""
    # Headers and environment are left out: they hold credentials. A server of this process has no key.
    if link.facts.in_process:
        return None
    values = [value if isinstance(value, str | bool) else sorted(value) for value in settings]
    return hashlib.sha256(json.dumps([link.name, link.identity, *values]).encode()).hexdigest()[:32]


def catalog_of(
    link: Link,
    listed: CatalogSnapshot,
    *,
    server: ServerInfo | None,
    instructions: str,
    capabilities: Wire,
    offers: Mapping[str, Sequence[Wire]],
) -> KeptCatalog:
    """The lists of a server, without secrets, to be kept for the next run."""
    tools = [tool.definition.to_wire() for tool in listed.tools.values()]
    about = {} if server is None else dict(server.wire)
    plain = {method: [dict(entry) for entry in entries] for method, entries in offers.items()}
    catalog = KeptCatalog(tools, about, instructions, capabilities, plain)
    if not link.secrets:
        return catalog
    clean = partial(scrubbed, scrub=link.secrets.scrubbed)
    return KeptCatalog(
        [tool for tool in clean(tools) if tool.get("name") in listed.tools],
        clean(about),
        link.secrets.scrubbed(instructions),
        clean(capabilities),
        clean(plain),
    )


def introduction(server: ServerInfo | None, link: Link) -> dict[str, Any]:
    """A server's description of itself in wire form, without secrets, hidden text and large icons."""
    if server is None:
        return {}
    wire = dict(server.wire)
    icons = [icon for icon in wire.pop("icons", ()) if len(str(icon.get("src", ""))) <= LONGEST_ICON]
    if icons:
        wire["icons"] = icons
    return cast("dict[str, Any]", cleaned_metadata(link.secrets.cleaned(wire)))


class MountState:
    """The state of one mounted server: its supervisor sets it, calls read it."""

    def __init__(self, link: Link) -> None:
        self.now: SourceState = "closed"  # the state
        self.reason = ""  # why it is in this state, cleared of secrets
        self.retry_in: float | None = None  # seconds until the next attempt, if one is planned
        self.used = False  # True after a request of a client was forwarded; reset from outside
        self.calls = 0  # the number of forwarded requests
        self.wake: Callable[[], None] = lambda: None  # starts the server if it is stopped
        self._link = link
        self.changed = Callbacks()  # told when the state or a list has changed

    def set(self, now: SourceState, reason: str, retry_in: float | None = None) -> None:
        """Change the state, and tell of it."""
        self.now, self.reason, self.retry_in = now, self._link.secrets.scrubbed(reason), retry_in
        self.changed.tell()

    async def summoned(self, within: float) -> None:
        """Start a stopped server; wait for a start that is under way, at most `within` seconds."""
        self.wake()
        if self.now == "starting":
            await self.arrived(within)

    async def arrived(self, within: float) -> None:
        """Wait until the server is not starting any more, at most `within` seconds."""
        arrived = anyio.Event()

        def changed() -> None:
            if self.now != "starting":
                arrived.set()

        stop = self.changed.add(changed)
        try:
            with anyio.move_on_after(within):
                await arrived.wait()
        finally:
            stop()

    def require_ready(self) -> None:
        """Raise `UpstreamUnavailableError`, with the reason, unless the server is ready."""
        if self.now == "ready":
            return
        reason = f"the server is {self.now}" + (f": {self.reason}" if self.reason else "")
        again = f"; next attempt within {self.retry_in:g} s" if self.retry_in else ""
        raise UpstreamUnavailableError(self._link.name, reason + again, sent=False)
