"""`ModelSampler`: a model of the program, for tools that ask a client for its model where it lends none."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

from mcp_toolset._records import dataclass
from mcp_toolset.tools.call import Identity, ToolCall, ToolContext
from mcp_toolset.tools.result import SampledMessage


@dataclass(frozen=True, slots=True)
class SamplingRequest:
    """A tool's request for a message of a model, and its call.

    Attributes:
        messages: The messages, in wire form (client/sampling).
        max_tokens: The largest number of tokens that the model may write.
        system: The system prompt; `None` without one.
        key: The name of this request among those of its call, the same if the call runs again.
        tool: The tool that asks.
        call: The id of the call.
        session: The caller's session, if the protocol has sessions.
        principal: The key of the authenticated caller.
        identity: The authenticated caller; `None` without authentication.
        server: The mounted server that asks, by its name here; empty for a tool of the program.
    """

    messages: Sequence[Mapping[str, Any]]
    max_tokens: int
    system: str | None
    key: str
    tool: str
    call: str
    session: str | None
    principal: str | None
    identity: Identity | None
    server: str = ""


ModelSampler = Callable[[SamplingRequest], Awaitable[SampledMessage | str]]
"""Answers a request by a model of the program; a text is the message alone."""


class ModelsOfCalls(Protocol):
    """Answers the requests of tools by a model, where the client lends none: a service for tools."""

    def of_call(
        self, call: ToolCall, context: ToolContext
    ) -> Callable[[Mapping[str, Any], str], Awaitable[SampledMessage]]: ...
