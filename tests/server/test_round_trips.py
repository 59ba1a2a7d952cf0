"""A prompt whose server asks: the same signed round trips as for calls."""

from __future__ import annotations

from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import Client, MCPError
from mcp.server.lowlevel import Server
from tests.interaction.desk import Desk

from mcp_toolset.context.connection import Connection, RequestContext
from mcp_toolset.context.request import WireContext
from mcp_toolset.context.request_state import RoundTrips
from mcp_toolset.errors import CallError
from mcp_toolset.sdk import ends_of
from mcp_toolset.server.resource_handlers import resumable
from mcp_toolset.tools.result import InputRequired
from mcp_toolset.transports.message_dispatcher import SdkWay

pytestmark = pytest.mark.anyio
FORM = {"type": "object", "properties": {"word": {"type": "string"}}}
QUESTION = {"method": "elicitation/create", "params": {"message": "A word?", "requestedSchema": FORM}}


def prompting() -> Server[Any]:
    """A server whose prompt needs a word of the user's."""
    trips = RoundTrips()

    async def prompt(ctx: Any, params: types.GetPromptRequestParams) -> Any:
        connection = Connection(protocol_version=ctx.protocol_version)
        way = SdkWay(ends_of(ctx.session)[0], ctx.request_id, None)
        context = WireContext(RequestContext(ctx.method, ctx.params, ctx.request_id, connection, way))

        async def run() -> dict[str, Any]:
            key = context.replay.key("prompt", {})
            answer = context.replay.answers.get(key)
            if answer is None:
                raise InputRequired({key: QUESTION})
            content = {"type": "text", "text": answer["content"]["word"]}
            return {"resultType": "complete", "messages": [{"role": "user", "content": content}]}

        try:
            wire = await resumable(trips, context, f"prompts/get {params.name}", params.arguments or {}, run)
        except CallError as fault:
            raise MCPError(types.INVALID_PARAMS, str(fault)) from None
        kind = types.InputRequiredResult if wire["resultType"] == "input_required" else types.GetPromptResult
        return kind.model_validate(wire, by_name=False)

    return Server("prompting", on_get_prompt=prompt)


async def test_p5_a_prompt_asks_the_client_and_is_finished_with_its_answer() -> None:
    desk = Desk()
    with anyio.fail_after(40):
        async with Client(prompting(), cache=None, elicitation_callback=desk.elicit) as client:
            result = await client.get_prompt("greeting", {"to": "bob"})
    said = result.messages[0].content
    assert isinstance(said, types.TextContent) and said.text == "ada:A word?"


async def test_p5_the_state_of_one_prompt_is_of_no_use_for_another() -> None:
    with anyio.fail_after(40):
        async with Client(prompting(), cache=None, elicitation_callback=Desk().elicit) as client:
            asked = await client.session.get_prompt("greeting", {}, allow_input_required=True)
            assert isinstance(asked, types.InputRequiredResult)
            with pytest.raises(MCPError, match="belongs to another call"):
                await client.session.get_prompt(
                    "farewell",
                    {},
                    allow_input_required=True,
                    input_responses={},
                    request_state=asked.request_state,
                )
