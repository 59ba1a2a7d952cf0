"""A user's answer to a tool's question, as the result of the call (A14)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mcp_toolset.errors import DefinitionError, RoundError
from mcp_toolset.tools.asking import ANY_ANSWER
from mcp_toolset.tools.outcome import AskUser
from mcp_toolset.tools.result import ToolResult
from mcp_toolset.tools.validation import SchemaCheck


def answer_result(ask: AskUser, answer: str | Mapping[str, Any] | None) -> ToolResult:
    """The result that an answer comes to; `None` says that the user declined.

    Raises:
        RoundError: the answer does not fit the question.
    """
    if answer is None:
        return ToolResult.of_error(f"The user declined to answer: {ask.question}")
    given = {"answer": answer} if isinstance(answer, str) and ask.schema is None else answer
    if isinstance(given, str):
        raise RoundError(f"the question {ask.question!r} has a schema; answer it with an object")
    _check(ask, given)
    if ask.schema is None:
        return ToolResult.of_text(given["answer"])
    return ToolResult.of_structured(dict(given))


def _check(ask: AskUser, answer: Mapping[str, Any]) -> None:
    try:
        check = SchemaCheck(ask.schema or ANY_ANSWER, tool=ask.question, part="answer")
    except DefinitionError as fault:
        raise RoundError(f"the question cannot be answered: {fault}") from None
    if problems := check.problems(dict(answer)):
        raise RoundError(f"the answer to {ask.question!r} does not fit: {'; '.join(problems)}")
