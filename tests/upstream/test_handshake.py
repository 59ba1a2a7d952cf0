"""Which revision is spoken with an upstream: found out, or said by the mount."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp.shared.memory import create_client_server_memory_streams
from tests.support.bounds import bounds
from tests.support.served import served
from tests.support.warm import Warm
from tests.transports.client.raw_server import Request, raw_server

from mcp_toolset import RemoteToolset, Toolset, ToolsetServer
from mcp_toolset.errors import DefinitionError
from mcp_toolset.protocol.dispatch import Dispatcher
from mcp_toolset.protocol.json_rpc import MCPError
from mcp_toolset.sdk import stream_dispatcher
from mcp_toolset.upstream.negotiation import negotiate

pytestmark = pytest.mark.anyio

BOTH = str(Path(__file__).parents[1] / "interaction" / "upstream.py")
LEGACY = [
    sys.executable,
    str(Path(__file__).parents[1] / "support" / "plain_server.py"),
    json.dumps({"tools": ["one"]}),
]
MODERN: dict[str, Any] = {
    "resultType": "complete",
    "supportedVersions": ["2026-07-28"],
    "capabilities": {},
    "ttlMs": 0,
    "cacheScope": "private",
}


class ModernOnly:
    """A server of 2026-07-28 alone, and what it was asked; silent to the first request if it is slow."""

    def __init__(self, *, slow: bool = False) -> None:
        self.asked: list[str] = []
        self._slow = slow

    async def answer(self, context: Any, method: str, params: Any) -> dict[str, Any]:
        self.asked.append(method)
        if method == "initialize":
            raise MCPError(types.UNSUPPORTED_PROTOCOL_VERSION, "no", {"supported": ["2026-07-28"]})
        if self._slow and len(self.asked) == 1:
            await anyio.sleep_forever()
        return MODERN


async def _ignore(*_: Any) -> None:
    return None


async def _refuse(*_: Any) -> dict[str, Any]:
    raise AssertionError


@asynccontextmanager
async def connected(server: ModernOnly) -> AsyncGenerator[Dispatcher]:
    with anyio.fail_after(40):
        async with (
            create_client_server_memory_streams() as (ours, theirs),
            anyio.create_task_group() as group,
        ):
            await group.start(stream_dispatcher(*theirs).run, server.answer, _ignore)
            dispatcher = stream_dispatcher(*ours)
            await group.start(dispatcher.run, _refuse, _ignore)
            yield dispatcher
            group.cancel_scope.cancel()


async def test_a_modern_server_that_was_slow_to_say_so_is_asked_once_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bounds(monkeypatch, probe=0.1)
    server = ModernOnly(slow=True)
    async with connected(server) as dispatcher:
        said = await negotiate(dispatcher, anyio.Event(), {})
        assert said.is_modern and said.protocol_version == "2026-07-28"
    assert server.asked == ["server/discover", "initialize", "server/discover"]


async def test_i4_a_server_that_owes_each_request_an_answer_is_waited_for_and_not_taken_for_an_older_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Over before the server has even got the request: any server is too slow for that.
    bounds(monkeypatch, probe=0)
    server = ModernOnly()
    async with connected(server) as dispatcher:
        said = await negotiate(dispatcher, anyio.Event(), {}, answers_all=True)
        assert said.is_modern
    assert server.asked == ["server/discover"]


async def test_i4_a_slow_server_of_both_eras_over_http_is_not_taken_for_an_older_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bounds(monkeypatch, probe=0)
    async with served(ToolsetServer(Toolset(), name="both")) as url:
        mount = RemoteToolset(f"{url}/mcp", name="up")
        async with ToolsetServer(Toolset(mount)) as server:
            await server.settled()
            assert mount.connection.protocol_version == "2026-07-28"


async def test_i4_a_server_that_wants_credentials_is_not_taken_for_an_older_one() -> None:
    asked = list[str]()

    async def unauthorized(request: Request) -> None:
        asked.append(request.message["method"])
        await request.answer(None, "401 Unauthorized")

    async with raw_server(unauthorized) as raw:
        mount = RemoteToolset(raw.url, name="up")
        with anyio.fail_after(60):
            async with ToolsetServer(Toolset(mount)) as server:
                await server.settled()
                reason = mount.status.reason
    assert reason.startswith('it wants credentials (HTTP 401); give it `"auth": "oauth"` and log in')
    assert {*asked} == {"server/discover"}


def _error(code: int, message: str = "said so") -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "error": {"code": code, "message": message}}


async def asked_over_http(answer: Callable[[Request], Awaitable[None]]) -> tuple[set[str], str]:
    """What a mount asks a server that gives one answer to everything, and the status of the mount."""
    asked = set[str]()

    async def answered(request: Request) -> None:
        asked.add(request.message["method"])
        await answer(request)

    async with raw_server(answered) as raw:
        mount = RemoteToolset(raw.url, name="up")
        with anyio.fail_after(60):
            async with ToolsetServer(Toolset(mount)) as server:
                await server.settled()
                return asked, mount.status.reason


@pytest.mark.parametrize(
    ("status", "body"),
    [
        ("403 Forbidden", None),
        ("403 Forbidden", _error(-32600)),
        ("403 Forbidden", {"error": "insufficient_scope"}),
        ("407 Proxy Authentication Required", None),
        ("408 Request Timeout", None),
        ("429 Too Many Requests", _error(-32000)),
        ("500 Internal Server Error", _error(-32603)),
        ("502 Bad Gateway", None),
        ("503 Service Unavailable", None),
        ("400 Bad Request", _error(-32020)),
        ("400 Bad Request", _error(-32021)),
    ],
)
async def test_i4_only_an_answer_about_the_method_says_that_a_server_is_an_older_one(
    status: str, body: Any
) -> None:
    asked, reason = await asked_over_http(lambda request: request.answer(body, status))
    assert asked == {"server/discover"}
    assert reason.startswith(
        "said so" if body and "jsonrpc" in body else f"Server returned an error response: HTTP {status[:3]}"
    )


async def test_i4_a_server_that_breaks_the_connection_is_not_taken_for_an_older_one() -> None:
    async def broken(request: Request) -> None:
        request.writer.close()

    asked, reason = await asked_over_http(broken)
    assert asked == {"server/discover"} and "protocol" not in reason.lower().replace(
        "remoteprotocolerror", ""
    )


@pytest.mark.parametrize(
    ("status", "body"),
    [
        ("400 Bad Request", None),
        ("400 Bad Request", _error(-32000)),
        ("404 Not Found", None),
        ("405 Method Not Allowed", None),
        ("500 Internal Server Error", _error(-32601)),
        ("200 OK", _error(-32601)),
        ("200 OK", _error(-32602)),
    ],
)
async def test_i4_an_older_server_is_known_by_how_it_answers_what_it_does_not_know(
    status: str, body: Any
) -> None:
    asked, _ = await asked_over_http(lambda request: request.answer(body, status))
    assert asked == {"server/discover", "initialize"}


async def test_a_mount_that_wants_the_older_protocol_says_why_a_newer_server_is_not_for_it() -> None:
    server = ModernOnly()
    async with connected(server) as dispatcher:
        with pytest.raises(MCPError, match=r"no revision up to 2025-11-25; protocol: auto"):
            await negotiate(dispatcher, anyio.Event(), {}, protocol="legacy")
    assert server.asked == ["initialize"]


@pytest.mark.parametrize(
    ("protocol", "revision"), [("auto", "2026-07-28"), ("modern", "2026-07-28"), ("legacy", "2025-11-25")]
)
async def test_a_server_of_both_eras_is_spoken_to_as_the_mount_says(
    protocol: Any, revision: str, warm: Warm
) -> None:
    mount = RemoteToolset(warm.command(BOTH), name="up", protocol=protocol)
    with anyio.fail_after(60):
        async with ToolsetServer(Toolset(mount)) as server:
            await server.settled()
            assert mount.connection.protocol_version == revision
            assert not (await server.call_tool("double", {"n": 2})).is_error


async def test_an_older_server_is_refused_by_a_mount_that_wants_the_newer_protocol() -> None:
    mount = RemoteToolset(LEGACY, name="up", protocol="modern")
    with anyio.fail_after(60):
        async with ToolsetServer(Toolset(mount)) as server:
            await server.settled()
            assert mount.status.state == "offline"
            assert "does not speak 2026-07-28; protocol: auto" in mount.status.reason


def test_a_protocol_that_is_none_is_refused_with_those_there_are() -> None:
    with pytest.raises(DefinitionError, match=r"mount 'up': protocol is one of auto, legacy, modern, not"):
        RemoteToolset(LEGACY, name="up", protocol="2025")  # pyright: ignore[reportArgumentType]


def test_a_server_of_this_process_is_spoken_to_in_the_newer_protocol_alone() -> None:
    inner = ToolsetServer(Toolset())
    with pytest.raises(DefinitionError, match="leave out protocol"):
        RemoteToolset(inner, name="up", protocol="legacy")


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), "5"])
def test_m1_a_time_that_is_no_positive_number_is_refused(seconds: Any) -> None:
    with pytest.raises(DefinitionError, match="mount 'x': [a-z_]+ is a positive number"):
        RemoteToolset(["x"], name="x", start="lazy", idle_timeout=seconds)
