"""`Handshake`: what a server says of itself: `initialize` (legacy), `server/discover` (modern)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from mcp_toolset.context.incoming import RequestContext
from mcp_toolset.protocol.cache_hints import STRICTEST
from mcp_toolset.protocol.revisions import MODERN_PROTOCOL_VERSIONS
from mcp_toolset.protocol.server_machine import negotiated_version
from mcp_toolset.server.answers.tool_answers import Surface
from mcp_toolset.server.offers.offering import Offering
from mcp_toolset.tools.core.identity import Identity


class Handshake:
    """The name, the version, the instructions and the capabilities of one server.

    Attributes:
        instructions: Text for the model; it changes with what is served.
        extensions: Capabilities that a program has added, by the name of their extension.
    """

    def __init__(
        self, surface: Surface, offering: Offering, *, name: str, version: str, instructions: str | None
    ) -> None:
        """Introduce what `surface` serves and `offering` offers."""
        self._surface = surface
        self._offering = offering
        self.info: Mapping[str, Any] = {"name": name, "version": version}
        self.instructions = instructions
        self.extensions: Mapping[str, Any] = {}

    def capabilities(self, identity: Identity | None = None, *, modern: bool) -> dict[str, Any]:
        """The capabilities for what the server offers a caller now, and no more."""
        declares = partial(self._offering.declares, identity=identity)
        found: dict[str, Any] = {"tools": {"listChanged": True}}
        if declares("resources"):
            found["resources"] = {"subscribe": declares("resources", "subscribe"), "listChanged": True}
        if declares("prompts"):
            found["prompts"] = {"listChanged": True}
        if declares("completions"):
            found["completions"] = {}
        if declares("logging", "" if modern else "setLevel"):
            found["logging"] = {}
        if self.extensions:
            found["extensions"] = dict(self.extensions)
        return found

    async def initialize(self, request: RequestContext) -> dict[str, Any]:
        """The answer to the handshake of a legacy client, whose connection is open from then on."""
        params = request.params or {}
        version = negotiated_version(params.get("protocolVersion", ""))
        answer = {
            "protocolVersion": version,
            "capabilities": self.capabilities(request.identity, modern=False),
            "serverInfo": dict(self.info),
        }
        answer = self._introducing(answer, request.identity)
        request.connection.accept(version, params.get("clientInfo"), params.get("capabilities"))
        return answer

    async def discover(self, request: RequestContext) -> dict[str, Any]:
        """What a modern client is told that asks for it."""
        answer = {
            "resultType": "complete",
            "supportedVersions": list(MODERN_PROTOCOL_VERSIONS),
            "capabilities": self.capabilities(request.identity, modern=True),
            **STRICTEST.to_wire(),
        }
        return self._introducing(answer, request.identity)

    def _introducing(self, answer: dict[str, Any], identity: Identity | None) -> dict[str, Any]:
        if (text := self._surface.instructions_to(identity)) is not None:
            answer["instructions"] = text
        meta = self._surface.handshake_meta(identity)
        return {**answer, "_meta": meta} if meta else answer
