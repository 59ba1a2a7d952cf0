"""`RunNormally`, `Complete` and `Reject`: what an execution hook may decide about a call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from mcp_toolset.tools.core.result import ToolResult

RejectionSource = Literal["hook", "policy"]


@dataclass(frozen=True, slots=True)
class RunNormally:
    """Run the call with this input: the hook's input or an edited one, which is checked again."""

    input: Any


@dataclass(frozen=True, slots=True)
class Complete:
    """Answer the call with this output; neither the tool nor a later hook runs."""

    output: Any

    def result(self) -> ToolResult:
        """The output as a result."""
        if isinstance(self.output, ToolResult):
            return self.output
        if isinstance(self.output, str):
            return ToolResult.of_text(self.output)
        return ToolResult.of_structured(self.output)


@dataclass(frozen=True, slots=True)
class Reject:
    """Refuse the call; the model is told why, and no later hook runs.

    Raises:
        TypeError: the reason is not a text.
    """

    reason: str
    source: RejectionSource = "hook"

    def __post_init__(self) -> None:
        """Refuse a reason that a model could not read."""
        if not isinstance(self.reason, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"Reject takes a reason for the model, a text, not {self.reason!r}")


Decision = RunNormally | Complete | Reject
