"""Settings of code mode."""

from __future__ import annotations

from typing import Any, ClassVar, Final

from mcp_toolset._records import dataclass
from mcp_toolset.config.extensions import Settings
from mcp_toolset.config.tables import COUNT, SECONDS, Meaning, key
from mcp_toolset.extensions.code.sandbox import CodeLimits

_DEFAULT: Final = CodeLimits()


def _limit(name: str, meaning: str, example: int) -> Any:
    default: float = getattr(_DEFAULT, name)
    is_time = isinstance(default, float)
    remedy = "a positive number of seconds" if is_time else "a positive whole number"
    return key(SECONDS if is_time else COUNT, remedy, default, meaning=meaning, example=example)


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeSettings(Settings):
    """The limits of code; `CodeLimits` says more of each key."""

    says: ClassVar = Meaning(
        "Whether models may run [code](code-mode.md) that calls granted tools; an object sets the limits.",
        {"max_compute_seconds": 5},
    )

    max_compute_seconds: float = _limit(
        "max_compute_seconds", "Seconds of computing in one run, without waiting.", 5
    )
    timeout: float = _limit("timeout", "Seconds for one run, without waiting for a person.", 120)
    max_memory_mb: int = _limit("max_memory_mb", "Megabytes of memory for the code.", 128)
    max_calls: int = _limit("max_calls", "Calls of tools in one run.", 100)
    max_stops: int = _limit("max_stops", "How often code stops for a call, a wait or an import.", 400)
    max_parallel: int = _limit("max_parallel", "Calls of tools at the same time; further calls wait.", 4)
    max_printed: int = _limit("max_printed", "Characters that the code may print.", 10_000)
    max_value_bytes: int = _limit(
        "max_value_bytes", "Bytes of JSON of the run's value; a longer value is a preview.", 50_000
    )
    workers: int = _limit(
        "workers", "Processes of the sandbox, which is the number of runs at the same time.", 2
    )


SETTINGS: Final = CodeSettings
