"""What a handler may return beside a value: a question to the user, or the end of the loop."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from mcp_toolset.errors import DefinitionError

RESERVED_HALTS: Final = frozenset({"completed", "error", "awaiting_user", "awaiting_tools", "max_rounds"})
"""Reasons that rounds use themselves; a tool cannot use them."""


@dataclass(frozen=True, slots=True)
class AskUser:
    """The tool needs an answer from the user before it can continue; the answer becomes its result.

    Attributes:
        question: The question.
        schema: JSON Schema of the answer, an object of plain properties as elicitation allows them;
            one text field named `answer` unless given.
    """

    question: str
    schema: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Halt:
    """The loop should end after this call; the other calls of the round still finish.

    Attributes:
        reason: Why, as a short word of the application.
        result: The result of the call itself.
    """

    reason: str
    result: Any = None

    def __post_init__(self) -> None:
        """Refuse reasons that have a meaning already."""
        if not self.reason or self.reason in RESERVED_HALTS:
            raise DefinitionError(
                f"Halt({self.reason!r}): this reason is reserved or empty; use a word of your own"
            )
