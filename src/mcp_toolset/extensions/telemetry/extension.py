"""`Telemetry` and `Observability`: where the metrics and traces of a server go, and what sends them."""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import fields
from functools import partial
from importlib.util import find_spec
from itertools import accumulate
from math import isfinite
from time import perf_counter
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self, cast

import anyio
import anyio.to_thread

from mcp_toolset._records import dataclass
from mcp_toolset.concurrency.tasks import beside
from mcp_toolset.context.connection import RequestContext
from mcp_toolset.context.spans import error_of
from mcp_toolset.errors import DefinitionError
from mcp_toolset.extending.extension import Extension, HttpPage
from mcp_toolset.extensions.telemetry import metrics
from mcp_toolset.extensions.telemetry.sampling import Traces
from mcp_toolset.tools.call import Identity

if TYPE_CHECKING:
    from mcp_toolset.config.extensions import Settings
    from mcp_toolset.extending.extension import Answer
    from mcp_toolset.extending.host import Host
    from mcp_toolset.extensions.telemetry.otlp import Collector, MetricsSender

WORDS: Final = ("prometheus", "otlp", "public")
SPANS: Final = 10.0


@dataclass(frozen=True, slots=True)
class Telemetry:
    """Destinations of the metrics and traces of a server; see docs/observing.md.

    Attributes:
        prometheus: True if `GET /metrics` has the metrics; needs the extra `prometheus`.
        otlp: True if metrics and traces are sent to a collector of OpenTelemetry, or its URL; needs the extra
            `otel`. Without a URL the variables `OTEL_*` decide, else `http://localhost:4318`.
        max_spans_per_second: Requests per second that are traced at most; requests that continue a sampled
            trace of the client are always traced. `OTEL_TRACES_SAMPLER` replaces this.
        export_interval: Seconds between two exports of metrics; `None` leaves it to
            `OTEL_METRIC_EXPORT_INTERVAL`, else 60.
        public: True if `/metrics` needs no token, and accepts every name as host.
    """

    prometheus: bool = False
    otlp: bool | str = False
    max_spans_per_second: float = SPANS
    export_interval: float | None = None
    public: bool = False

    def __post_init__(self) -> None:
        if not (self.prometheus or self.otlp):
            raise DefinitionError("Telemetry takes prometheus=True or otlp=True, or both")
        spans, interval = self.max_spans_per_second, self.export_interval
        if not (isfinite(spans) and spans >= 0):
            raise DefinitionError(
                f"Telemetry(max_spans_per_second=…) takes a number of 0 or more, not {spans!r}"
            )
        if interval is not None and not (isfinite(interval) and interval > 0):
            raise DefinitionError(f"Telemetry(export_interval=…) takes positive seconds, not {interval!r}")

    @classmethod
    def of_text(cls, text: str) -> Telemetry:
        """Parse a text such as `prometheus,otlp`.

        Raises:
            DefinitionError: a word is unknown.
        """
        said: dict[str, Any] = {}
        for word in filter(None, (part.strip() for part in text.split(","))):
            if word not in WORDS:
                raise DefinitionError(
                    f"telemetry cannot be {word!r}; write one or more of {', '.join(WORDS)}"
                )
            said[word] = True
        return cls(**said)


METRICS_PATH: Final = "/metrics"
UP: Final = "mcp_toolset_server_up"

LAST: Final = 2.0  # seconds that the last spans and metrics have on their way when a server is closed
_MILLISECONDS: Final = "OTEL_METRIC_EXPORT_INTERVAL"
_EXTRAS: Final = (
    ("prometheus", "prometheus_client"),
    ("otlp", "opentelemetry.exporter.otlp.proto.http"),
    ("otlp", "opentelemetry.sdk"),
)
_log = logging.getLogger("mcp_toolset.telemetry")


class Observability(Extension):
    """Metrics and traces of one server; `counts` observes its calls."""

    key: ClassVar = "telemetry"
    in_views: ClassVar = "shared"

    def __init__(self, options: Telemetry | str) -> None:
        """Count nothing yet; `options` may be `"prometheus"`, `"otlp"` or `"prometheus,otlp"`."""
        self.options = Telemetry.of_text(options) if isinstance(options, str) else options
        for kind, module in _EXTRAS:
            if getattr(self.options, kind) and not _is_installed(module):
                extra = "otel" if kind == "otlp" else kind
                raise DefinitionError(f"telemetry needs the extra: pip install 'mcp-toolset[{extra}]'")
        self._interval = self.options.export_interval or _interval()
        traced = self.options.otlp and self.options.max_spans_per_second
        self.counts = metrics.CallMetrics(Traces(self.options.max_spans_per_second) if traced else None)

    @classmethod
    def of(cls, said: Any, stated: Settings | None, host: Host) -> Self | None:
        """`True` is what the configuration says."""
        if said == "":
            return None
        if said is not None and said is not True:
            given = cast("object", said)
            if not isinstance(given, Telemetry | str):
                raise DefinitionError(f"telemetry takes a Telemetry or a text such as 'otlp', not {given!r}")
            return cls(given)
        if stated is None:
            raise DefinitionError(
                "telemetry=True does not say where to: write telemetry='prometheus' or 'otlp'"
            )
        return cls(Telemetry(**{one.name: getattr(stated, one.name) for one in fields(Telemetry)}))

    def bind(self, host: Host) -> Self:
        bound = type(self)(self.options)
        bound.host = host
        return bound

    def observer(self) -> metrics.CallMetrics:
        return self.counts

    def intercept(self, method: str, answer: Answer) -> Answer:
        return answer if method == "tools/call" else self._timed(method or metrics.OTHER, answer)

    def _timed(self, method: str, answer: Answer) -> Answer:
        async def timed(request: RequestContext) -> dict[str, Any]:
            began, error = perf_counter(), ""
            try:
                return await answer(request)
            # Whatever a request fails by is counted.
            except BaseException as fault:
                error = error_of(fault)
                raise
            finally:
                key = (method, request.protocol_version, error)
                self.counts.requests[key].note(perf_counter() - began)

        return timed

    def http_pages(self) -> dict[str, HttpPage]:
        if not self.options.prometheus:
            return {}
        return {METRICS_PATH: HttpPage(self._page, self.options.public)}

    def _page(self, identity: Identity | None, accepted: str) -> tuple[bytes, str]:
        """The metrics as far as a caller may know of them, and their content type."""
        sees = metrics.everything if self.options.public else self.host.seen_by(identity)
        self.counts.gather()
        up = {name: is_up for name, is_up in self._up().items() if sees(name, "")}
        return _prometheus_page(metrics.series_of(self.counts, sees), up, accepted)

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        if not self.options.otlp:
            yield
            return
        # OpenTelemetry takes long to import.
        collector = await anyio.to_thread.run_sync(self._collector)
        async with AsyncExitStack() as stack:
            if collector.sends_metrics:
                sender = collector.sender()
                again, last = partial(self._send_again, sender), partial(self._send_last, sender)
                await stack.enter_async_context(beside(again, last=last))
            if self.counts.traces is not None and (found := collector.spans()) is not None:
                provider, give_up = found
                self.counts.traces.begin(provider)
                stack.push_async_callback(_within, provider.shutdown, give_up)
                stack.callback(self.counts.traces.end)
            yield

    def _up(self) -> dict[str, bool]:
        return {name: one.is_up for name, one in self.host.statuses().items()}

    def _collector(self) -> Collector:
        from mcp_toolset.extensions.telemetry.otlp import Collector

        url = self.options.otlp if isinstance(self.options.otlp, str) else None
        return Collector(url, self.host.name, self.host.version)

    async def _send_again(self, sender: MetricsSender) -> None:
        while True:
            await anyio.sleep(self._interval)
            self.counts.gather()
            await anyio.to_thread.run_sync(self._send, sender, self._up())

    async def _send_last(self, sender: MetricsSender) -> None:
        self.counts.gather()
        await _within(partial(self._send, sender, self._up()), sender.close)
        sender.close()

    def _send(self, sender: MetricsSender, up: Mapping[str, bool]) -> None:
        sender.send(metrics.series_of(self.counts), up)


def _prometheus_page(
    series: Iterable[metrics.Durations], up: Mapping[str, bool], accepted: str
) -> tuple[bytes, str]:
    """Metrics as Prometheus reads them, and their content type, which `Accept` chooses."""
    from prometheus_client import CollectorRegistry
    from prometheus_client.core import GaugeMetricFamily, HistogramMetricFamily
    from prometheus_client.exposition import choose_encoder
    from prometheus_client.registry import Collector

    class ServersUp(Collector):
        def collect(self) -> Iterator[Any]:
            gauge = GaugeMetricFamily(
                UP, "Whether calls reach a mounted server.", labels=["mcp_toolset_server"]
            )
            for name, is_up in up.items():
                gauge.add_metric([name], float(is_up))
            yield gauge
            for one in series:
                # A metric has the same labels in all its lines: those that a point lacks are empty.
                names = list(dict.fromkeys(name for labels in one.points for name, _ in labels))
                family = HistogramMetricFamily(
                    f"{_plain(one.name)}_seconds", one.description, labels=[_plain(name) for name in names]
                )
                for labels, found in one.points.items():
                    known, bounds = dict(labels), [*map(str, metrics.BOUNDS), "+Inf"]
                    buckets = list(zip(bounds, accumulate(found.buckets), strict=True))
                    family.add_metric([known.get(name, "") for name in names], buckets, found.total)
                yield family

    registry = CollectorRegistry()
    registry.register(ServersUp())
    encode, kind = choose_encoder(accepted)
    return encode(registry), kind


def _plain(name: str) -> str:
    return name.replace(".", "_")


async def _within(end: Callable[[], object], give_up: Callable[[], object]) -> None:
    """Send what is left in a thread, and give up on a collector that does not answer."""
    with anyio.move_on_after(LAST, shield=True) as scope:
        await anyio.to_thread.run_sync(end, abandon_on_cancel=True)
    if scope.cancelled_caught:
        give_up()
        _log.warning("the last metrics or spans were not sent: the collector took over %g s", LAST)


def _interval() -> float:
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


EXTENSION = Observability
