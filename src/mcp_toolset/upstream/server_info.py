"""`ServerInfo`: what a mounted server says that it is (`serverInfo`), as its mount and `inspect` show it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from mcp_toolset.protocol.methods import IMPLEMENTATION


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """A server in its own words (schema, `Implementation`).

    Attributes:
        name: The name of its program.
        version: The version of its program.
        title: A name for people.
        description: What it is for.
        website_url: Where more is said about it.
        wire: All that it said, members that no revision knows included.
    """

    name: str
    version: str
    title: str | None = None
    description: str | None = None
    website_url: str | None = None
    wire: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)

    @classmethod
    def of(cls, wire: object) -> ServerInfo | None:
        """What a server says that it is; `None` if that is no `Implementation`."""
        if not isinstance(wire, dict) or IMPLEMENTATION.fault(wire) is not None:
            return None
        members = cast("dict[str, Any]", wire)
        said = {key: value for key, value in members.items() if value is not None}
        return cls(
            said["name"],
            said["version"],
            said.get("title"),
            said.get("description"),
            said.get("websiteUrl"),
            said,
        )
