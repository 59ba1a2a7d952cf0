"""`SchemaValidator`: middleware that checks arguments and results against the schemas, formats included."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import jsonschema_rs

from mcp_toolset.calls.middleware.caller import Recent
from mcp_toolset.calls.pipeline.middleware import CallNext
from mcp_toolset.errors import InvalidArgumentsError, InvalidOutputError
from mcp_toolset.tools.core.call import ToolCall, ToolContext
from mcp_toolset.tools.core.definition import ToolDefinition
from mcp_toolset.tools.core.frozen import thawed
from mcp_toolset.tools.core.result import ToolResult
from mcp_toolset.tools.schema.validation import SchemaCheck

MAX_COMPILED: Final = 1000
"""The number of definitions whose compiled schemas are kept."""

_BACKTRACK_LIMIT: Final = 100_000


class FormatCheck(SchemaCheck):
    """A compiled schema that also checks formats; unknown formats are ignored."""

    __slots__ = ()

    def __init__(self, schema: Mapping[str, Any], *, tool: str, part: str) -> None:
        """Compile `schema`, as `SchemaCheck` does and with the same errors."""
        super().__init__(schema, tool=tool, part=part)
        self._validator = _asserting(thawed(dict(schema)))


class SchemaValidator:
    """Checks arguments and structured results against the tool's schemas, including their formats.

    Every call is checked without it: dispatch checks the arguments against the input schema and the
    result against the output schema, where `format` is an annotation, as in JSON Schema
    2020-12. With this middleware `"format": "email"`, `"date-time"` (RFC 3339, so with a
    time zone), `"uri"`, `"uuid"` and the other formats of the dialect are checked too; and a
    structured result is checked again after the hooks and middleware inside.

    `check_arguments` and `check_result` do the same for a dispatch of the application's own, such
    as a loop that runs tools itself. The schemas are those of the present definition, compiled when first
    seen: a replaced tool is checked against its new schemas.
    """

    def __init__(self, *, output: bool = True) -> None:
        """Check arguments, and structured results unless `output` is false."""
        self._output = output
        self._compiled: Recent[str, tuple[FormatCheck, FormatCheck | None]] = Recent(MAX_COMPILED)

    async def __call__(self, call: ToolCall, context: ToolContext, next: CallNext) -> ToolResult:
        """Run the call if its arguments fit, and pass its result on if that fits.

        Raises:
            InvalidArgumentsError: the arguments do not fit; nothing ran.
            InvalidOutputError: the tool ran, and its structured result does not fit.
        """
        self.check_arguments(call, next.definition)
        result = await next()
        if self._output:
            self.check_result(call, next.definition, result)
        return result

    def check_arguments(self, call: ToolCall, definition: ToolDefinition) -> None:
        """Check the arguments of a call against the input schema.

        Raises:
            InvalidArgumentsError: they do not fit; the message says where.
        """
        check, _ = self._checks(definition)
        if not check.is_valid(call.arguments):
            raise InvalidArgumentsError(check.misfit(call.name, call.arguments))

    def check_result(self, call: ToolCall, definition: ToolDefinition, result: ToolResult) -> None:
        """Check the structured content of a result against the output schema, if the tool has one.

        Errors, and calls that ask for input, are not checked.

        Raises:
            InvalidOutputError: it is missing or does not fit; the message says where.
        """
        _, check = self._checks(definition)
        if check is None or result.is_error or not result.is_complete:
            return
        if "structuredContent" not in result.wire:
            raise InvalidOutputError(
                f"{call.name} declares an output schema and returned no structured content"
            )
        if not check.is_valid(result.structured):
            faults = "; ".join(check.problems(result.structured))
            raise InvalidOutputError(
                f"{call.name} returned a result that does not fit its output schema: {faults}"
            )

    def _checks(self, definition: ToolDefinition) -> tuple[FormatCheck, FormatCheck | None]:
        found = self._compiled.get(definition.digest)
        if found is None:
            found = _compiled(definition)
            self._compiled.put(definition.digest, found)
        return found


def _compiled(definition: ToolDefinition) -> tuple[FormatCheck, FormatCheck | None]:
    name, output = definition.name, definition.output_schema
    return (
        FormatCheck(definition.input_schema, tool=name, part="inputSchema"),
        None if output is None else FormatCheck(output, tool=name, part="outputSchema"),
    )


def _asserting(schema: dict[str, Any]) -> jsonschema_rs.Validator:
    """With linear-time patterns if possible; `SchemaCheck` has found that one of the two engines works."""
    try:
        return _validator(schema, jsonschema_rs.RegexOptions())
    except jsonschema_rs.ValidationError:
        return _validator(schema, jsonschema_rs.FancyRegexOptions(backtrack_limit=_BACKTRACK_LIMIT))


def _validator(
    schema: dict[str, Any], patterns: jsonschema_rs.RegexOptions | jsonschema_rs.FancyRegexOptions
) -> jsonschema_rs.Validator:
    return jsonschema_rs.validator_for(schema, validate_formats=True, pattern_options=patterns, offline=True)
