"""What upstreams ask of clients: every crossing of the eras, every pair of transports (P5).

The upstream is `asker.py`; the hub in between is a process of its own wherever a wire leads to it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.sse import sse_client
from tests.bridge.asking import text_of
from tests.interaction.asking_hub import hub
from tests.interaction.desk import Desk

pytestmark = pytest.mark.anyio

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
ENVIRONMENT = {"PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error"}
UPSTREAMS = (
    "memory_modern",
    "stdio_legacy",
    "stdio_modern",
    "http_legacy",
    "http_modern",
    "sse_legacy",
    "sse_modern",
)
Opened = Callable[..., AbstractAsyncContextManager[Client]]


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-W", "error", *arguments]


@pytest.fixture(scope="module")
def targets() -> Generator[dict[str, Any]]:
    """The upstreams, as targets of mounts; those on HTTP are one process."""
    script = str(HERE / "asker.py")
    with printing_port(command(script, "http")) as port:
        url = f"http://127.0.0.1:{port}"
        yield {
            "memory_modern": "memory",
            **{f"stdio_{era}": command(script, "stdio", era) for era in ("legacy", "modern")},
            **{f"http_{era}": f"{url}/{era}/mcp" for era in ("legacy", "modern")},
            **{f"sse_{era}": f"{url}/{era}/sse" for era in ("legacy", "modern")},
        }


@pytest.fixture(scope="module")
def hub_url(targets: dict[str, Any]) -> Generator[str]:
    """One hub of all upstreams, on HTTP and SSE."""
    with printing_port(command(str(HERE / "asking_hub.py"), json.dumps(targets), "http")) as port:
        yield f"http://127.0.0.1:{port}"


class printing_port:  # noqa: N801
    """A process that prints the port it listens on; ended with the block."""

    def __init__(self, argv: list[str]) -> None:
        self.argv = argv

    def __enter__(self) -> int:
        self.process = subprocess.Popen(self.argv, stdout=subprocess.PIPE, env=ENVIRONMENT)
        assert self.process.stdout is not None
        return int(self.process.stdout.readline())

    def __exit__(self, *fault: object) -> None:
        assert self.process.stdout is not None
        self.process.kill()
        self.process.stdout.close()
        self.process.wait()


@pytest.fixture(params=UPSTREAMS)
def upstream(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
async def opened(
    request: pytest.FixtureRequest, transport: str, era: str, upstream: str, targets: dict[str, Any]
) -> AsyncGenerator[Opened]:
    """Connects clients of one era and transport to a hub that has the upstream."""
    mode = "legacy" if era == "legacy" else "auto"
    target, server = {upstream: targets[upstream]}, None
    if transport == "memory":
        server = hub(target)
        await server.__aenter__()
        await server.settled()

    def address() -> Any:
        if server is not None:
            return server.lowlevel
        if transport == "stdio":
            arguments = command(str(HERE / "asking_hub.py"), json.dumps(target), "stdio")[1:]
            return StdioServerParameters(command=sys.executable, args=arguments, env=ENVIRONMENT)
        url: str = request.getfixturevalue("hub_url")
        return sse_client(f"{url}/sse") if transport == "sse" else f"{url}/mcp"

    @asynccontextmanager
    async def client(desk: Desk | None = None, **options: Any) -> AsyncGenerator[Client]:
        options = {**(desk.options if desk else {}), **options}
        with anyio.fail_after(60):
            async with Client(address(), mode=mode, cache=None, **options) as connected:
                while f"{upstream}_ask" not in [tool.name for tool in (await connected.list_tools()).tools]:
                    pass
                yield connected

    try:
        yield client
    finally:
        if server is not None:
            await server.__aexit__(None, None, None)


def roots_cross(transport: str, era: str, upstream: str) -> bool:
    """A modern client on HTTP or in memory cannot be told from others, and roots belong to one client."""
    return not (era == "modern" and transport in ("http", "memory") and upstream.endswith("legacy"))


async def test_p5_everything_an_upstream_asks_is_answered_by_the_client_that_called(
    opened: Opened, transport: str, era: str, upstream: str
) -> None:
    desk = Desk()
    async with opened(desk) as client:

        async def call(name: str, tag: str = "t") -> str:
            return text_of(await client.call_tool(f"{upstream}_{name}", {"tag": tag}))

        assert await call("ask", "form") == "ada:form"
        assert await call("page", "url") == "accept"
        assert (desk.pages[0].url, desk.pages[0].message) == ("https://example.com/url", "url")
        said = json.loads(await call("sample", "two"))
        assert said["stopReason"] == "toolUse" and said["content"][0]["input"] == {"for": "ada:two"}
        asked = desk.samples[0]
        shown = asked.messages[0].content
        assert isinstance(shown, list) and [block.type for block in shown] == ["text", "image"]
        assert asked.tools is not None and [tool.name for tool in asked.tools] == ["look_up"]
        assert (asked.max_tokens, asked.system_prompt, asked.stop_sequences) == (7, "Be brief.", ["."])
        assert await call("twice", "w") == '["ada:w1", "ada:w2"]'
        assert await call("both", "b") == '["ada:b", "toolUse"]'
        if roots_cross(transport, era, upstream):
            assert await call("roots") == "file:///ada"
    if era == "legacy" and upstream.endswith("legacy"):
        assert desk.done == ["page-url"]
