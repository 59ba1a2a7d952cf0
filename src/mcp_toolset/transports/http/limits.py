"""`HttpLimits`: how much a server on HTTP keeps for its clients, for each address and in all.

    server.http_app(limits=HttpLimits(sessions_per_peer=50))

An address is a client's IP address as the socket has it. Behind a proxy all clients have the proxy's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Final, cast

from mcp_toolset._records import dataclass
from mcp_toolset.errors import DefinitionError

_MB: Final = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpLimits:
    """The limits of one application; each is a positive number.

    Attributes:
        sessions: Legacy sessions that may be open; a further session ends the oldest idle session.
        sessions_per_peer: The same for one address.
        unread: Bytes of answers that clients have not read; an answer beyond the limit is dropped.
        unread_per_peer: The same for one address.
        header_lines: Header lines of one request.
        kept: Bytes of events that are kept so that legacy clients can resume a broken stream.
        kept_per_session: The same for one session.
    """

    sessions: int = 2000
    sessions_per_peer: int = 500
    unread: int = 256 * _MB
    unread_per_peer: int = 40 * _MB
    header_lines: int = 200
    kept: int = 64 * _MB
    kept_per_session: int = 16 * _MB

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if type(value) is not int or value < 1:
                raise DefinitionError(f"HttpLimits: {field.name} is a positive whole number, not {value!r}")


def peer_of(client: object) -> str:
    """The address in the `client` of an ASGI scope; empty if there is none."""
    address = cast("Sequence[object]", client)
    return str(address[0]) if address else ""
