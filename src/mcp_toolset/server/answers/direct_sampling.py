"""`sampled`: a tool's request for a model, answered by the program's model where the client lends none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mcp_toolset.calls.pipeline.observation import note_usage
from mcp_toolset.context.request import WireContext
from mcp_toolset.context.request_state import Replay
from mcp_toolset.tools.core.asking import SAMPLING, SampledMessage
from mcp_toolset.tools.core.call import ToolCall, ToolContext
from mcp_toolset.tools.core.sampling import ModelSampler, SamplingRequest, message_of


def replay_of(call: ToolCall, context: ToolContext) -> Replay:
    """What tells the requests of one call apart."""
    return context.replay if isinstance(context, WireContext) else Replay(call.id or context.request_id)


async def sampled(
    sampler: ModelSampler,
    replay: Replay,
    call: ToolCall,
    context: ToolContext,
    params: Mapping[str, Any],
    name: str,
) -> SampledMessage:
    """The message that the program's model writes; a call that runs again gets the same message.

    Args:
        sampler: The program's model.
        replay: What the call has asked so far.
        call: The call that asks.
        context: Its context.
        params: The request, in wire form.
        name: What the tool calls the request; may be empty.
    """
    key = replay.key(SAMPLING, params, name)
    found = replay.answer_to(key, name)
    if found is not None:
        return SampledMessage(found)
    message = await message_of(
        sampler,
        SamplingRequest(
            messages=params["messages"],
            max_tokens=params["maxTokens"],
            system=params.get("systemPrompt"),
            key=key,
            tool=call.name,
            call=replay.call_id,
            session=context.session,
            principal=context.principal,
            identity=context.identity,
        ),
    )
    note_usage(message.usage)
    replay.answers[key] = message.wire
    return message
