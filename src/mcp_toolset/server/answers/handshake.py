"""`Handshake`: answers `initialize` (legacy) and `server/discover` (modern)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Mapping
from functools import partial
from typing import Any, Final

from mcp_toolset.calls.pipeline.observers import label_of
from mcp_toolset.context.connection import RequestContext
from mcp_toolset.context.task import TASKS
from mcp_toolset.protocol.cache_hints import STRICTEST
from mcp_toolset.protocol.revisions import MODERN_PROTOCOL_VERSIONS
from mcp_toolset.protocol.server_machine import negotiated_version
from mcp_toolset.server.answers.tool_answers import Surface
from mcp_toolset.server.offers.offering import Offering
from mcp_toolset.tools.core.call import Identity
from mcp_toolset.tools.text.hidden_text import in_log

_log: Final = logging.getLogger("mcp_toolset.server")


class Handshake:
    """The name, the version, the instructions and the capabilities of one server.

    Attributes:
        instructions: Text for the model; it changes with what is served.
        has_tasks: Whether one of the server's own tools may run as a task.
        methods: The methods that are answered.
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
        self.has_tasks: Callable[[], bool] = lambda: False
        self.methods: Container[str] = ()
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
        extensions: dict[str, Any] = dict(self.extensions)
        if self.offers_tasks(identity):
            if modern:
                extensions[TASKS] = {}
            else:
                # Whose tasks they are is not known without a login, so there is no `list`.
                found["tasks"] = {"cancel": {}, "requests": {"tools": {"call": {}}}}
        theirs = self._offering.extensions()
        if extensions := {**theirs.get("extensions", {}), **extensions}:
            found["extensions"] = extensions
        if "experimental" in theirs:
            found["experimental"] = theirs["experimental"]
        return found

    def offers_tasks(self, identity: Identity | None = None) -> bool:
        """Whether a call of something that a caller is offered may become a task."""
        declared = self._offering.declared
        return "tasks/get" in self.methods and (
            self.has_tasks()
            or declared("extensions", TASKS, identity)
            or declared("tasks", "requests", identity)
        )

    async def initialize(self, request: RequestContext) -> dict[str, Any]:
        """The answer to the handshake of a legacy client, whose connection is open from then on."""
        params = request.params or {}
        version = negotiated_version(params.get("protocolVersion", ""))
        answer = {
            "protocolVersion": version,
            "capabilities": self.capabilities(request.identity, modern=False),
            "serverInfo": self._offering.server_info() or dict(self.info),
        }
        answer = self._introducing(answer, request.identity)
        request.connection.accept(version, params.get("clientInfo"), params.get("capabilities"))
        _log_client(request, version)
        return answer

    async def discover(self, request: RequestContext) -> dict[str, Any]:
        """What a modern client is told that asks for it."""
        answer = {
            "resultType": "complete",
            "supportedVersions": list(MODERN_PROTOCOL_VERSIONS),
            "capabilities": self.capabilities(request.identity, modern=True),
            **STRICTEST.to_wire(),
        }
        _log_client(request, request.protocol_version)
        return self._introducing(answer, request.identity)

    def _introducing(self, answer: dict[str, Any], identity: Identity | None) -> dict[str, Any]:
        if (text := self._surface.instructions_to(identity)) is not None:
            answer["instructions"] = text
        meta = self._surface.handshake_meta(identity)
        return {**answer, "_meta": meta} if meta else answer


def _log_client(request: RequestContext, version: str | None) -> None:
    if _log.isEnabledFor(logging.INFO):
        name = in_log(label_of(request.connection.client_info or {}) or "a client without a name")
        _log.info("%s asks what is served, in revision %s", name, version, extra={"client": name})
