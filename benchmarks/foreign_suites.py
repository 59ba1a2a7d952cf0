"""Run the test suite of another project with this bridge between its clients and its servers.

`python -m benchmarks.foreign_suites sdk PATH -- -k in-memory` runs `tests/interaction` of a checkout of
modelcontextprotocol/python-sdk, `fastmcp PATH` the tests of `tests/client` of PrefectHQ/fastmcp.
`--bridge none` runs the suite as it is, `default` with a mount as it is by default, `pass` with
`unlisted="pass"`. What stands after `--` is for pytest. What the suite needs beside this package, such as
`inline-snapshot`, has to be importable.

The suite makes each client by a helper that is given a server. Here its server becomes a `RemoteToolset`, and
the helper gets the bridge in front of that. The server is reached in process, by streamable HTTP or by SSE.
"""

# The checks run in .venv, which is without fastmcp.
# pyright: reportMissingImports=false, reportPrivateUsage=false

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import anyio
import pytest

from mcp_toolset import RemoteToolset, ToolsetServer

SUITES = {"sdk": "tests/interaction", "fastmcp": "tests/client"}


@asynccontextmanager
async def listening(app: Any) -> AsyncGenerator[int]:
    """An ASGI app on a free port of loopback."""
    import uvicorn

    config = uvicorn.Config(app, host="127.0.0.1", port=0, log_level="error", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    async with anyio.create_task_group() as group:
        group.start_soon(server.serve)
        with anyio.fail_after(30):
            while not server.started:  # noqa: ASYNC110 - uvicorn tells nobody
                await anyio.sleep(0.005)
        yield server.servers[0].sockets[0].getsockname()[1]
        server.should_exit = server.force_exit = True


@asynccontextmanager
async def bridged(target: Any, rule: Any) -> AsyncGenerator[ToolsetServer]:
    """A bridge in front of one server."""
    mount = RemoteToolset(target, name="server", unlisted=rule)
    async with ToolsetServer(mount, keep=False) as bridge:
        await bridge.settled()
        yield bridge


def with_bridge(factory: Callable[..., Any], transport: str, rule: str) -> Callable[..., Any]:
    """A connection helper of the SDK's interaction suite, with the bridge in front of its server."""
    helpers: Any = sys.modules["tests.interaction._connect"]

    @asynccontextmanager
    async def connect(server: Any, **options: Any) -> AsyncGenerator[Any]:
        async with AsyncExitStack() as stack:
            enter = stack.enter_async_context
            target: Any = server
            if transport == "sse":
                target = f"http://127.0.0.1:{await enter(listening(helpers.build_sse_app(server)[0]))}/sse"
            elif transport != "in-memory" or options["spec_version"] < "2026":
                app = server.streamable_http_app(
                    stateless_http=transport.endswith("stateless"),
                    transport_security=helpers.NO_DNS_REBINDING_PROTECTION,
                )
                target = f"http://127.0.0.1:{await enter(listening(app))}/mcp"
            bridge = await enter(bridged(target, rule))
            yield await enter(factory(bridge.lowlevel, **options))

    return connect


class SdkSuite:
    """The plugin for the SDK's suite, whose helpers stand in a table of its `conftest`."""

    def __init__(self, rule: Any) -> None:
        self.rule = rule

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        """Leave only the tests that connect by a helper, and put the bridge into the helpers."""
        items[:] = [one for one in items if "connect" in one.fixturenames and "trio" not in one.callspec.id]
        if self.rule == "none":
            return
        conftest: Any = next(
            module
            for name, module in sys.modules.items()
            if name.endswith("conftest") and hasattr(module, "_FACTORIES")
        )
        factories = cast("dict[str, Any]", conftest._FACTORIES)
        for transport, factory in factories.items():
            factories[transport] = with_bridge(factory, transport, self.rule)


class FastmcpSuite:
    """The plugin for FastMCP's suite, whose clients connect by `FastMCPTransport`."""

    def __init__(self, rule: Any) -> None:
        self.rule = rule
        self.connected: set[str] = set()
        self.passed: set[str] = set()

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        """Put the bridge into the transport."""
        from fastmcp.client.transports import memory

        transport: Any = memory.FastMCPTransport
        lifespan: Any = memory._enter_server_lifespan
        lowlevel: Any = memory._lowlevel_of
        direct, suite = transport.connect_session, self

        @asynccontextmanager
        async def connect(self: Any, **options: Any) -> AsyncGenerator[Any]:
            suite.connected.add(os.environ["PYTEST_CURRENT_TEST"].rpartition(" ")[0])
            async with AsyncExitStack() as stack:
                through = self
                if suite.rule != "none":
                    await stack.enter_async_context(lifespan(self.server))
                    # A server in process is of 2026-07-28 to the bridge, and these ask as older ones do.
                    app = lowlevel(self.server).streamable_http_app()
                    port = await stack.enter_async_context(listening(app))
                    target = f"http://127.0.0.1:{port}/mcp"
                    bridge = await stack.enter_async_context(bridged(target, suite.rule))
                    through = transport(SimpleNamespace(_mcp_server=bridge.lowlevel), self.raise_exceptions)
                yield await stack.enter_async_context(direct(through, **options))

        transport.connect_session = connect

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Note which tests have passed."""
        if report.when == "call" and report.passed:
            self.passed.add(report.nodeid)

    def pytest_unconfigure(self) -> None:
        """Say how many of the tests that connected have passed."""
        print(f"{len(self.connected & self.passed)} of {len(self.connected)} tests that connect in process")
        print(*(f"DIFFERS {one}" for one in sorted(self.connected - self.passed)), sep="\n")


def main(arguments: Sequence[str]) -> int:
    """Run a suite; the figures are those of pytest."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.foreign_suites")
    parser.add_argument("suite", choices=SUITES)
    parser.add_argument("path", type=Path)
    parser.add_argument("--bridge", choices=("none", "default", "pass"), default="pass")
    own, _, rest = " ".join(arguments).partition(" -- ")
    said = parser.parse_args(own.split())
    rule = {"default": "refuse"}.get(said.bridge, said.bridge)
    root = said.path.resolve()
    os.chdir(root)
    sys.path.insert(0, str(root))
    folder = SUITES[said.suite]
    options = ["-p", "no:cacheprovider", "-p", "no:hypothesispytest", "-o", "addopts=", "-o", "log_cli=false"]
    # The suites turn warnings into errors, and the bridge is not what they are about.
    options += ["-o", "filterwarnings=default", "--assert=plain", "-q", "-rA", "--tb=short"]
    # The SDK's outermost `conftest` is about traces, and needs what its tests here do not.
    options += [f"--rootdir={root}", *([f"--confcutdir={folder}"] if said.suite == "sdk" else ())]
    return pytest.main(
        [*options, folder, *rest.split()], plugins=[(SdkSuite if said.suite == "sdk" else FastmcpSuite)(rule)]
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
