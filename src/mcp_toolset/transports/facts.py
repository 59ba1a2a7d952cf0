"""`TransportFacts`: what the upstream side has to know of a transport, so that nothing compares names.

A new transport is a line in `TRANSPORTS`, its way of being opened in `upstream.target`, and its name in
files in `config.rules`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

TransportName: TypeAlias = Literal["stdio", "http", "sse", "in-process"]


@dataclass(frozen=True, slots=True)
class TransportFacts:
    """One transport to a mounted server.

    Attributes:
        in_process: The server is an object of this process: nothing is framed, and it speaks 2026-07-28.
        binds_messages: A message of the server comes on the stream of the call that it belongs to
            (2025-11-25, basic/transports, "Streamable HTTP").
        carries_headers: Each request has HTTP headers of its own.
        breaks_requests: One request may fail on the network while the connection goes on.
        starts_process: Each session is a process of this machine.
    """

    in_process: bool = False
    binds_messages: bool = False
    carries_headers: bool = False
    breaks_requests: bool = False
    starts_process: bool = False


TRANSPORTS: Final[Mapping[TransportName, TransportFacts]] = {
    "stdio": TransportFacts(starts_process=True),
    "http": TransportFacts(binds_messages=True, carries_headers=True, breaks_requests=True),
    "sse": TransportFacts(breaks_requests=True),
    "in-process": TransportFacts(in_process=True),
}
"""The transports to a mounted server."""
