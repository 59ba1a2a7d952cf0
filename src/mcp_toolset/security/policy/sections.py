"""`Section` and `Permissions`: the rules of a policy as data, as a configuration or a program states them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from types import MappingProxyType
from typing import Final, Literal

from mcp_toolset._records import dataclass

Kind = Literal["allow", "ask", "deny"]

KINDS: Final[tuple[Kind, ...]] = ("deny", "ask", "allow")
"""In the order in which the lists of one section are asked; the strictest first."""


@dataclass(frozen=True, slots=True)
class Section:
    """Patterns of tools that are allowed, asked about or denied, and the callers that they are for.

    Attributes:
        place: Where it is written, such as `permissions.for[0]`.
        allow: Patterns of the allowed tools. If there is a list, even an empty one, no other tool is allowed.
        ask: Patterns of the tools that need an approval.
        deny: Patterns of the tools that do not exist for the caller.
        principals: Names, patterns of names, or keys of callers; `None` for every caller.
        roles: A caller with one of these roles; `None` for every caller.
        scopes: A caller with one of these scopes; `None` for every caller.
    """

    place: str
    allow: tuple[str, ...] | None = None
    ask: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    principals: tuple[str, ...] | None = None
    roles: tuple[str, ...] | None = None
    scopes: tuple[str, ...] | None = None

    def patterns(self) -> Iterator[tuple[Kind, str]]:
        """Each pattern with what it decides, in the order in which they are asked."""
        for kind, patterns in zip(KINDS, (self.deny, self.ask, self.allow or ()), strict=True):
            for pattern in patterns:
                yield kind, pattern


@dataclass(frozen=True, slots=True)
class Permissions:
    """All sections of one policy.

    Attributes:
        general: For every caller and every tool.
        servers: By server, for its tools and every caller.
        callers: For some callers, in the order in which they are asked, before all others.
    """

    general: Section = Section("permissions")
    servers: Mapping[str, Section] = field(default_factory=lambda: MappingProxyType({}), hash=False)
    callers: tuple[Section, ...] = ()

    def __bool__(self) -> bool:
        """Whether it says anything about any tool."""
        return any(section.allow is not None or section.ask or section.deny for section in self.sections())

    def sections(self) -> Iterator[Section]:
        """All of them, in the order in which they are asked."""
        yield from self.callers
        yield from self.servers.values()
        yield self.general
