"""A listening socket whose address is told, for a server that is given port 0 and says nothing itself."""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager
from socket import socket

from mcp_toolset.transports.http.app import bound_socket


@contextmanager
def telling(host: str, port: int) -> Generator[socket]:
    """As `bound_socket`, and a line on standard error; connections wait from then on."""
    with bound_socket(host, port) as listening:
        sys.stderr.write(f"running on http://127.0.0.1:{listening.getsockname()[1]}\n")
        sys.stderr.flush()
        yield listening
