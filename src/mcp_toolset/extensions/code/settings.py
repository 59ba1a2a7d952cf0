"""What a file says of code mode."""

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
    said = "a positive number of seconds" if is_time else "a positive whole number"
    return key(SECONDS if is_time else COUNT, said, default, meaning=meaning, example=example)


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeSettings(Settings):
    """The limits of code; `CodeLimits` says more of each key."""

    says: ClassVar = Meaning(
        "Whether models may run [code](code-mode.md) that calls granted tools; an object sets the limits.",
        {"seconds": 5},
    )

    seconds: float = _limit("seconds", "Seconds of computing in one run, without waiting.", 5)
    timeout: float = _limit("timeout", "Seconds for one run, without waiting for a person.", 120)
    memory_mb: int = _limit("memory_mb", "Megabytes of memory for the code.", 128)
    calls: int = _limit("calls", "Calls of tools in one run.", 100)
    suspensions: int = _limit("suspensions", "How often code stops for a call, a wait or an import.", 400)
    parallel: int = _limit("parallel", "Calls of tools at the same time; further calls wait.", 4)
    printed: int = _limit("printed", "Characters that the code may print.", 10_000)
    value: int = _limit("value", "Bytes of JSON of the run's value; a longer value is a preview.", 50_000)
    workers: int = _limit(
        "workers", "Processes of the sandbox, which is the number of runs at the same time.", 2
    )


SETTINGS: Final = CodeSettings
