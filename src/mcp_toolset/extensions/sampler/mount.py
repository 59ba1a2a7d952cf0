"""`LentModel`: the model of the program that a mounted server may ask for clients that lend none.

A client that declares `sampling` is asked itself. For another client the bridge declares the capability to
the server, and answers `sampling/createMessage` by the mount's `sampler` (client/sampling).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final, cast

import anyio

from mcp_toolset._records import dataclass
from mcp_toolset.config.extensions import ServerSettings
from mcp_toolset.context.request import WireContext
from mcp_toolset.errors import CallError, DefinitionError
from mcp_toolset.extending.mounts import MountExtension
from mcp_toolset.extensions.sampler import message_of
from mcp_toolset.protocol.json_rpc import INTERNAL_ERROR, MCPError
from mcp_toolset.tools.call import ToolContext
from mcp_toolset.tools.result import SAMPLING
from mcp_toolset.tools.services import ModelSampler, SamplingRequest
from mcp_toolset.upstream.in_flight import CallInFlight, StandIn


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplerOfMount(ServerSettings):
    """The keyword `sampler` of a mount."""

    sampler: ModelSampler | None = None


SERVER_SETTINGS: Final = SamplerOfMount


_NOTHING: Final[Mapping[str, Any]] = {}


class LentModel(StandIn):
    """The model that one mounted server may ask."""

    method = SAMPLING
    capability = "sampling"

    def __init__(self, sampler: ModelSampler, server: str) -> None:
        self._sampler = sampler
        self._server = server

    def serves(self, context: ToolContext) -> bool:
        return not isinstance(context, WireContext) or self.capability not in context.carried

    def takes(self, request: Mapping[str, Any]) -> bool:
        """True for a request for a message without tools: the bridge declares sampling without tools."""
        params: Any = request.get("params") or _NOTHING
        return request.get("method") == self.method and not ("tools" in params or "toolChoice" in params)

    async def answer(
        self, call: CallInFlight, params: Mapping[str, Any], key: str | None = None
    ) -> dict[str, Any]:
        """The model's message in wire form; without `key`, the number of the request is its key."""
        context = call.context
        message = await message_of(
            self._sampler,
            SamplingRequest(
                messages=params["messages"],
                max_tokens=params["maxTokens"],
                system=params.get("systemPrompt"),
                key=str(call.asked) if key is None else key,
                tool=str(call.about.get("name", call.about.get("uri", ""))),
                call=context.replay.call_id if isinstance(context, WireContext) else context.request_id,
                session=context.session,
                principal=context.principal,
                identity=context.identity,
                server=self._server,
            ),
        )
        call.tokens += (message.usage,)
        return dict(message.wire)

    async def relay(self, call: CallInFlight, params: Mapping[str, Any]) -> dict[str, Any]:
        """Like `answer`, for a legacy server: an error of the model becomes the error of its request."""
        try:
            return await self.answer(call, params)
        # The sampler is the application's code and may raise anything; the server decides what to do then.
        except Exception as fault:
            raise MCPError(
                INTERNAL_ERROR, f"the model of the bridge failed: {type(fault).__name__}"
            ) from fault

    async def answers(
        self, call: CallInFlight, requests: Mapping[str, Mapping[str, Any]]
    ) -> dict[str, dict[str, Any]]:
        """The model's messages for all requests of one round trip, made concurrently (2026-07-28)."""
        found: dict[str, dict[str, Any]] = {}
        faults: list[Exception] = []

        async def ask(key: str, params: Mapping[str, Any]) -> None:
            try:
                found[key] = await self.answer(call, params, key)
            # As in `relay`; the call cannot go on without the answer.
            except Exception as fault:
                faults.append(fault)
                group.cancel_scope.cancel()

        async with anyio.create_task_group() as group:
            for key, request in requests.items():
                group.start_soon(partial(ask, key, request.get("params") or _NOTHING))
        if faults:
            why = type(faults[0]).__name__
            raise CallError(f"{self._server}: the model of the bridge failed: {why}") from faults[0]
        return found


class LendingMount(MountExtension):
    """Lends one mounted server the model of its keyword `sampler`."""

    @classmethod
    def stand_in(cls, server: str, stated: ServerSettings, *, shares: bool) -> LentModel | None:
        """The model lent to a server; an error if callers share a session, as no call is known to ask."""
        sampler = cast("SamplerOfMount", stated).sampler
        if sampler is None:
            return None
        if not callable(sampler):
            raise DefinitionError(
                f"mount {server!r}: sampler is a function of a SamplingRequest, not {sampler!r}"
            )
        if shares:
            raise DefinitionError(
                f"mount {server!r}: a server whose callers share one session cannot ask for a model; leave "
                "out sampler, or single and sessions='shared'"
            )
        return LentModel(sampler, server)


MOUNT = LendingMount
