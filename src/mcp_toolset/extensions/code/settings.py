"""What a file says of code mode."""

from __future__ import annotations

from typing import ClassVar, Final

from mcp_toolset._records import dataclass
from mcp_toolset.config.extensions import Settings
from mcp_toolset.config.tables import COUNT, SECONDS, Meaning, key
from mcp_toolset.extensions.code.sandbox import CodeLimits

_DEFAULT: Final = CodeLimits()
_SECONDS: Final = "a positive number of seconds"
_COUNT: Final = "a positive whole number"


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeSettings(Settings):
    """The limits of code; `CodeLimits` says more of each key."""

    says: ClassVar = Meaning(
        "Whether models may run [code](code-mode.md) that calls granted tools; an object sets the limits.",
        {"seconds": 5},
    )

    seconds: float = key(
        SECONDS,
        _SECONDS,
        _DEFAULT.seconds,
        meaning="Seconds of computing in one run, without waiting.",
        example=5,
    )
    timeout: float = key(
        SECONDS,
        _SECONDS,
        _DEFAULT.timeout,
        meaning="Seconds for one run, without waiting for a person.",
        example=120,
    )
    memory_mb: int = key(
        COUNT, _COUNT, _DEFAULT.memory_mb, meaning="Megabytes of memory for the code.", example=128
    )
    calls: int = key(COUNT, _COUNT, _DEFAULT.calls, meaning="Calls of tools in one run.", example=100)
    suspensions: int = key(
        COUNT,
        _COUNT,
        _DEFAULT.suspensions,
        meaning="How often code stops for a call, a wait or an import.",
        example=400,
    )
    parallel: int = key(
        COUNT,
        _COUNT,
        _DEFAULT.parallel,
        meaning="Calls of tools at the same time; further calls wait.",
        example=4,
    )
    printed: int = key(
        COUNT, _COUNT, _DEFAULT.printed, meaning="Characters that the code may print.", example=10_000
    )
    value: int = key(
        COUNT,
        _COUNT,
        _DEFAULT.value,
        meaning="Bytes of JSON of the run's value; a longer value is a preview.",
        example=50_000,
    )
    workers: int = key(
        COUNT,
        _COUNT,
        _DEFAULT.workers,
        meaning="Processes of the sandbox, which is the number of runs at the same time.",
        example=2,
    )


SETTINGS: Final = CodeSettings
