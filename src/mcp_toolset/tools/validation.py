"""Compiled JSON Schema checks: arguments before a tool runs, structured results after.

One compilation per schema, by `jsonschema-rs`: linear-time regular expressions where the pattern
allows it and a bounded number of backtracking steps where it does not (F21), never the network
(F18). Formats are annotations, as the 2020-12 dialect has it by default.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import jsonschema_rs

from mcp_toolset.errors import DefinitionError
from mcp_toolset.tools.definition import ToolDefinition

MAX_SCHEMA_DEPTH: Final = 64
"""Levels of nesting that a schema may have; deeper ones are refused unread (F20)."""

MAX_PROBLEMS: Final = 5
"""Problems that one message lists; a model mends them in turn."""

_BACKTRACK_LIMIT: Final = 100_000


class SchemaCheck:
    """A compiled schema: is a value valid, and if not, what is wrong with it."""

    __slots__ = ("_validator", "is_valid")

    is_valid: Callable[[Any], bool]

    def __init__(self, schema: Mapping[str, Any], *, tool: str, part: str) -> None:
        """Compile `schema`.

        Args:
            schema: JSON Schema; 2020-12 unless `$schema` says otherwise.
            tool: The tool's name, for messages.
            part: Which of the tool's schemas this is, `inputSchema` or `outputSchema`.

        Raises:
            DefinitionError: the schema is too deep, refers outside itself, or does not follow its
                dialect; the message has the JSON pointer of the fault.
        """
        where = f"tool {tool!r}: {part}"
        if depth_exceeds(schema, MAX_SCHEMA_DEPTH):
            raise DefinitionError(f"{where} is nested more than {MAX_SCHEMA_DEPTH} levels deep; flatten it")
        self._validator = _compile(dict(schema), where)
        self.is_valid = self._validator.is_valid

    def problems(self, value: object) -> list[str]:
        """What is wrong with `value`, a line each with the place first; empty when it is valid."""
        lines: list[str] = []
        for error in self._validator.iter_errors(value):
            place = "".join(
                f"[{step}]" if isinstance(step, int) else f".{step}" for step in error.instance_path
            )
            lines.append(f"{place.lstrip('.')}: {error.message}" if place else error.message)
            if len(lines) == MAX_PROBLEMS:
                break
        return lines


def _compile(schema: dict[str, Any], where: str) -> jsonschema_rs.Validator:
    try:
        return _validator(schema, jsonschema_rs.RegexOptions())
    except jsonschema_rs.ValidationError as fault:
        if not _is_pattern_fault(fault):
            raise _refused(where, fault) from None
    try:
        return _validator(schema, jsonschema_rs.FancyRegexOptions(backtrack_limit=_BACKTRACK_LIMIT))
    except jsonschema_rs.ValidationError as fault:
        raise _refused(where, fault) from None


def _validator(
    schema: dict[str, Any], patterns: jsonschema_rs.RegexOptions | jsonschema_rs.FancyRegexOptions
) -> jsonschema_rs.Validator:
    return jsonschema_rs.validator_for(schema, validate_formats=False, pattern_options=patterns, offline=True)


def _is_pattern_fault(fault: jsonschema_rs.ValidationError) -> bool:
    return bool(fault.schema_path) and fault.message.endswith('is not a "regex"')


def _refused(where: str, fault: jsonschema_rs.ValidationError) -> DefinitionError:
    pointer = "".join(f"/{step}" for step in fault.instance_path) or "/"
    return DefinitionError(f"{where} is not a usable schema at {pointer}: {fault.message}")


def checks_of(definition: ToolDefinition) -> tuple[SchemaCheck, SchemaCheck | None]:
    """The compiled input and output schemas of a definition.

    Raises:
        DefinitionError: see `SchemaCheck`.
    """
    arguments = SchemaCheck(definition.input_schema, tool=definition.name, part="inputSchema")
    if definition.output_schema is None:
        return arguments, None
    return arguments, SchemaCheck(definition.output_schema, tool=definition.name, part="outputSchema")


def depth_exceeds(value: object, limit: int) -> bool:
    """Whether containers are nested in `value` more than `limit` deep; reads no further than that."""
    level: list[object] = [value]
    for _ in range(limit):
        level = [child for item in level for child in _children(item)]
        if not level:
            return False
    return any(isinstance(item, Mapping | list) for item in level)


def _children(item: object) -> list[Any]:
    if isinstance(item, Mapping):
        return list(item.values())  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    if isinstance(item, list):
        return item  # pyright: ignore[reportUnknownVariableType]
    return []
