"""What a client on a duplex connection may send is decided in the order in which its messages come."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import anyio
import pytest
from mcp_types import INVALID_PARAMS, INVALID_REQUEST, UNSUPPORTED_PROTOCOL_VERSION
from tests.support.piped import answers_to, handshake, legacy, modern, piped

from mcp_toolset import Toolset, ToolsetServer, tool
from mcp_toolset.protocol.json_rpc import MCPError
from mcp_toolset.transports.requests import Incoming
from mcp_toolset.transports.serve_connection import serve_connection

pytestmark = pytest.mark.anyio
INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}


@tool
def echo(text: str) -> str:
    """Say it again."""
    return text


class Scripted:
    """A dispatcher whose requests arrive in one order and are handled in another."""

    admit: Any = None

    def __init__(self, arriving: list[dict[str, Any]]) -> None:
        self._arriving = arriving
        self.outcomes: dict[int, Any] = {}

    async def run(self, on_request: Any, on_notify: Any, intercept: Any = None, **_: Any) -> None:
        contexts: list[tuple[Incoming, dict[str, Any]]] = []
        for message in self._arriving:
            if "id" not in message:
                assert not intercept(message["method"], message.get("params"))
                continue
            context = Incoming(self, message["id"])
            context.accepted = self.admit(message["method"], message["params"])
            contexts.append((context, message))
        for context, message in reversed(contexts):
            try:
                result = await on_request(context, message["method"], message["params"])
            except MCPError as refused:
                result = refused
            self.outcomes[message["id"]] = result

    async def send_raw_request(self, method: str, params: Any, opts: Any = None) -> dict[str, Any]:
        raise NotImplementedError

    async def notify(self, method: str, params: Mapping[str, Any] | None, opts: Any = None) -> None:
        raise NotImplementedError


async def outcomes(*arriving: dict[str, Any]) -> dict[int, Any]:
    """What becomes of requests whose handlers begin in the reverse order."""
    dispatcher: Any = Scripted(list(arriving))
    async with ToolsetServer(Toolset(echo)) as server:
        await serve_connection(server.answers, dispatcher)
    return dispatcher.outcomes


async def test_a_list_that_came_before_the_handshake_is_refused_though_it_is_handled_after_it() -> None:
    found = await outcomes(legacy(1, "tools/list"), handshake(2), legacy(3, "tools/list"))
    assert isinstance(found[1], MCPError) and found[1].code == INVALID_PARAMS
    assert found[2]["protocolVersion"] == "2025-11-25"
    assert found[3]["tools"][0]["name"] == "echo"


async def test_the_era_is_that_of_the_request_that_came_first_not_of_the_one_handled_first() -> None:
    found = await outcomes(modern(1, "tools/list"), handshake(2))
    assert found[1]["resultType"] == "complete"
    assert isinstance(found[2], MCPError) and found[2].code == UNSUPPORTED_PROTOCOL_VERSION


@pytest.fixture
async def peer() -> Any:
    async with piped(ToolsetServer(Toolset(echo))) as peer:
        yield peer


async def test_messages_that_are_sent_at_once_are_answered_as_if_one_by_one(peer: Any) -> None:
    found = await answers_to(
        peer, legacy(1, "tools/list"), handshake(2), INITIALIZED, legacy(3, "tools/list"), legacy(4, "ping")
    )
    assert found[1]["error"]["code"] == INVALID_PARAMS
    assert found[3]["result"]["tools"][0]["name"] == "echo"
    assert found[4]["result"] == {}


async def test_a_refused_handshake_changes_nothing(peer: Any) -> None:
    found = await answers_to(peer, legacy(1, "initialize"), legacy(2, "tools/list"), handshake(3))
    assert "protocolVersion is missing" in found[1]["error"]["message"]
    assert found[2]["error"]["code"] == INVALID_PARAMS
    assert found[3]["result"]["protocolVersion"] == "2025-11-25"


@pytest.mark.parametrize("version", ["2024-11-05", "2025-06-18"])
async def test_a_client_gets_the_revision_that_it_asks_for_and_else_the_newest(
    peer: Any, version: str
) -> None:
    found = await answers_to(peer, handshake(1, version), handshake(2, "1999-01-01"))
    assert found[1]["result"]["protocolVersion"] == version
    assert found[2]["result"]["protocolVersion"] == "2025-11-25"


async def test_an_envelope_is_refused_on_a_connection_that_began_with_a_handshake(peer: Any) -> None:
    found = await answers_to(peer, handshake(1), modern(2, "tools/list"))
    assert found[2]["error"]["code"] == INVALID_REQUEST


async def test_a_modern_client_needs_its_envelope_with_each_request(peer: Any) -> None:
    found = await answers_to(peer, modern(1, "tools/list"), legacy(2, "tools/list"), modern(3, "ping"))
    assert found[1]["result"]["tools"][0]["name"] == "echo"
    assert found[2]["error"]["code"] == INVALID_PARAMS
    assert found[3]["error"]["message"] == "Method not found"


async def test_a_notification_before_the_first_request_is_not_lost() -> None:
    server = ToolsetServer(Toolset(echo))
    async with piped(server) as peer:
        await answers_to(peer, INITIALIZED, handshake(1))
        with anyio.fail_after(30):
            await server.answers.announcements.tools()
            told = await peer.receive()
    assert told["method"] == "notifications/tools/list_changed"
