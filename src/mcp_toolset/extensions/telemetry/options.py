"""`Telemetry`: where the metrics and traces of a server go."""

from __future__ import annotations

from math import isfinite
from typing import Any, Final

from mcp_toolset._records import dataclass
from mcp_toolset.errors import DefinitionError

WORDS: Final = ("prometheus", "otlp", "public")
SPANS: Final = 10.0


@dataclass(frozen=True, slots=True)
class Telemetry:
    """Where the metrics and traces of a server go; see docs/observing.md.

    Attributes:
        prometheus: Whether `GET /metrics` has the metrics; needs the extra `prometheus`.
        otlp: Whether metrics and traces are sent to a collector of OpenTelemetry, or its URL; needs the extra
            `otel`. Without a URL the variables `OTEL_*` decide, else `http://localhost:4318`.
        spans: Requests per second that are traced at most; requests that continue a sampled trace of the
            client are always traced. `OTEL_TRACES_SAMPLER` replaces this.
        every: Seconds between two exports of metrics; `None` leaves it to `OTEL_METRIC_EXPORT_INTERVAL`, else
            60.
        public: Whether `/metrics` needs no token, and accepts every name as host.
    """

    prometheus: bool = False
    otlp: bool | str = False
    spans: float = SPANS
    every: float | None = None
    public: bool = False

    def __post_init__(self) -> None:
        """Check the numbers.

        Raises:
            DefinitionError: a number cannot be used, or nothing is chosen.
        """
        if not (self.prometheus or self.otlp):
            raise DefinitionError("Telemetry takes prometheus=True or otlp=True, or both")
        if not (isfinite(self.spans) and self.spans >= 0):
            raise DefinitionError(f"Telemetry(spans=…) takes a number of 0 or more, not {self.spans!r}")
        if self.every is not None and not (isfinite(self.every) and self.every > 0):
            raise DefinitionError(f"Telemetry(every=…) takes positive seconds, not {self.every!r}")

    @classmethod
    def of_text(cls, text: str) -> Telemetry:
        """What a text such as `prometheus,otlp` stands for.

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
