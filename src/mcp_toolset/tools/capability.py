"""The capabilities that a tool can be granted beyond its arguments, and what they show (H4)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Protocol

from mcp_toolset.errors import DefinitionError

CAPABILITIES: Final = {
    "progress": "report progress to the caller",
    "log": "send log messages to the caller",
    "ask": "ask the user a question",
    "sample": "have the client's model write something",
    "roots": "see which folders the client works in",
    "session": "see who calls and which tools the caller sees",
    "catalog": "search the deferred tools",
}
"""What each capability allows. Others of row H4 cannot be granted and are therefore always refused."""

ALWAYS: Final = frozenset({"progress", "log"})
"""Granted to every tool: they tell the caller about its own call and nothing else."""


@dataclass(frozen=True, slots=True)
class SessionSnapshot:
    """What a tool may know of the session that it is called in, as it is now.

    Attributes:
        session: The session's name, where the protocol has sessions.
        principal: Who the caller has proved to be.
        protocol_version: The protocol revision of the call; `None` without a wire.
        tools: The public names that this caller is shown, in order.
    """

    session: str | None
    principal: str | None
    protocol_version: str | None
    tools: tuple[str, ...]


class CatalogHit(Protocol):
    """One deferred tool that a search has found (H21)."""

    @property
    def name(self) -> str:
        """Its public name."""
        ...

    @property
    def server(self) -> str | None:
        """The source it comes from, if any."""
        ...

    @property
    def description(self) -> str:
        """One line about it."""
        ...

    @property
    def score(self) -> float:
        """From 0 to 1."""
        ...


def granted(names: Iterable[str], where: str) -> frozenset[str]:
    """Capabilities by name, checked.

    Raises:
        DefinitionError: it is one text instead of several, or there is no such capability.
    """
    if isinstance(names, str):
        raise DefinitionError(f"{where}: capabilities is a list of names: capabilities=[{names!r}]")
    wanted = frozenset(names)
    unknown = sorted(wanted - CAPABILITIES.keys())
    if unknown:
        known = ", ".join(CAPABILITIES)
        raise DefinitionError(f"{where}: there is no capability {unknown[0]!r} to grant; there are {known}")
    return wanted
