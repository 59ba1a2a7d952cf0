"""`Traces`: the sampler of requests, which decides before a span is made."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from random import random
from time import monotonic
from typing import Any, Final

from mcp_toolset._records import dataclass
from mcp_toolset.calls.observers import NAME, TraceSampler
from mcp_toolset.errors import DefinitionError

_SAMPLER: Final = "OTEL_TRACES_SAMPLER"
_RATIO: Final = "OTEL_TRACES_SAMPLER_ARG"
_PARENT: Final = "parentbased_"
_FLAGS: Final = slice(53, 55)  # the flags in a `traceparent`


@dataclass(frozen=True, slots=True)
class Sampling:
    """The sampling that the environment asks for.

    Attributes:
        follows: True if requests with a trace of the client are sampled as the client decided.
        ratio: The ratio of requests that are sampled; `None` to sample by rate.
    """

    follows: bool = True
    ratio: float | None = None

    @classmethod
    def of_environment(cls) -> Sampling:
        sampler = os.environ.get(_SAMPLER, "").strip().lower()
        if not sampler:
            return cls()
        follows, kind = sampler.startswith(_PARENT), sampler.removeprefix(_PARENT)
        try:
            argument = min(1.0, max(0.0, float(os.environ.get(_RATIO) or 1)))
            ratio = {"always_on": 1.0, "always_off": 0.0, "traceidratio": argument}[kind]
        except (KeyError, ValueError):
            known = "always_on, always_off or traceidratio, or one of them after parentbased_"
            raise DefinitionError(
                f"{_SAMPLER}={sampler} with {_RATIO}={os.environ.get(_RATIO, '')} cannot be used; "
                f"write {known}"
            ) from None
        return cls(follows, ratio)


class Traces(TraceSampler):
    """Samples requests before they are handled: OpenTelemetry makes a span before it asks its sampler."""

    def __init__(self, rate: float) -> None:
        self._sampling = Sampling.of_environment()
        self._rate = rate
        self._tokens = self._capacity = max(1.0, rate)
        self._refilled = 0.0

    def begin(self, provider: Any) -> None:
        self.tracer = provider.get_tracer(NAME)
        ratio = self._sampling.ratio
        self.due = bool(self._rate if ratio is None else ratio)

    def end(self) -> None:
        self.tracer, self.due = None, False

    def sampled(self, meta: Mapping[str, Any] | None) -> bool:
        if self.tracer is None:
            return False
        if meta and self._sampling.follows and isinstance(parent := meta.get("traceparent"), str):
            return parent[_FLAGS][-1:] in "13579bdf" and len(parent) >= _FLAGS.stop
        if self._sampling.ratio is not None:
            return random() < self._sampling.ratio
        return self.due and self._take_token()

    def _take_token(self) -> bool:
        """Take a token from the bucket; an empty bucket turns `due` off until its next token."""
        now = monotonic()
        self._tokens = min(self._capacity, self._tokens + (now - self._refilled) * self._rate)
        self._refilled = now
        if self._tokens < 1:
            self.due = False
            asyncio.get_running_loop().call_later((1 - self._tokens) / self._rate, self._resume)
            return False
        self._tokens -= 1
        return True

    def _resume(self) -> None:
        self.due = self.tracer is not None
