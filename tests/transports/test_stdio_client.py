"""A child process is started as a whole, and ended whatever happens meanwhile."""

from __future__ import annotations

import sys
from collections.abc import Generator
from os import devnull
from typing import Any, TextIO

import anyio
import anyio.lowlevel
import pytest
from anyio.abc import Process
from mcp.client.stdio import StdioServerParameters
from tests.faults.harness import alive, until

from mcp_toolset.transports.stdio_client import child_dispatcher

pytestmark = pytest.mark.anyio


@pytest.fixture
def errors() -> Generator[TextIO]:
    with open(devnull, "w") as file:
        yield file


async def test_a_child_whose_start_is_cancelled_is_ended(
    errors: TextIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    children: list[Process] = []
    start = anyio.open_process

    async def slow(*arguments: Any, **options: Any) -> Process:
        children.append(await start(*arguments, **options))
        scope.cancel()
        await anyio.lowlevel.checkpoint()
        return children[-1]

    monkeypatch.setattr(anyio, "open_process", slow)
    sleeper = ["-S", "-c", "import time; time.sleep(600)"]
    parameters = StdioServerParameters(command=sys.executable, args=sleeper)
    with anyio.fail_after(60), anyio.CancelScope() as scope:
        async with child_dispatcher(parameters, errors, name="sleeper"):
            await anyio.sleep_forever()
    (child,) = children
    await until(lambda: not alive(child.pid))
