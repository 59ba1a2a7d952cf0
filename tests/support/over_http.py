"""An application over HTTP in this process, on a free port of this machine."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio

from mcp_toolset.transports.http.app import bound_socket, run_app

__all__ = ["bound_socket", "on_port"]


@asynccontextmanager
async def on_port(app: Any) -> AsyncGenerator[str]:
    """Serve what `http_app` made; yields the address, without a path."""
    with bound_socket("127.0.0.1", 0) as listening:
        async with anyio.create_task_group() as group:
            group.start_soon(run_app, app, listening)
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
            group.cancel_scope.cancel()
