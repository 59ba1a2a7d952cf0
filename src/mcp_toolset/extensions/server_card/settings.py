"""Settings of the server card: what the server does not know of itself."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import ClassVar, Final, Self
from urllib.parse import urlsplit

from mcp_toolset._records import dataclass
from mcp_toolset.config.extensions import Settings
from mcp_toolset.config.jsonc import Place
from mcp_toolset.config.tables import Meaning, key
from mcp_toolset.tools.hidden_text import hidden_in, visible

NAME: Final = re.compile(r"[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+")
"""A name in reverse-DNS form."""

MAX_NAME: Final = 200
MAX_TEXT: Final = 100  # characters of the description and of the title
_SHORT: Final = {"type": "str", "min_length": 1, "max_length": MAX_TEXT}


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerCardSettings(Settings):
    """The fields of a card that the server does not know itself."""

    says: ClassVar = Meaning(
        "Publishes a [server card](server-card.md) over HTTP, which everybody may read: `true`, the name of "
        "the server in reverse-DNS form, or an object.",
        "com.example/tools",
    )
    short: ClassVar = "name"

    name: str | None = key(
        {"type": "str", "max_length": MAX_NAME},
        "a name in reverse-DNS form, such as com.example/tools",
        meaning="The server's name in reverse-DNS form; by default of its host and its name.",
        example="com.example/tools",
    )
    description: str | None = key(
        _SHORT,
        f"a text of at most {MAX_TEXT} characters",
        meaning="What the server is for.",
        example="Our tools",
    )
    title: str | None = key(
        _SHORT, f"a text of at most {MAX_TEXT} characters", meaning="Its name for people.", example="Tools"
    )
    url: str | None = key(
        {"type": "str"},
        "an address that begins with https:// or http://",
        meaning="The public address of `/mcp`; by default as the request for the card has it.",
        example="https://tools.example.com/mcp",
    )
    website: str | None = key(
        {"type": "str"},
        "an address that begins with https:// or http://",
        meaning="A page about the server, for people.",
        example="https://example.com/tools",
    )

    def checked(self, place: Place, servers: Mapping[str, str]) -> Self:
        if self.name is not None and NAME.fullmatch(self.name) is None:
            raise place.at("name").error(
                f"is no name in reverse-DNS form: {self.name}", "write it as com.example/tools"
            )
        for steps, text in (("description", self.description), ("title", self.title)):
            if text is not None and not is_shown(text):
                raise place.at(steps).error("has characters that are not shown", "remove them")
        for steps, url in (("url", self.url), ("website", self.website)):
            if url is not None and not is_address(url):
                raise place.at(steps).error(f"is no web address: {visible(url)}", "begin it with https://")
        return self


def is_shown(text: str) -> bool:
    """True for one line of text, each character of which is shown."""
    return not hidden_in(text) and not {"\n", "\r", "\t"} & set(text)


def is_address(url: str) -> bool:
    """True for an address of the web without credentials, whose port is one, and without blanks."""
    if not url.isprintable() or " " in url:
        return False
    try:
        parts = urlsplit(url)
        if parts.port == 0:
            return False
        return parts.scheme in ("http", "https") and bool(parts.hostname) and not parts.username
    except ValueError:
        return False


SETTINGS: Final = ServerCardSettings
