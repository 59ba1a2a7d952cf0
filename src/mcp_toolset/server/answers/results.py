"""What a call comes to in forms that a client can use: halts, answers, outputs of the application."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from mcp_toolset.calls.pipeline.output_check import promised
from mcp_toolset.errors import InvalidOutputError
from mcp_toolset.tools.core.asking import AskUser, ElicitationAnswer, Halt
from mcp_toolset.tools.core.result import ToolResult
from mcp_toolset.tools.declare.returned import UNTYPED
from mcp_toolset.tools.view.view import ToolBinding

HALT_META_KEY: Final = "mcp-toolset/halt"
"""In the `_meta` of a result: why the tool wants the loop to end after it."""


def halted(result: ToolResult) -> ToolResult:
    """The result with its halt said twice: in `_meta` for a program, in words for a model."""
    if result.halt is None:
        return result
    note = {"type": "text", "text": f"[The tool asks to stop here: {result.halt.reason}]"}
    meta: dict[str, Any] = {**(result.wire.get("_meta") or {}), HALT_META_KEY: result.halt.reason}
    return replace(result, wire={**result.wire, "content": [*result.content, note], "_meta": meta})


def fitted(binding: ToolBinding, output: Any) -> ToolResult:
    """A value as the result of a tool, in the form that the tool promised.

    Raises:
        InvalidOutputError: it has no JSON form, or does not fit the tool's output schema.
    """
    if isinstance(output, Halt):
        return replace(fitted(binding, output.result), halt=output)
    if isinstance(output, ToolResult | AskUser):
        return _checked(binding, UNTYPED.to_result(output, binding.name))
    if binding.output is None:
        structured = not isinstance(output, str | None)
        return _structured(binding, output) if structured else UNTYPED.to_result(output, binding.name)
    result = _structured(binding, output)
    return _checked(binding, promised(binding.output, result, result.text))


def _structured(binding: ToolBinding, output: Any) -> ToolResult:
    try:
        text = output if isinstance(output, str) else None
        return ToolResult.of_structured(output, text=text)
    except ValueError as fault:
        raise InvalidOutputError(f"the output for {binding.name} has no JSON form: {fault}") from None


def _checked(binding: ToolBinding, result: ToolResult) -> ToolResult:
    if binding.output is None or result.is_error or not result.is_complete:
        return result
    if not binding.output.is_valid(result.structured):
        faults = "; ".join(binding.output.problems(result.structured))
        raise InvalidOutputError(f"the output for {binding.name} does not fit its output schema: {faults}")
    return result


def answered(binding: ToolBinding, asked: AskUser, answer: ElicitationAnswer) -> ToolResult:
    """The result of a call that asked the user: the answer, or that there is none.

    The answer to a question without a schema is its text.

    Raises:
        InvalidOutputError: the answer does not fit the tool's output schema.
    """
    if answer.action == "decline":
        return ToolResult.of_error(f"{binding.name}: the user declined to answer: {asked.question}")
    if answer.action == "cancel":
        return ToolResult.of_error(f"{binding.name}: the user left the question unanswered: {asked.question}")
    content = dict(answer.content)
    if asked.schema is None:
        return fitted(binding, content["answer"])
    sole = next(iter(content.values())) if len(content) == 1 else content
    if binding.output is not None and not binding.output.is_valid(content):
        return fitted(binding, sole)
    return ToolResult.of_structured(content)
