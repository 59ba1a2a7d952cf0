"""Fixtures for pytest, which finds them by itself: `mcp_client` and `mcp_calls`.

`mcp_client` is for tests that anyio runs (`@pytest.mark.anyio`); anyio is installed with this package.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from anyio.abc import TaskStatus

    from mcp_toolset.serving.in_memory import Client
    from mcp_toolset.serving.scripted import CallRecorder


@pytest.fixture
async def mcp_client(anyio_backend: object) -> AsyncGenerator[Callable[..., Awaitable[Client]]]:
    """A function that connects a client to a server in this process.

    `client = await mcp_client(server)`: it takes what `Client` takes. The client and the server are closed
    after the test.
    """
    # Few test runs of an environment use it.
    import anyio

    from mcp_toolset.serving.in_memory import Client

    ended = anyio.Event()

    async def hold(made: Client, *, task_status: TaskStatus[Client]) -> None:
        async with made as client:
            task_status.started(client)
            await ended.wait()

    async with anyio.create_task_group() as group:

        async def connect(target: Any, **options: Any) -> Client:
            # Each client has a task, so that a test can connect in a block that has a deadline.
            return await group.start(hold, Client(target, **options))

        yield connect
        ended.set()


@pytest.fixture
def mcp_calls() -> CallRecorder:
    """A new `CallRecorder`: give it to a server as middleware, and assert what was called."""
    from mcp_toolset.serving.scripted import CallRecorder

    return CallRecorder()
