"""Run a server: `serve`, HTTP applications until a signal, and the messages for the person who started it.

The command line and programs call it. It may import every other room except `cli`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcp_toolset._lazy import homes_of, lazily

if TYPE_CHECKING:
    from mcp_toolset.concurrency.signals import run_until_signal
    from mcp_toolset.transports.http.app import bound_socket, run_app

__all__ = ["bound_socket", "run_app", "run_until_signal"]

if not TYPE_CHECKING:  # so that a type checker reports a name that is none
    __getattr__, __dir__ = lazily(__name__, homes_of(__all__))
