"""The user's answer to a tool's question, as the result of the call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from mcp_toolset.calls.rounds.call_result import is_confirmation
from mcp_toolset.errors import DefinitionError, RoundError
from mcp_toolset.tools.core.asking import ANY_ANSWER, ElicitationAnswer
from mcp_toolset.tools.core.outcome import AskUser
from mcp_toolset.tools.core.result import ToolResult
from mcp_toolset.tools.schema.validation import SchemaCheck

GivenAnswer = str | Mapping[str, Any] | bool | None
"""The application's answer for the user: a text, an object, yes or no; `None` means declined."""


def user_answer(ask: AskUser, answer: GivenAnswer) -> ElicitationAnswer:
    """An answer in the form in which the tool gets it.

    Raises:
        RoundError: the answer does not fit the question.
    """
    if answer is None or answer is False:
        return ElicitationAnswer("decline")
    given: object = {} if answer is True and is_confirmation(ask.schema) else answer
    if isinstance(given, str) and ask.schema is None:
        given = {"answer": given}
    if not isinstance(given, Mapping):
        form = "True or False" if is_confirmation(ask.schema) else "an object that fits its schema"
        raise RoundError(f"the question {ask.question!r} is answered with {form}, not {answer!r}")
    content = dict(cast("Mapping[str, Any]", given))
    _check(ask, content)
    return ElicitationAnswer("accept", content)


def answer_result(ask: AskUser, answer: GivenAnswer) -> ToolResult:
    """The result of a call whose question has this answer.

    Raises:
        RoundError: the answer does not fit the question.
    """
    found = user_answer(ask, answer)
    if not found.accepted:
        return ToolResult.of_error(f"The user declined to answer: {ask.question}")
    given = found.content
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
