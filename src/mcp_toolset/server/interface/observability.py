"""`Observability`: the metrics and traces of one server: what sums them, and what sends them on."""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from importlib.util import find_spec
from math import isfinite
from typing import TYPE_CHECKING, Final

import anyio
import anyio.to_thread

from mcp_toolset.calls.telemetry.call_metrics import CallMetrics
from mcp_toolset.calls.telemetry.options import Telemetry
from mcp_toolset.calls.telemetry.series import Sees, series_of
from mcp_toolset.calls.telemetry.traces import Traces
from mcp_toolset.concurrency.beside import beside
from mcp_toolset.errors import DefinitionError

if TYPE_CHECKING:
    from mcp_toolset.calls.telemetry.otlp import Collector, Sender
    from mcp_toolset.server.mcp_server import MCPServer
    from mcp_toolset.server.reloadable import Reloadable

Told = Telemetry | str | bool
Up = Callable[[], Mapping[str, bool]]

LAST: Final = 2.0
"""Seconds that the last spans and metrics have on their way when a server is closed."""

_MILLISECONDS: Final = "OTEL_METRIC_EXPORT_INTERVAL"
_EXTRAS: Final = (
    ("prometheus", "prometheus_client"),
    ("otlp", "opentelemetry.exporter.otlp.proto.http"),
    ("otlp", "opentelemetry.sdk"),
)
_log = logging.getLogger("mcp_toolset.telemetry")


def observability(
    said: Telemetry | str | bool | None, configured: Reloadable | None, name: str, version: str
) -> Observability | None:
    """What a `telemetry=` argument or else the configuration stands for; `None` without either."""
    if said is None and configured is not None:
        stated = configured.config.telemetry
        said = None if stated is None else Telemetry(**stated)
    if said is None or said is False:
        return None
    if said is True:
        raise DefinitionError("telemetry=True does not say where to: write telemetry='prometheus' or 'otlp'")
    return Observability(Telemetry.of_text(said) if isinstance(said, str) else said, name, version)


class Observability:
    """The metrics and traces of one server.

    Attributes:
        options: What was chosen.
        counts: The observer of its calls.
    """

    def __init__(self, options: Telemetry, name: str, version: str) -> None:
        for kind, module in _EXTRAS:
            if getattr(options, kind) and not _is_installed(module):
                extra = "otel" if kind == "otlp" else kind
                raise DefinitionError(f"telemetry needs the extra: pip install 'mcp-toolset[{extra}]'")
        self.options = options
        self._every = options.every or _interval()
        self._service = (options.otlp if isinstance(options.otlp, str) else None, name, version)
        self.counts = CallMetrics(Traces(options.spans) if options.otlp and options.spans else None)

    def watch(self, answers: MCPServer) -> None:
        """Count the requests of a server, and choose which of them are traced."""
        answers.timed(self._note)
        answers.traces = self.counts.traces

    @asynccontextmanager
    async def running(self, up: Up) -> AsyncGenerator[None]:
        """Send for the length of a block; `up` tells which mounted servers calls reach."""
        if not self.options.otlp:
            yield
            return
        # OpenTelemetry takes long to import.
        collector = await anyio.to_thread.run_sync(self._collector)
        async with AsyncExitStack() as stack:
            if collector.sends_metrics:
                sender = collector.sender()
                again, last = partial(self._send_again, sender, up), partial(self._send_last, sender, up)
                await stack.enter_async_context(beside(again, last=last))
            if self.counts.traces is not None and (found := collector.spans()) is not None:
                provider, give_up = found
                self.counts.traces.begin(provider)
                stack.push_async_callback(_within, provider.shutdown, give_up)
                stack.callback(self.counts.traces.end)
            yield

    def page(self, sees: Sees, up: Mapping[str, bool], accepted: str) -> tuple[bytes, str]:
        """The metrics for Prometheus, as far as a reader may know of them, and their content type."""
        from mcp_toolset.calls.telemetry.prometheus_page import page

        self.counts.gather()
        return page(series_of(self.counts, sees), up, accepted)

    def _note(self, method: str, version: str, error: str, seconds: float) -> None:
        self.counts.requests[method, version, error].note(seconds)

    def _collector(self) -> Collector:
        from mcp_toolset.calls.telemetry.otlp import Collector

        return Collector(*self._service)

    async def _send_again(self, sender: Sender, up: Up) -> None:
        while True:
            await anyio.sleep(self._every)
            self.counts.gather()
            await anyio.to_thread.run_sync(self._send, sender, up())

    async def _send_last(self, sender: Sender, up: Up) -> None:
        self.counts.gather()
        await _within(partial(self._send, sender, up()), sender.close)
        sender.close()

    def _send(self, sender: Sender, up: Mapping[str, bool]) -> None:
        sender.send(series_of(self.counts), up)


async def _within(end: Callable[[], object], give_up: Callable[[], object]) -> None:
    """Have a thread send what is left; a collector that does not answer is not waited for."""
    with anyio.move_on_after(LAST, shield=True) as scope:
        await anyio.to_thread.run_sync(end, abandon_on_cancel=True)
    if scope.cancelled_caught:
        give_up()
        _log.warning("the last metrics or spans were not sent: the collector took over %g s", LAST)


def _interval() -> float:
    """Seconds between two exports, by the environment."""
    said = os.environ.get(_MILLISECONDS) or "60000"
    try:
        found = float(said) / 1000
    except ValueError:
        found = 0.0
    if not (isfinite(found) and found > 0):
        raise DefinitionError(f"{_MILLISECONDS}={said} cannot be used; write milliseconds, such as 60000")
    return found


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        # A package above it is missing.
        return False
