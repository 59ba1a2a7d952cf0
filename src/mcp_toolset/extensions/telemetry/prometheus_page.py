"""`page`: metrics as Prometheus reads them; it needs the extra `prometheus`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from mcp_toolset.extensions.telemetry.metrics import BOUNDS, Durations

UP = "mcp_toolset_server_up"


class _MetricsPage(Collector):
    def __init__(self, series: Iterable[Durations], up: Mapping[str, bool]) -> None:
        self._series = series
        self._up = up

    def collect(self) -> Iterator[Any]:
        gauge = GaugeMetricFamily(UP, "Whether calls reach a mounted server.", labels=["mcp_toolset_server"])
        for name, is_up in self._up.items():
            gauge.add_metric([name], float(is_up))
        yield gauge
        for one in self._series:
            # A metric has the same labels in all its lines: those that a point lacks are empty.
            names = list(dict.fromkeys(name for labels in one.points for name, _ in labels))
            family = HistogramMetricFamily(
                f"{_plain(one.name)}_seconds", one.told, labels=[_plain(name) for name in names]
            )
            for labels, found in one.points.items():
                known, bounds = dict(labels), [*map(str, BOUNDS), "+Inf"]
                buckets = list(zip(bounds, accumulate(found.buckets), strict=True))
                family.add_metric([known.get(name, "") for name in names], buckets, found.total)
            yield family


def page(series: Iterable[Durations], up: Mapping[str, bool], accepted: str) -> tuple[bytes, str]:
    """The page and its content type, chosen by what the reader accepts (`Accept`)."""
    registry = CollectorRegistry()
    registry.register(_MetricsPage(series, up))
    encode, kind = choose_encoder(accepted)
    return encode(registry), kind


def _plain(name: str) -> str:
    return name.replace(".", "_")
