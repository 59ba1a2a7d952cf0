"""Settings of metrics and traces."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final, Self

from mcp_toolset._records import dataclass
from mcp_toolset.config.extensions import Settings
from mcp_toolset.config.jsonc import Place
from mcp_toolset.config.tables import BOOL, TEXT, Meaning, Schema, any_of, key

_SWITCH: Final[Schema] = {**BOOL, "strict": True}
_URL: Final[Schema] = {**TEXT, "coerce_numbers_to_str": False}
_NUMBER: Final[dict[str, Any]] = {"type": "float", "allow_inf_nan": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetrySettings(Settings):
    """Destinations of metrics and traces; `Telemetry` describes each key in full."""

    says: ClassVar = Meaning(
        "Where [metrics and traces](observing.md#metrics-and-traces) go: `prometheus`, `otlp` or both, or an "
        "object.",
        "prometheus,otlp",
    )
    of_clients: ClassVar = True
    words: ClassVar = ("prometheus", "otlp", "public")

    prometheus: bool = key(
        _SWITCH, "true or false", False, meaning="Whether `GET /metrics` has the metrics.", example=True
    )
    otlp: bool | str = key(
        any_of(BOOL, _URL),
        "true, false or the URL of a collector",
        False,
        meaning="Whether metrics and traces are sent to a collector of OpenTelemetry, or its URL.",
        example="http://collector:4318",
    )
    max_spans_per_second: float = key(
        {**_NUMBER, "ge": 0},
        "a number of requests per second",
        10.0,
        meaning="Requests per second that are traced at most; 10 if left out.",
        example=100,
    )
    export_interval: float | None = key(
        {**_NUMBER, "gt": 0},
        "a positive number of seconds",
        meaning="Seconds between two exports of metrics; 60 if left out.",
        example=15,
    )
    public: bool = key(
        _SWITCH,
        "true or false",
        False,
        meaning="Whether `/metrics` needs no token, and accepts every name as host.",
        example=True,
    )

    def checked(self, place: Place, servers: Mapping[str, str]) -> Self:
        if not (self.prometheus or self.otlp):
            raise place.error("says nothing to send to", 'write "prometheus": true or "otlp": true')
        return self


SETTINGS: Final = TelemetrySettings
