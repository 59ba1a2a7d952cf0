"""`CodeLimits`: the limits of code that models write."""

from __future__ import annotations

from dataclasses import fields

from mcp_toolset._records import dataclass
from mcp_toolset.errors import DefinitionError


@dataclass(frozen=True, slots=True)
class CodeLimits:
    """The limits of each run; see docs/code-mode.md.

    Attributes:
        seconds: Seconds that the code may compute; waiting for tools does not count.
        timeout: Seconds that a run may take in all; waiting for a user's answer does not count.
        memory_mb: Megabytes that the code may hold.
        calls: Calls of tools.
        suspensions: Times that the code may stop for something of the server: a call, a wait, an import.
        parallel: Calls that run at once; more wait.
        printed: Characters that the code may print.
        value: Bytes of JSON of the value that come back whole; a larger value comes as a preview.
        workers: Processes of the sandbox, and so runs at once; more wait.
    """

    seconds: float = 10.0
    timeout: float = 60.0
    memory_mb: int = 64
    calls: int = 50
    suspensions: int = 200
    parallel: int = 8
    printed: int = 20_000
    value: int = 20_000
    workers: int = 8

    def __post_init__(self) -> None:
        """Check the numbers.

        Raises:
            DefinitionError: one is not positive.
        """
        for field in fields(CodeLimits):
            number: object = getattr(self, field.name)
            if isinstance(number, bool) or not isinstance(number, int | float) or not number > 0:
                raise DefinitionError(f"{field.name} of CodeMode must be a positive number, not {number!r}")
