"""What upstreams ask of clients: who may be asked for what, and the way of one request to its client.

A server may ask only for what the client declared (basic/lifecycle, "Capability negotiation";
2026-07-28: error -32021), and only the client whose call caused it (P5). What cannot be brought to
exactly that client is refused, with the reason, and is never put to another one.
"""

from __future__ import annotations

import logging
import uuid
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Final, cast

import mcp_types as types

from mcp_toolset.bridge.client import ServedClient
from mcp_toolset.bridge.forward import WireContext
from mcp_toolset.bridge.reports import CallInFlight, CallsInFlight
from mcp_toolset.bridge.sdk import MCPError
from mcp_toolset.tools.asking import CALL_META_KEY, ELICITATION, ROOTS, SAMPLING

MAX_ASKED: Final = 64
"""Requests that an upstream may put to the client in the course of one call."""

MAX_PAGES: Final = 256
"""Pages shown to users (URL elicitation) whose completion an upstream may still announce."""

ASKS: Final = frozenset({ELICITATION, ROOTS, SAMPLING})
"""The requests of servers to clients that cross the bridge."""

_log = logging.getLogger("mcp_toolset.ask")


def undeclared(method: str, params: Mapping[str, Any], declares: Mapping[str, Any]) -> str:
    """The capability that a request needs and a client has not declared; empty if there is none."""
    if method == ROOTS:
        return "" if "roots" in declares else "roots"
    if method == SAMPLING:
        return _undeclared_sampling(params, declares.get("sampling"))
    if method == ELICITATION:
        return _undeclared_elicitation(params.get("mode", "form"), declares.get("elicitation"))
    return method


def _undeclared_sampling(params: Mapping[str, Any], declared: Mapping[str, Any] | None) -> str:
    if declared is None:
        return "sampling"
    wants_tools = params.get("tools") is not None or params.get("toolChoice") is not None
    return "sampling.tools" if wants_tools and declared.get("tools") is None else ""


def _undeclared_elicitation(mode: object, declared: Mapping[str, Any] | None) -> str:
    """A bare declaration of elicitation means forms (client/elicitation, "Capabilities")."""
    if declared is None:
        return "elicitation"
    if mode == "url":
        return "" if declared.get("url") is not None else "elicitation.url"
    forms = declared.get("form") is not None or declared.get("url") is None
    return "" if forms else "elicitation.form"


def required(capability: str) -> dict[str, Any]:
    """The data of error -32021: the capability that is missing, in the form of a declaration."""
    name, _, part = capability.partition(".")
    return {"requiredCapabilities": {name: {part: {}} if part else {}}}


def for_modern(method: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """A legacy server's request as 2026-07-28 has it, within a result."""
    asked = {key: value for key, value in params.items() if key not in ("elicitationId", "task")}
    return {"method": method, "params": asked} if asked else {"method": method}


def for_legacy(request: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """A modern server's request as a legacy client has it: a page to open needs an id there."""
    method, params = str(request.get("method")), dict(_mapping(request.get("params")))
    if method == ELICITATION and params.get("mode") == "url":
        params.setdefault("elicitationId", uuid.uuid4().hex)
    return method, params


class Questions:
    """What one upstream session asks, and the clients that it belongs to.

    Attributes:
        declares: What the session has declared that can be asked for.
        client: The one client that the session is for, if it is for one alone.
        strays: How many requests could not be brought to any client.
    """

    def __init__(
        self,
        name: str,
        calls: CallsInFlight,
        declares: Mapping[str, Any],
        client: ServedClient | None = None,
    ) -> None:
        """Speak for the upstream that is mounted as `name`."""
        self.declares = declares
        self.client = client
        self.strays = 0
        self._name = name
        self._calls = calls
        self._pages: OrderedDict[str, ServedClient] = OrderedDict()

    async def put(self, method: str, params: Mapping[str, Any] | None) -> dict[str, Any]:
        """Put a legacy upstream's request to its client, and return the client's answer.

        Raises:
            MCPError: it belongs to nobody, or to nobody who can be asked for it; or the client refused.
        """
        params = params or {}
        missing = undeclared(method, params, self.declares)
        if missing:
            raise self._refused(method, f"the client has not declared {missing}")
        current = self._calls.current()
        call = current or self._calls.sole()
        if call is None or call.ended:
            return await self._outside(method, params, call)
        if call.asked >= MAX_ASKED:
            raise self._refused(method, f"one call may ask {MAX_ASKED} times")
        self._note_page(params, call)
        with call.asking(exact=current is not None):
            return await call.ask(method, self._marked(params))
        raise self._refused(method, "the call that it belongs to has ended")

    async def _outside(
        self, method: str, params: Mapping[str, Any], call: CallInFlight | None
    ) -> dict[str, Any]:
        """Roots belong to a client and not to a call; all else is asked in the course of a call."""
        if method == ROOTS and self.client is not None:
            answer = await self.client.ask(method, params)
            if answer is not None:
                return answer
        self.strays += 1
        if call is not None:
            raise self._refused(method, "the call that it belongs to has ended")
        if len(self._calls):
            raise self._refused(
                method,
                "calls of several clients are under way and nothing says which of them it belongs to; "
                "mount the server with sessions='client'",
            )
        raise self._refused(method, "no call is under way that it could belong to")

    def _refused(self, method: str, reason: str) -> MCPError:
        _log.warning("%s asks for %s and is refused: %s", self._name, method, reason)
        return MCPError(types.INVALID_REQUEST, f"{method} is refused: {reason}")

    def _marked(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """The parameters with the name of the server that asks, which the client cannot see otherwise."""
        meta = {key: value for key, value in _mapping(params.get("_meta")).items() if key != "progressToken"}
        return {**params, "_meta": {**meta, CALL_META_KEY: {"server": self._name}}}

    def _note_page(self, params: Mapping[str, Any], call: CallInFlight) -> None:
        if isinstance(call.context, WireContext):
            self.note_pages([params], call.context.client)

    def note_pages(self, pages: object, client: ServedClient) -> None:
        """Remember whom pages were shown to (`elicitationId`), also those of error -32042."""
        for page in cast("list[object]", pages) if isinstance(pages, list) else ():
            name = _mapping(page).get("elicitationId")
            if isinstance(name, str):
                self._pages[name] = client
                if len(self._pages) > MAX_PAGES:
                    self._pages.popitem(last=False)

    async def page_done(self, params: Mapping[str, Any] | None) -> None:
        """Tell the client that was shown a page, and no other, that it is done with."""
        client = self._pages.pop(str((params or {}).get("elicitationId")), None)
        if client is not None:
            await client.notify("notifications/elicitation/complete", params)


def _mapping(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}
