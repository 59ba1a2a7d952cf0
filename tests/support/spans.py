"""A collector of spans for one test: which were begun."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import pytest
from mcp.shared import _otel
from opentelemetry import trace


class Spans(trace.NoOpTracer):
    """The names of the spans that were begun."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        """Collect from now on, until the test ends."""
        self.begun: list[str] = []
        patch.setattr(trace, "_TRACER_PROVIDER", _Provider(self))
        # The SDK's own tracer would keep the first provider that it meets for the whole process.
        patch.setattr(_otel, "_tracer", self)

    def start_as_current_span(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, name: str, *_: Any, **__: Any
    ) -> AbstractContextManager[trace.Span]:
        """Begin a span that goes nowhere."""
        self.begun.append(name)
        return trace.use_span(trace.INVALID_SPAN)


class _Provider(trace.NoOpTracerProvider):
    def __init__(self, spans: Spans) -> None:
        self._spans = spans

    def get_tracer(self, *_: Any, **__: Any) -> trace.Tracer:
        return self._spans
