"""`Sampler`: a tool's request for a model, answered by the program's model where the client lends none."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Self

from mcp_toolset.calls.observers import note_usage
from mcp_toolset.context.request import WireContext
from mcp_toolset.context.request_state import Replay
from mcp_toolset.errors import CallError, DefinitionError
from mcp_toolset.extending.extension import Extension
from mcp_toolset.tools.call import ToolCall, ToolContext
from mcp_toolset.tools.result import SAMPLING, SampledMessage
from mcp_toolset.tools.services import ModelSampler, ModelsOfCalls, SamplingRequest

if TYPE_CHECKING:
    from mcp_toolset.config.extensions import Settings
    from mcp_toolset.extending.host import Host


class Sampler(Extension):
    """Answers `context.sample` by a model of the program."""

    key: ClassVar = "sampler"

    def __init__(self, model: ModelSampler) -> None:
        if not callable(model):
            raise DefinitionError(f"sampler is a function of a SamplingRequest, not {model!r}")
        self.model = model

    @classmethod
    def of(cls, said: Any, stated: Settings | None, host: Host) -> Self:
        return cls(said)

    def services(self) -> Mapping[type, object]:
        return {ModelsOfCalls: self}

    def of_call(
        self, call: ToolCall, context: ToolContext
    ) -> Callable[[Mapping[str, Any], str], Awaitable[SampledMessage]]:
        wire = isinstance(context, WireContext)
        replay = context.replay if wire else Replay(call.id or context.request_id)
        return partial(self._sampled, call, context, replay)

    async def _sampled(
        self, call: ToolCall, context: ToolContext, replay: Replay, params: Mapping[str, Any], name: str
    ) -> SampledMessage:
        """The message that the program's model writes; a call that runs again gets the same message."""
        key = replay.key(SAMPLING, params, name)
        answer = replay.answer_to(key, name)
        if answer is not None:
            return SampledMessage(answer)
        message = await message_of(
            self.model,
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


async def message_of(sampler: ModelSampler, request: SamplingRequest) -> SampledMessage:
    answer: Any = sampler(request)
    if inspect.isawaitable(answer):
        answer = await answer
    message = SampledMessage.of(answer) if isinstance(answer, str) else answer
    if not isinstance(message, SampledMessage):
        raise CallError(f"the sampler of this server returned {type(answer).__name__}; return a text")
    return message


EXTENSION = Sampler
