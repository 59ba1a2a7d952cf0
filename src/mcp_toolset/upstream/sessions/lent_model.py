"""`LentModel`: the model of the program that a mounted server may ask for clients that lend none.

A client that declares `sampling` is asked itself. For another client the bridge declares the capability to
the server, and answers `sampling/createMessage` by the mount's `sampler` (client/sampling).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

import anyio

from mcp_toolset.context.request import WireContext
from mcp_toolset.errors import CallError
from mcp_toolset.protocol.json_rpc import INTERNAL_ERROR, MCPError
from mcp_toolset.tools.core.asking import SAMPLING
from mcp_toolset.tools.core.call import ToolContext
from mcp_toolset.tools.core.sampling import ModelSampler, SamplingRequest, message_of
from mcp_toolset.upstream.sessions.call_in_flight import CallInFlight
from mcp_toolset.upstream.target import Link

_CAPABILITY: Final = "sampling"
_KEPT: Final = "lent "
"""Begins the names of answers of the model among those of the client; no request is named so."""

_NOTHING: Final[Mapping[str, Any]] = {}


class LentModel:
    """What one mounted server is lent."""

    def __init__(self, sampler: ModelSampler, server: str) -> None:
        """Lend the model of the program to the server that is mounted as `server`."""
        self._sampler = sampler
        self._server = server

    def serves(self, context: ToolContext) -> bool:
        """Whether requests in the course of this call go to the model, as its client lends none."""
        return not isinstance(context, WireContext) or _CAPABILITY not in context.carried

    async def answer(
        self, call: CallInFlight, params: Mapping[str, Any], key: str | None = None
    ) -> dict[str, Any]:
        """What the model writes, in wire form; its tokens are those of the call.

        Args:
            call: The call in whose course the server asks.
            params: The request.
            key: What tells it from other requests of the call; `None` for the number of requests so far.
        """
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
        """The same for a legacy server, which gets an error of the model as the refusal of its request."""
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
        """What the model writes to the requests of one round trip, all at once (2026-07-28)."""
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


def lent_to(link: Link) -> LentModel | None:
    """What a mounted server is lent; `None` for nothing, as usual."""
    return None if link.sampler is None else LentModel(link.sampler, link.name)


def carried_to(lent: LentModel | None, carried: Mapping[str, Any]) -> Mapping[str, Any]:
    """The capabilities that a mounted server is told of: those of the client, and what the server is lent."""
    return carried if lent is None or _CAPABILITY in carried else {**carried, _CAPABILITY: {}}


def parted(
    lent: LentModel | None, requests: Mapping[str, Mapping[str, Any]], context: ToolContext
) -> tuple[dict[str, Mapping[str, Any]], dict[str, Mapping[str, Any]]]:
    """The requests of a round trip that the lent model answers, and those for the client."""
    if lent is None or not lent.serves(context):
        return {}, dict(requests)
    own = {key: each for key, each in requests.items() if _is_plain(each)}
    return own, {key: each for key, each in requests.items() if key not in own}


def keep(answers: Mapping[str, dict[str, Any]], caller: WireContext) -> None:
    """Keep what the model wrote until the client repeats the call with answers of its own (2026-07-28)."""
    caller.replay.answers |= {f"{_KEPT}{key}": answer for key, answer in answers.items()}


def with_kept(trip: dict[str, Any], caller: WireContext) -> dict[str, Any]:
    """What a repeated request brings to the server, with what the model wrote before."""
    known = caller.replay.answers
    kept = {name.removeprefix(_KEPT): known.pop(name) for name in list(known) if name.startswith(_KEPT)}
    return {**trip, "inputResponses": {**kept, **trip.get("inputResponses", {})}} if kept else trip


def _is_plain(request: Mapping[str, Any]) -> bool:
    """Whether a request is for a message without tools, which is what the bridge has declared."""
    params: Any = request.get("params") or _NOTHING
    return request.get("method") == SAMPLING and not ("tools" in params or "toolChoice" in params)
