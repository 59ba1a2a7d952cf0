"""`Traces`: which requests of a server are traced, and the tracer that sends their spans to a collector."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from random import random
from time import monotonic
from typing import Any, Final

from mcp_toolset._records import dataclass
from mcp_toolset.calls.pipeline.observers import NAME
from mcp_toolset.errors import DefinitionError

_SAMPLER: Final = "OTEL_TRACES_SAMPLER"
_RATIO: Final = "OTEL_TRACES_SAMPLER_ARG"
_PARENT: Final = "parentbased_"
_FLAGS: Final = slice(53, 55)
"""Where a `traceparent` has its flags."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """Which requests are traced.

    Attributes:
        follows: Whether the decision of a client that sends its trace holds.
        ratio: The share of the others; `None` limits their rate instead.
    """

    follows: bool = True
    ratio: float | None = None

    @classmethod
    def of_environment(cls) -> Sampling:
        """What the variables of OpenTelemetry say."""
        said = os.environ.get(_SAMPLER, "").strip().lower()
        if not said:
            return cls()
        follows, kind = said.startswith(_PARENT), said.removeprefix(_PARENT)
        try:
            given = min(1.0, max(0.0, float(os.environ.get(_RATIO) or 1)))
            ratio = {"always_on": 1.0, "always_off": 0.0, "traceidratio": given}[kind]
        except (KeyError, ValueError):
            known = "always_on, always_off or traceidratio, or one of them after parentbased_"
            raise DefinitionError(
                f"{_SAMPLER}={said} with {_RATIO}={os.environ.get(_RATIO, '')} cannot be used; write {known}"
            ) from None
        return cls(follows, ratio)


class Traces:
    """Chooses requests before they are handled: OpenTelemetry makes a span before it asks its sampler.

    Attributes:
        tracer: Makes spans; `None` while no collector takes any.
        due: Whether a request without a trace of its client may be chosen; else `sampled` need not be asked.
        active: The requests that are traced now.
    """

    def __init__(self, rate: float) -> None:
        self._sampling = Sampling.of_environment()
        self._rate = rate
        self._left = self._most = max(1.0, rate)
        self._at = 0.0
        self.tracer: Any = None
        self.due = False
        self.active = 0

    def begin(self, provider: Any) -> None:
        """Send spans through a provider of OpenTelemetry from now on."""
        self.tracer = provider.get_tracer(NAME)
        ratio = self._sampling.ratio
        self.due = bool(self._rate if ratio is None else ratio)

    def end(self) -> None:
        self.tracer, self.due = None, False

    def sampled(self, meta: Mapping[str, Any] | None) -> bool:
        """Whether the request with this `_meta` is traced."""
        if self.tracer is None:
            return False
        if meta and self._sampling.follows and isinstance(parent := meta.get("traceparent"), str):
            return parent[_FLAGS][-1:] in "13579bdf" and len(parent) >= _FLAGS.stop
        if self._sampling.ratio is not None:
            return random() < self._sampling.ratio
        return self.due and self._takes()

    def _takes(self) -> bool:
        """Take one from the bucket; an empty one is asked again when it has one."""
        now = monotonic()
        self._left = min(self._most, self._left + (now - self._at) * self._rate)
        self._at = now
        if self._left < 1:
            self._pause((1 - self._left) / self._rate)
            return False
        self._left -= 1
        return True

    def _pause(self, seconds: float) -> None:
        self.due = False
        asyncio.get_running_loop().call_later(seconds, self._resume)

    def _resume(self) -> None:
        self.due = self.tracer is not None
