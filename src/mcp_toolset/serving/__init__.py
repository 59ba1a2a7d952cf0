"""From a toolset to a running server: `serve`, and what it prints for the person who started it.

The command line and programs call it. It may import every other room except `cli`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mcp_toolset._lazy import lazily

if TYPE_CHECKING:
    from mcp_toolset.concurrency.signals import run_until_signal
    from mcp_toolset.transports.http.app import bound_socket, run_app

__all__ = [
    "bound_socket",
    "run_app",
    "run_until_signal",
]

_HOMES: Final = {
    "bound_socket": "transports.http.app",
    "run_app": "transports.http.app",
    "run_until_signal": "concurrency.signals",
}

if not TYPE_CHECKING:  # so that a type checker reports a name that is none
    __getattr__, __dir__ = lazily(__name__, _HOMES)
