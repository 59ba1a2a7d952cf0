"""`ServerCard`: publishes how to connect to a server, at `/mcp/server-card` (SEP-2127).

A card has no tools, resources or prompts: who may know of these is asked for them by the protocol.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final, Self, cast
from urllib.parse import urlsplit

from mcp_toolset.errors import DefinitionError
from mcp_toolset.extending.extension import Extension, HttpPage
from mcp_toolset.extensions.server_card import settings
from mcp_toolset.protocol.json_rpc import json_of
from mcp_toolset.protocol.methods import KNOWN_PROTOCOL_VERSIONS

if TYPE_CHECKING:
    from mcp_toolset.config.extensions import Settings
    from mcp_toolset.extending.host import Host

PATH: Final = "/mcp/server-card"
KIND: Final = "application/mcp-server-card+json"
MAX_AGE: Final = 3600  # seconds for which caches may keep a card
SCHEMA: Final = "https://static.modelcontextprotocol.io/schemas/v1/server-card.schema.json"

_OUTSIDE: Final = re.compile(r"[^a-zA-Z0-9._-]+")


class ServerCard(Extension):
    """Publishes a card of the server over HTTP; see docs/server-card.md."""

    key = "server_card"
    Settings = settings.ServerCardSettings

    def __init__(
        self,
        name: str | None = None,
        *,
        description: str | None = None,
        title: str | None = None,
        url: str | None = None,
        website: str | None = None,
    ) -> None:
        """Say what the server does not know of itself.

        Args:
            name: Its name in reverse-DNS form, such as `com.example/tools`; by default of host and name.
            description: Its purpose, in at most 100 characters.
            title: Its name for people, in at most 100 characters.
            url: The public address of its `/mcp`; by default as the request for the card has it.
            website: The address of a page about it, for people.

        Raises:
            DefinitionError: the name, a text or an address breaks the rules of cards.
        """
        texts = {"name": name, "description": description, "title": title, "url": url, "website": website}
        for what, text in texts.items():
            if not isinstance(text, str | None):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise DefinitionError(f"server_card: its {what} is no text: {text!r}")
        if name is not None and (settings.NAME.fullmatch(name) is None or len(name) > settings.MAX_NAME):
            raise DefinitionError(f"server_card: {name!r} is no name such as com.example/tools")
        for what, text in (("description", description), ("title", title)):
            if text is not None and not 0 < len(text) <= settings.MAX_TEXT:
                raise DefinitionError(
                    f"server_card: its {what} has {len(text)} characters, not 1 to {settings.MAX_TEXT}"
                )
            if text is not None and not settings.is_shown(text):
                raise DefinitionError(f"server_card: its {what} has characters that are not shown: {text!r}")
        for what, address in (("url", url), ("website", website)):
            if address is not None and not settings.is_address(address):
                raise DefinitionError(f"server_card: its {what} is no web address: {address!r}")
        self._name, self._description, self._title = name, description, title
        self._url, self._website = url, website

    @classmethod
    def of(cls, said: Any, stated: Settings | None, host: Host) -> Self | None:
        """The extension for a keyword: `True`, a name, or the arguments; else for the file's settings."""
        if not isinstance(said, Mapping):
            return super().of(said, stated, host)
        known = [field.name for field in fields(settings.ServerCardSettings)]
        if wrong := [one for one in cast("Mapping[str, str]", said) if one not in known]:
            raise DefinitionError(f"server_card: there is no key {wrong[0]!r}; use {', '.join(known)}")
        return cls(**cast("Mapping[str, str]", said))

    def http_pages(self) -> Mapping[str, HttpPage]:
        """The card, below the address of the protocol."""
        return {PATH: HttpPage(lambda _, base: (json_of(self.card(base)), KIND), max_age=MAX_AGE)}

    def card(self, base: str = "") -> dict[str, Any]:
        """The card of a server that is reached at an address such as `https://host:8000`, or at none."""
        url = self._url or (f"{base}/mcp" if settings.is_address(base) else "")
        remote = {
            "type": "streamable-http",
            "url": url,
            "supportedProtocolVersions": [*KNOWN_PROTOCOL_VERSIONS],
        }
        return {
            "$schema": SCHEMA,
            "name": self._name or self._named(url),
            "version": self.host.version,
            "description": self._description or f"The MCP server {self.host.name}"[: settings.MAX_TEXT],
            **({"title": self._title} if self._title else {}),
            **({"websiteUrl": self._website} if self._website else {}),
            **({"remotes": [remote]} if url else {}),
        }

    def _named(self, url: str) -> str:
        host = urlsplit(url).hostname or "localhost"
        is_name = not host.replace(".", "").isdecimal() and ":" not in host
        space = ".".join(reversed(host.split("."))) if is_name else "localhost"
        own = _OUTSIDE.sub("-", self.host.name).strip("-") or "server"
        return f"{space}/{own}"[: settings.MAX_NAME]


EXTENSION: Final = ServerCard
