"""`Collector`: sends metrics and spans to a collector of OpenTelemetry; it needs the extra `otel`."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from importlib import import_module
from typing import Any, Final

from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    HistogramDataPoint,
    Metric,
    MetricExporter,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
)
from opentelemetry.sdk.metrics.export import Histogram as HistogramData
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from mcp_toolset.calls.observers import NAME
from mcp_toolset.errors import DefinitionError
from mcp_toolset.extensions.telemetry.metrics import BOUNDS, Durations

_SERVICE: Final = "service.name"
_PACKAGES: Final = {
    "http/protobuf": "opentelemetry.exporter.otlp.proto.http",
    "grpc": "opentelemetry.exporter.otlp.proto.grpc",
}


class Collector:
    """The exporters of one server; its methods wait for the network, so threads call them."""

    def __init__(self, url: str | None, service: str, version: str) -> None:
        """Describe the service, unless `OTEL_SERVICE_NAME` does; `OTEL_EXPORTER_OTLP_…` may replace `url`."""
        self._resource = _resource(service, version)
        self._began = time.time_ns()
        self._make_spans, self._make_metrics = _exporters(url)

    @property
    def sends_metrics(self) -> bool:
        return _chosen("OTEL_METRICS_EXPORTER")

    def spans(self) -> tuple[TracerProvider, Callable[[], object]] | None:
        """The provider of spans, and its exporter's shutdown; `None` if the environment turns them off."""
        if not _chosen("OTEL_TRACES_EXPORTER"):
            return None
        # Which requests are traced is decided before a span is made.
        provider = TracerProvider(sampler=ALWAYS_ON, resource=self._resource, shutdown_on_exit=False)
        exporter = self._make_spans()
        provider.add_span_processor(BatchSpanProcessor(exporter))
        return provider, exporter.shutdown

    def sender(self) -> MetricsSender:
        return MetricsSender(self._make_metrics(), self._resource, self._began)


class MetricsSender:
    """Sends metrics, as sums since `began`."""

    def __init__(self, exporter: MetricExporter, resource: Resource, began: int) -> None:
        self._exporter: Any = exporter
        self._closed = False
        self._resource = resource
        self._began = began

    def send(self, series: Iterable[Durations], up: Mapping[str, bool]) -> None:
        now = time.time_ns()
        made = [self._durations(one, now) for one in series if one.points]
        gauge = Gauge([NumberDataPoint({"mcp_toolset.server": name}, 0, now, int(up[name])) for name in up])
        made.append(Metric("mcp_toolset.server.up", "Whether calls reach a mounted server.", "1", gauge))
        scope = ScopeMetrics(InstrumentationScope(NAME), made, "")
        self._exporter.export(MetricsData([ResourceMetrics(self._resource, [scope], "")]))

    def close(self) -> None:
        """Send no more; what is being sent is given up."""
        if not self._closed:
            self._closed = True
            self._exporter.shutdown()

    def _durations(self, one: Durations, now: int) -> Metric:
        unknown: Any = None
        points = [
            HistogramDataPoint(
                attributes=dict(labels),
                start_time_unix_nano=self._began,
                time_unix_nano=now,
                count=histogram.count,
                sum=histogram.total,
                bucket_counts=histogram.buckets,
                explicit_bounds=BOUNDS,
                min=unknown,
                max=unknown,
            )
            for labels, histogram in one.points.items()
        ]
        return Metric(
            one.name, one.description, "s", HistogramData(points, AggregationTemporality.CUMULATIVE)
        )


def _resource(service: str, version: str) -> Resource:
    stated = Resource.create()
    own = {"service.version": version}
    attributes = os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    named = "OTEL_SERVICE_NAME" in os.environ or f"{_SERVICE}=" in attributes
    return stated.merge(Resource(own if named else {**own, _SERVICE: service}))


def _chosen(variable: str) -> bool:
    off = os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true"
    return not off and os.environ.get(variable, "otlp") != "none"


def _exporters(url: str | None) -> tuple[Callable[[], SpanExporter], Callable[[], MetricExporter]]:
    protocol = os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
    package = _PACKAGES.get(protocol)
    if package is None:
        known = " or ".join(_PACKAGES)
        raise DefinitionError(f"OTEL_EXPORTER_OTLP_PROTOCOL={protocol} cannot be used; write {known}")
    try:
        spans = import_module(f"{package}.trace_exporter").OTLPSpanExporter
        metrics = import_module(f"{package}.metric_exporter").OTLPMetricExporter
    except ImportError:
        name = package.replace(".", "-").replace("_", "-")
        raise DefinitionError(f"OTEL_EXPORTER_OTLP_PROTOCOL={protocol} needs pip install {name}") from None
    if url is None:
        return spans, metrics
    paths = ("", "") if protocol == "grpc" else ("/v1/traces", "/v1/metrics")
    of_spans, of_metrics = (url.rstrip("/") + path for path in paths)
    return partial(spans, endpoint=of_spans), partial(metrics, endpoint=of_metrics)
