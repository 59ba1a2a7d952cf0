"""`Credentials`: gives a transport the `Authorization` header of each request to one mounted server.

It asks for the header, tells when the server does not take it, and then that it takes another one:

    while (reply := await send(used := await credentials.header(caller))).status in (401, 403):
        refused = True
        if not await credentials.challenged(reply.status, challenge, used, caller):
            return reply
    if refused:
        await credentials.accepted(used)
"""

from __future__ import annotations

from typing import Protocol

from mcp_toolset.tools.call import Identity


class Credentials(Protocol):
    """The credentials for one mounted server."""

    async def header(self, caller: Identity | None) -> str | None: ...

    async def challenged(
        self, status: int, challenge: str, used: str | None, caller: Identity | None
    ) -> bool:
        """Take a refusal; returns whether the request is to be sent again, with another header."""
        ...

    async def accepted(self, used: str | None) -> None:
        """Take note that the server has taken a request that it had refused with other credentials."""


class TokenSource(Credentials, Protocol):
    """The credentials for one mounted server, and what becomes of them elsewhere."""

    async def changed(self) -> None: ...

    async def withdrawn(self) -> None:
        """Return once the credentials in use must not be used any more, as there was a logout."""

    @property
    def secrets(self) -> tuple[str, ...]:
        """The values that must not be shown: those in use, and those that were used until lately."""
        ...
