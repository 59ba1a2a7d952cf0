"""Check a result against the tool's output schema."""

from __future__ import annotations

from mcp_toolset.calls.pipeline.decision import Complete
from mcp_toolset.errors import InvalidOutputError
from mcp_toolset.tools.core.result import ToolResult, checked_result
from mcp_toolset.tools.schema.validation import SchemaCheck
from mcp_toolset.tools.view.view import ToolBinding


def completed(binding: ToolBinding, decision: Complete) -> ToolResult:
    """A hook's answer in the form that the output schema requires; clients refuse any other form."""
    try:
        result = decision.result()
        if isinstance(decision.output, ToolResult):
            checked_result(result, f"a hook of {binding.name}")
        if binding.output is None:
            return result
        if not isinstance(decision.output, ToolResult):
            result = promised(binding.output, ToolResult.of_structured(decision.output), result.text)
    except ValueError as fault:
        raise InvalidOutputError(
            f"a hook answered {binding.name} with a value that has no JSON form: {fault}"
        ) from None
    try:
        check_output(binding, result)
    except InvalidOutputError as fault:
        raise InvalidOutputError(f"a hook has answered a call with an invalid result: {fault}") from None
    return result


def promised(output: SchemaCheck, answer: ToolResult, text: str) -> ToolResult:
    """The answer as it is, or as functions that return no object wrap theirs; not checked otherwise."""
    wrapped = {"result": answer.structured}
    if not output.is_valid(answer.structured) and output.is_valid(wrapped):
        return ToolResult.of_structured(wrapped, text=text)
    return answer


def check_output(binding: ToolBinding, result: ToolResult) -> None:
    """Raise `InvalidOutputError` unless a result fits the tool's output schema."""
    if binding.output is None:
        return
    wire = result.wire
    if wire.get("isError") is True or not result.is_complete:
        return
    if (result.halt is not None or result.unstructured) and "structuredContent" not in wire:
        return
    if "structuredContent" not in wire:
        raise InvalidOutputError(
            f"{_owner(binding)} declares an output schema and returned no structured content"
        )
    if not binding.output.is_valid(wire["structuredContent"]):
        faults = "; ".join(binding.output.problems(wire["structuredContent"]))
        raise InvalidOutputError(
            f"{_owner(binding)} returned a result that does not fit its output schema: {faults}"
        )


def _owner(binding: ToolBinding) -> str:
    return f"{binding.source}: {binding.name}" if binding.source else binding.name
