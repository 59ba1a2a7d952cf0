"""A collector for tests: it takes OTLP over HTTP, and reads it with the protocol's own classes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

REQUESTS: dict[str, type[Any]] = {
    "/v1/metrics": ExportMetricsServiceRequest,
    "/v1/traces": ExportTraceServiceRequest,
}


class Received:
    """What a collector has received.

    Attributes:
        services: The names of services that have sent something.
        spans: The spans.
        bytes: All of it as it came.
    """

    def __init__(self) -> None:
        self.services: set[str] = set()
        self.spans: list[Any] = []
        self.bytes = b""
        self._metrics: dict[str, Any] = {}

    def take(self, path: str, body: bytes) -> None:
        self.bytes += body
        request = REQUESTS[path].FromString(body)
        for one in getattr(request, "resource_metrics", ()):
            self._take_resource(one.resource)
            self._metrics |= {metric.name: metric for scope in one.scope_metrics for metric in scope.metrics}
        for one in getattr(request, "resource_spans", ()):
            self._take_resource(one.resource)
            self.spans += [span for scope in one.scope_spans for span in scope.spans]

    def counts(self, name: str) -> dict[tuple[tuple[str, str], ...], int]:
        """The number of durations by attributes, of one metric."""
        metric = self._metrics[name]
        assert metric.unit == "s" and metric.histogram.aggregation_temporality == 2
        points = metric.histogram.data_points
        assert all(sum(point.bucket_counts) == point.count for point in points)
        return {tuple(sorted(attributes(point).items())): point.count for point in points}

    def gauge(self, name: str) -> dict[str, int]:
        points = self._metrics[name].gauge.data_points
        return {attributes(point)["mcp_toolset.server"]: point.as_int for point in points}

    def _take_resource(self, resource: Any) -> None:
        self.services.add(attributes(resource)["service.name"])


def attributes(of: Any) -> dict[str, str]:
    return {one.key: one.value.string_value for one in of.attributes}


@contextmanager
def collecting() -> Iterator[tuple[str, Received]]:
    """A collector, by its URL, and what it has received."""
    received = Received()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.take(self.path, self.rfile.read(int(self.headers["content-length"])))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", received
        finally:
            server.shutdown()
            thread.join(30)
