"""What a server puts into lists, contents, errors and updates reaches the client, whatever knows of it."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.interaction import details_server
from tests.interaction.raw_client import RawClient, raw_client

from mcp_toolset import RemoteToolset, Toolset, ToolsetServer

pytestmark = pytest.mark.anyio
ERAS = ("legacy", "modern")


@pytest.fixture(params=ERAS)
def client_era(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(params=ERAS)
def server_era(request: pytest.FixtureRequest) -> str:
    return request.param


@asynccontextmanager
async def bridged(
    client_era: str, server_era: str, log: Path | None = None, capabilities: dict[str, Any] | None = None
) -> AsyncGenerator[RawClient]:
    command = [sys.executable, details_server.__file__, server_era, str(log or "")]
    mounted = Toolset(RemoteToolset(command, name="up"), name="hub")
    async with ToolsetServer(mounted, keep=False) as server:
        await server.settled()
        async with raw_client(server, client_era, capabilities) as client:
            yield client


ASKED: dict[str, dict[str, Any]] = {
    "resources/list": {},
    "resources/templates/list": {},
    "prompts/list": {},
    "resources/read": {"uri": "made:up"},
    "prompts/get": {"name": "greet"},
    "completion/complete": {
        "ref": {"type": "ref/prompt", "name": "greet"},
        "argument": {"name": "who", "value": ""},
    },
}


async def test_u39_fields_that_no_revision_knows_cross_in_lists_contents_and_prompts(
    client_era: str, server_era: str
) -> None:
    async with bridged(client_era, server_era) as client:
        assert (await client.ask("tools/list"))["_meta"].items() >= details_server.OWN.items()
        for method, params in ASKED.items():
            said = await client.ask(method, **params)
            for key, value in details_server.RESULTS[method].items():
                if key == "_meta":
                    assert said[key].items() >= value.items(), method
                else:
                    assert said[key] == value, method
            if client_era == "legacy":
                assert not said.keys() & {"resultType", "ttlMs", "cacheScope"}
            else:
                assert said["resultType"] == "complete"


async def test_u39_a_resource_that_is_not_there_is_told_in_the_era_of_the_client(
    client_era: str, server_era: str
) -> None:
    async with bridged(client_era, server_era) as client:
        fault = (await client.ask("resources/read", uri="made:missing"))["error"]
    assert fault["code"] == (-32002 if client_era == "legacy" else -32602)
    assert fault["message"] == "up: no such thing"
    assert fault["data"] == {"uri": "made:missing", "x-near": ["made:up"]}


async def test_u39_news_of_a_list_that_stays_the_same_reaches_the_client(
    client_era: str, server_era: str
) -> None:
    kinds = ("tools", "resources", "prompts")
    async with bridged(client_era, server_era) as client:
        if client_era == "modern":
            wanted = {f"{kind}ListChanged": True for kind in kinds}
            await client.begin("subscriptions/listen", notifications=wanted)
            await client.told("notifications/subscriptions/acknowledged")
        client.heard.clear()
        await client.ask("tools/call", name="same", arguments={})
        for kind in kinds:
            await client.told(f"notifications/{kind}/list_changed")


async def test_u39_a_stream_of_updates_is_acknowledged_once_the_servers_own_one_holds(
    server_era: str,
) -> None:
    async with bridged("modern", server_era) as client:
        for _ in range(3):
            wanted = {"resourceSubscriptions": ["made:up"]}
            number = await client.begin("subscriptions/listen", notifications=wanted)
            if server_era == "modern":
                await client.ask("tools/call", name="custom", arguments={})
                assert not [each for each in client.heard if each["method"].endswith("acknowledged")]
                await client.ask("tools/call", name="release", arguments={})
            await client.told("notifications/subscriptions/acknowledged")
            await client.ask("tools/call", name="update", arguments={})
            assert (await client.told("notifications/resources/updated"))["uri"] == "made:up"
            await client.send(method="notifications/cancelled", params={"requestId": number})


async def test_u39_a_dotted_name_stays_readable(client_era: str) -> None:
    async with bridged(client_era, "legacy") as client:
        names = [tool["name"] for tool in (await client.ask("tools/list"))["tools"]]
        assert names[0] == "quiet_note"
        said = await client.ask("tools/call", name="quiet_note", arguments={})
    assert said["content"] == [{"type": "text", "text": "quiet.note"}]


CANCELLED: dict[str, dict[str, Any]] = {
    "tools/call": {"name": "hang", "arguments": {}},
    "resources/read": {"uri": details_server.HANGING},
    "prompts/get": {"name": "greet", "arguments": {"who": details_server.HANGING}},
}
"""Requests that the server never answers."""


async def test_u39_the_reason_of_a_cancellation_reaches_the_server(
    client_era: str, server_era: str, tmp_path: Path
) -> None:
    log = tmp_path / "log"

    async def taken(client: RawClient, method: str, what: str) -> dict[str, Any]:
        while True:
            for message in map(json.loads, log.read_text().splitlines()):
                if message.get("method") == method and what in json.dumps(message):
                    return message["params"]
            await client.ask("tools/call", name="custom", arguments={})

    with anyio.fail_after(60):
        async with bridged(client_era, server_era, log) as client:
            for method, params in CANCELLED.items():
                number = await client.begin(method, **params)
                await taken(client, method, "hang")
                reason = f"no {method} is needed any more"
                await client.send(
                    method="notifications/cancelled", params={"requestId": number, "reason": reason}
                )
                assert (await taken(client, "notifications/cancelled", reason))["reason"] == reason


async def test_u39_the_reason_of_a_withdrawn_question_reaches_the_client() -> None:
    async with bridged("legacy", "legacy", capabilities={"elicitation": {}}) as client:
        await client.begin("tools/call", name="ask", arguments={})
        asked = await client.until(lambda message: message.get("method") == "elicitation/create")
        await client.ask("tools/call", name="withdraw", arguments={})
        cancelled = await client.told("notifications/cancelled")
    assert cancelled == {"requestId": asked["id"], "reason": "somebody else has answered"}


@pytest.mark.parametrize("capabilities", [{}, {"elicitation": {}}])
async def test_u39_what_a_server_says_outside_of_any_call_reaches_the_only_client(
    capabilities: dict[str, Any],
) -> None:
    async with bridged("legacy", "legacy", capabilities=capabilities) as client:
        await client.ask("logging/setLevel", level="warning")
        await client.ask("resources/subscribe", uri="made:talk")
        assert (await client.told("notifications/example/spoken"))["what"] == "anything"
        assert (await client.told("notifications/message"))["data"] == "error"
        assert not [each for each in client.heard if each["method"] == "notifications/message"]


async def test_the_level_of_a_session_that_clients_share_is_lowered_once_and_never_raised(
    tmp_path: Path,
) -> None:
    log = tmp_path / "log"
    command = [sys.executable, details_server.__file__, "legacy", str(log)]
    async with (
        ToolsetServer(Toolset(RemoteToolset(command, name="up")), keep=False) as server,
        raw_client(server, "legacy") as one,
        raw_client(server, "legacy") as other,
    ):
        await server.settled()
        for client, level in ((one, "warning"), (other, "error"), (one, "debug"), (other, "info")):
            await client.ask("logging/setLevel", level=level)
            await client.ask("tools/call", name="quiet_note", arguments={})
    sent = [json.loads(line) for line in log.read_text().splitlines()]
    levels = [each["params"]["level"] for each in sent if each.get("method") == "logging/setLevel"]
    assert levels == ["warning", "debug"]


async def test_u39_what_a_server_says_outside_of_any_call_is_for_none_of_several_clients() -> None:
    mounted = Toolset(RemoteToolset([sys.executable, details_server.__file__, "legacy", ""], name="up"))
    async with (
        ToolsetServer(mounted, keep=False) as server,
        raw_client(server, "legacy") as one,
        raw_client(server, "legacy") as other,
        raw_client(server, "legacy", {"elicitation": {}}) as alone,
    ):
        await server.settled()
        await one.ask("tools/call", name="quiet_note", arguments={})
        for client in (other, alone):
            await client.ask("resources/subscribe", uri="made:talk")
        # The third one has a session of its own, on which this is said after what was said to the others.
        await alone.told("notifications/example/spoken")
        for client in (one, other):
            await client.ask("tools/call", name="quiet_note", arguments={})
            assert not [each for each in client.heard if not each["method"].endswith("list_changed")]
