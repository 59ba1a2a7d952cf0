"""`negotiate`: settles the era with an upstream; `KnownEras`: the eras that it was found to speak."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, cast

import anyio

from mcp_toolset.catalog.cache_folder import cache_folder
from mcp_toolset.concurrency.atomic_file import locked, read_regular, replace_file
from mcp_toolset.config.tables import Era, ProtocolRule
from mcp_toolset.protocol.dispatch import CallOptions, Dispatcher
from mcp_toolset.protocol.handshake import DISCOVER, ClientHandshake, HandshakeRequest, Introduction
from mcp_toolset.protocol.json_rpc import MCPError
from mcp_toolset.protocol.server_machine import routing_headers

CLIENT_INFO: Final[Mapping[str, Any]] = {"name": "mcp-toolset", "version": "0.1.0"}
"""The bridge's name and version as a client."""

PROBE_TIMEOUT: Final = 10.0
"""Seconds that a silent server may leave `server/discover` unanswered before the handshake is tried.

At most half of the time that is left for starting; a server that speaks no other era is waited for.
"""

_INITIALIZED: Final = "notifications/initialized"


async def negotiate(
    dispatcher: Dispatcher,
    closed: anyio.Event,
    declares: Mapping[str, Any],
    *,
    protocol: ProtocolRule = "auto",
    known_legacy: bool = False,
    answers_all: bool = False,
) -> Introduction:
    """Settle the revision over a new connection; `closed` is set when the connection ends."""
    handshake = ClientHandshake(CLIENT_INFO, declares, eras=protocol, known_legacy=known_legacy)
    while (request := handshake.request) is not None:
        try:
            opts = _options(request, waits=answers_all or not handshake.falls_back)
            result = await dispatcher.send_raw_request(request.method, request.params, opts)
        except MCPError as fault:
            if closed.is_set():
                raise
            handshake.refused(fault)
        else:
            handshake.answered(result)
    assert handshake.server is not None, "a handshake without a next request is settled"
    server = handshake.server
    if not server.is_modern:
        headers = routing_headers(server.protocol_version, _INITIALIZED, {}, {})
        await dispatcher.notify(_INITIALIZED, None, {"headers": headers})
    return server


def _options(request: HandshakeRequest, *, waits: bool) -> CallOptions:
    """The options of a request: a handshake is not cancelled, and a probe has its deadline."""
    opts: CallOptions = {"cancel_on_abandon": False}
    if request.headers:
        opts["headers"] = dict(request.headers)
    if request.method == DISCOVER and not waits:
        left = anyio.current_effective_deadline() - anyio.current_time()
        opts["timeout"] = min(PROBE_TIMEOUT, left / 2)
    return opts


VALID: Final = 24 * 3600.0  # seconds for which a finding is valid
MAX_KNOWN: Final = 1000  # servers that are remembered; the oldest findings go first
_TIMEOUT: Final = 2.0  # seconds that writing waits for another process that writes

_log = logging.getLogger("mcp_toolset.upstream")


def default_place() -> Path | None:
    folder = cache_folder()
    return None if folder is None else folder / "eras.json"


class KnownEras:
    """The protocol eras that one server was found to speak, kept in a file between runs, for a day.

    Without findings a start is slower: `server/discover` lists modern revisions only, so only a trial shows
    that a server speaks the legacy era, and a silent server counts as not modern after 10 s. A file that
    cannot be read or written is ignored.
    """

    def __init__(self, identity: str, place: Path | None = None) -> None:
        self._identity = identity
        self._place = place or default_place()

    def recall(self) -> dict[Era, bool]:
        known = self._recalled()
        eras: tuple[Era, Era] = ("legacy", "modern")
        return {era: value for era in eras if isinstance(value := known.get(era), bool)}

    def _recalled(self) -> Mapping[str, Any]:
        recalled: Any = {} if self._place is None else _read(self._place).get(self._identity)
        return cast("Mapping[str, Any]", recalled) if _is_fresh(recalled) else {}

    def recall_same(self) -> frozenset[str]:
        """The capability sets for which the server lists the same as for all clients. Reads a file."""
        same: Any = self._recalled().get("same")
        return frozenset(cast("list[str]", same)) if isinstance(same, list) else frozenset()

    def note_same(self, capability_sets: frozenset[str]) -> None:
        """Keep the capability sets for which the server lists the same as for all clients. Writes a file."""
        self.note({}, same=capability_sets)

    def note(self, findings: Mapping[Era, bool], *, same: frozenset[str] | None = None) -> None:
        """Add findings to those in the file."""
        if self._place is None:
            return
        try:
            self._place.parent.mkdir(parents=True, exist_ok=True)
            with locked(f"{self._place}.lock", _TIMEOUT):
                capability_sets = self.recall_same() if same is None else same
                self._write(self._place, {**self.recall(), **findings, "same": sorted(capability_sets)})
        except OSError as fault:
            _log.debug("%s is not written: %s", self._place, fault)

    def _write(self, place: Path, findings: Mapping[str, Any]) -> None:
        others = {name: entry for name, entry in _read(place).items() if _is_fresh(entry)}
        others.pop(self._identity, None)
        recent = dict(list(others.items())[-MAX_KNOWN + 1 :])
        recent[self._identity] = {**findings, "at": int(time.time())}
        replace_file(place, json.dumps(recent, indent=1).encode(), durable=False)


def _read(place: Path) -> dict[str, Any]:
    try:
        data: Any = json.loads(read_regular(place))
    except (OSError, ValueError):
        return {}
    return cast("dict[str, Any]", data) if isinstance(data, dict) else {}


def _is_fresh(entry: object) -> bool:
    at: Any = cast("Mapping[str, Any]", entry).get("at") if isinstance(entry, Mapping) else None
    return isinstance(at, int) and 0 <= time.time() - at < VALID
