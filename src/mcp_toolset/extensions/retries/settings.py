"""Settings of a mounted server: retries of its calls, and its circuit breaker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final, Self

from mcp_toolset._records import dataclass, replace
from mcp_toolset.config.entries import validated
from mcp_toolset.config.extensions import ServerSettings
from mcp_toolset.config.jsonc import Place
from mcp_toolset.config.tables import COUNT, SECONDS, TABLE, Table, key

_EXAMPLE: Final = {"failures": 5, "recover_after": 30}


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerEntry(Table):
    """Settings of a circuit breaker: its threshold and its pause."""

    unknown: ClassVar = "forbid"

    failures: int = key(
        COUNT,
        "a positive whole number",
        5,
        meaning="Failures in a row after which the server is not called.",
        example=5,
    )
    recover_after: float = key(
        SECONDS,
        "a positive number of seconds",
        30.0,
        meaning="Seconds for which the server is not called.",
        example=30,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RetriesOfServer(ServerSettings):
    """Settings of retries and of the circuit breaker in the entry of a server."""

    protects: ClassVar = False
    parts: ClassVar[Mapping[str, type[Table]]] = {"breaker": BreakerEntry}

    retries: int = key(
        {"type": "int", "ge": 0, "le": 10, "strict": True},
        "a whole number from 0 to 10",
        0,
        meaning="How often a call [is repeated](limits.md#repeat-calls) after a failure, if its tool allows "
        "it.",
        example=2,
    )
    breaker: Any = key(
        TABLE,
        '{"failures": 5, "recover_after": 30}',
        meaning="After how many failures in a row the server is "
        "[not called](limits.md#stop-calling-a-server-that-fails), and for how long.",
        example=_EXAMPLE,
    )

    def checked(self, place: Place, server: str) -> Self:
        """Check the settings; turn the breaker into a pair of numbers, as programs give it."""
        if self.breaker is None:
            return self
        entry = validated(BreakerEntry, self.breaker, place.at("breaker"))
        return replace(self, breaker=(entry.failures, entry.recover_after))


SERVER_SETTINGS: Final = RetriesOfServer
