"""What a server lists only for clients that can be asked is listed, and goes to those clients alone (P5)."""

from __future__ import annotations

import json
from collections.abc import Generator
from typing import Any

import pytest
from mcp import Client, MCPError
from tests.interaction.asking_hub import hub
from tests.interaction.desk import Desk
from tests.interaction.test_questions import HERE, upstreams
from tests.support.asking import connected, text_of
from tests.support.warm import Warm

from mcp_toolset import RemoteToolset, Toolset, ToolsetServer
from mcp_toolset.errors import DefinitionError

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def targets(warm: Warm) -> Generator[dict[str, Any]]:
    with upstreams(warm, str(HERE / "asker.py")) as made:
        yield {name: target for name, target in made.items() if name.startswith(("stdio", "http"))}


@pytest.fixture(params=["legacy", "2026-07-28"])
def mode(request: pytest.FixtureRequest) -> str:
    return request.param


async def names(client: Any) -> set[str]:
    return {tool.name for tool in (await client.list_tools()).tools}


@pytest.mark.parametrize("rule", ["auto", "client", "capabilities", "call"])
async def test_p5_what_is_declared_for_the_list_is_no_leave_to_ask_anybody(
    targets: dict[str, Any], mode: str, rule: str
) -> None:
    server = hub(targets, declare=["sampling"], sessions=rule)
    async with connected(server, mode, **Desk().options) as lending:
        await server.settled()
        assert {f"{name}_lent" for name in targets} <= await names(lending)
        for upstream in targets:
            said = json.loads(text_of(await lending.call_tool(f"{upstream}_lent", {"tag": "t"})))
            assert said["content"][0]["input"] == {"for": "ada:t"}


async def test_p5_a_client_that_cannot_be_asked_is_refused_with_the_reason(
    targets: dict[str, Any], mode: str
) -> None:
    server = hub(targets, declare=["sampling", "roots"])
    async with connected(server, mode, elicitation_callback=Desk().elicit) as poor:
        await server.settled()
        assert {f"{name}_lent" for name in targets} <= await names(poor)
        for upstream in targets:
            if upstream.endswith("modern"):
                with pytest.raises(MCPError, match="has not declared sampling"):
                    await poor.call_tool(f"{upstream}_lent", {"tag": "t"})
            else:
                refused = await poor.call_tool(f"{upstream}_lent", {"tag": "t"})
                assert refused.is_error and "has not declared sampling" in text_of(refused)
            # All else goes on as before, and declares what this client can do, no more.
            assert text_of(await poor.call_tool(f"{upstream}_ask", {"tag": "t"})) == "ada:t"
            assert set(json.loads(text_of(await poor.call_tool(f"{upstream}_who", {})))) == {"elicitation"}


async def test_p5_a_shared_session_that_declares_for_the_list_still_asks_nobody(
    targets: dict[str, Any], mode: str
) -> None:
    only = {name: target for name, target in targets.items() if name.endswith("legacy")}
    server = hub(only, declare=["sampling"], sessions="shared")
    desk = Desk()
    async with connected(server, mode, **desk.options) as client:
        await server.settled()
        for upstream in only:
            with pytest.raises(MCPError, match="has not declared sampling"):
                await client.call_tool(f"{upstream}_lent", {"tag": "t"})
    assert not desk.samples


async def test_u36_without_it_each_client_is_listed_what_it_can_be_asked_for(
    targets: dict[str, Any], mode: str
) -> None:
    lent = {f"{name}_lent" for name in targets}
    server = hub(targets)
    async with connected(server, mode, **Desk().options) as client:
        await server.settled()
        assert lent <= await names(client)
        async with Client(server.lowlevel, mode=mode, cache=None) as bare:
            assert not lent & await names(bare)


async def test_p5_the_host_itself_can_be_asked_for_nothing(targets: dict[str, Any]) -> None:
    mount = RemoteToolset(targets["http_legacy"], name="up", declare=["sampling"])
    async with ToolsetServer(Toolset(mount)) as server:
        await server.settled()
        assert "lent" in {tool["name"] for tool in server.tools()}
        assert (await server.call_tool("who", {})).text == "{}"
        refused = await server.call_tool("lent", {})
        assert refused.is_error and "has not declared sampling" in refused.text


def test_what_nobody_can_declare_is_refused() -> None:
    wrong: Any = ["sampling", "logging"]
    with pytest.raises(
        DefinitionError, match="declare takes some of elicitation, roots, sampling, not 'logging'"
    ):
        RemoteToolset("https://example.com/mcp", name="up", declare=wrong)
