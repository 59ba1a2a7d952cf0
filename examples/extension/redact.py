"""An extension that blanks secrets in the results of all tools, and a tool that counts them."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from mcp_toolset import Tool, ToolCall, ToolContext, ToolResult, tool
from mcp_toolset.extending import Extension, Meaning, Place, Settings, key


@dataclass(frozen=True, slots=True, kw_only=True)
class RedactSettings(Settings):
    says: ClassVar = Meaning("Blanks secrets in results: `true`, a pattern, or an object.", True)
    short: ClassVar = "pattern"

    pattern: str = key(
        {"type": "str", "min_length": 1},
        "a regular expression, as a string",
        r"sk-[A-Za-z0-9]+",
        meaning="The regular expression of a secret.",
        example="ghp_[A-Za-z0-9]+",
    )

    def checked(self, place: Place, servers: Collection[str]) -> "RedactSettings":
        try:
            re.compile(self.pattern)
        except re.error as fault:
            raise place.at("pattern").error(f"is no pattern: {fault}", "correct it") from None
        return self


class Redact(Extension):
    key = "redact"
    Settings = RedactSettings

    def __init__(self, pattern: str = RedactSettings().pattern) -> None:
        self.secret = re.compile(pattern)
        self.blanked = 0

    def tools(self) -> Sequence[Tool[..., Any]]:
        @tool(read_only=True)
        def blanked() -> int:
            """Say how many secrets were blanked."""
            return self.blanked

        return [blanked]

    def answered(self, result: ToolResult, call: ToolCall, context: ToolContext) -> ToolResult:
        return result.with_content(self.blank(result.content), structured=self.blank(result.structured))

    def blank(self, value: Any) -> Any:
        if isinstance(value, str):
            text, count = self.secret.subn("***", value)
            self.blanked += count
            return text
        if isinstance(value, Mapping):
            return {name: self.blank(one) for name, one in value.items()}
        if isinstance(value, Sequence):
            return [self.blank(one) for one in value]
        return value
