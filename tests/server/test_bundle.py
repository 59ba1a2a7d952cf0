"""What a toolset brings to a server that serves it: instructions, and what its handlers may read."""

from __future__ import annotations

from typing import Any

import pytest
from mcp import Client
from tests.support.contexts import OnWire

from mcp_toolset import Identity, ToolCall, ToolContext, Toolset, ToolsetServer, tool
from mcp_toolset.errors import CallError, CapabilityError
from mcp_toolset.policy import Policy
from mcp_toolset.rounds import RoundContext
from mcp_toolset.tools.call import SessionSnapshot

pytestmark = pytest.mark.anyio
ERAS = pytest.mark.parametrize("mode", ["legacy", "auto"])


@tool
def look(id: str) -> str:
    """Look."""
    return id


class Crm(Toolset):
    instructions = "Look before you leap."
    look = look


@ERAS
@pytest.mark.parametrize(
    "tools", [Crm(), Crm().prefixed("a"), Toolset(Toolset(Crm().prefixed("a"))), Crm().deferred()]
)
async def test_s6_instructions_reach_the_client_from_any_depth(tools: Toolset[Any], mode: Any) -> None:
    server = ToolsetServer(tools, instructions="A shop.")
    async with server, Client(server.lowlevel, mode=mode) as client:
        assert (client.instructions or "").startswith("A shop.\n\nLook before you leap.")


async def test_s6_instructions_are_said_once_and_may_be_an_argument() -> None:
    crm, erp = Crm(), Toolset(look, name="erp", instructions="Do not press.")
    server = ToolsetServer(Toolset(crm.prefixed("a"), crm.prefixed("b"), erp))
    async with server:
        assert server.answers.handshake.instructions == "Look before you leap.\n\nDo not press."


ANN = OnWire(identity=Identity("ann", subject="ann"))


async def test_s6_instructions_of_hidden_tools_are_hidden() -> None:
    policy = Policy(deny=["look"], roles={"admin": Policy(allow=["*"], deny=[])})
    server = ToolsetServer(Crm(), policy=policy)
    async with server:
        assert server.instructions_to(ANN) is None
    for_all = ToolsetServer(Crm(), policy=Policy(deny=["other_*"], allow=["*"]))
    async with for_all:
        assert for_all.instructions_to(ANN) == "Look before you leap."


async def test_s6_a_host_that_decides_about_each_caller_tells_nothing_of_deferred_toolsets() -> None:
    server = ToolsetServer(Crm().deferred(), access=lambda tool, context: None)
    async with server:
        assert "leap" not in (server.answers.handshake.instructions or "")


@tool
def who(context: ToolContext) -> str:
    """Say for whom this works."""
    return f"{context.client_info.get('name')} {context.model}"


@ERAS
async def test_s7_a_handler_reads_which_client_it_works_for(mode: Any) -> None:
    from mcp_types import Implementation

    server = ToolsetServer(Toolset(who))
    info = Implementation(name="my-client", version="1")
    async with server, Client(server.lowlevel, mode=mode, client_info=info) as client:
        (block,) = (await client.call_tool("who", {})).content
        assert getattr(block, "text", "") == "my-client None"


async def test_s7_a_handler_of_a_loop_reads_which_model_it_works_for() -> None:
    result = await Toolset(who).execute("who", {}, RoundContext(model="gpt-5.5"))
    assert result.text == "None gpt-5.5"


@tool
def peek(session: str, context: ToolContext) -> list[str]:
    """Say which tools another session has."""
    return list(context.other_session(session).tools)  # type: ignore[attr-defined]


def told(session: str, context: ToolContext) -> SessionSnapshot | None:
    return SessionSnapshot(session, None, None, ("a", "b")) if session == "mine" else None


async def test_s7_a_tool_knows_of_the_sessions_that_it_was_granted() -> None:
    server = ToolsetServer(Toolset(peek).granting("sessions"), sessions=told)
    async with server:
        found = await server.call(ToolCall("peek", {"session": "mine"}), ToolContext())
        assert found.structured == {"result": ["a", "b"]}
        other = await server.call(ToolCall("peek", {"session": "yours"}), ToolContext())
        assert other.is_error and "no session 'yours' that this tool can see" in other.text


async def test_s7_without_a_host_that_tells_there_is_no_other_session() -> None:
    server = ToolsetServer(Toolset(peek).granting("sessions"))
    async with server:
        result = await server.call(ToolCall("peek", {"session": "mine"}), ToolContext())
        assert result.is_error and "sessions" in result.text


def test_s7_a_loop_grants_other_sessions() -> None:
    context = RoundContext(sessions=told)
    assert context.other_session("mine").tools == ("a", "b")
    with pytest.raises(CallError):
        context.other_session("yours")
    with pytest.raises(CapabilityError):
        RoundContext().other_session("mine")
