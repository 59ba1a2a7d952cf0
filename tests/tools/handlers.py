"""Handlers that tests name as `tests.tools.handlers:function`."""

from typing import Any

from mcp_toolset import ToolContext, tool


def shout(arguments: dict[str, Any]) -> dict[str, Any]:
    return {"said": arguments["text"].upper()}


async def whisper(arguments: dict[str, Any], context: ToolContext) -> dict[str, Any]:
    return {"said": arguments["text"].lower(), "by": type(context).__name__}


@tool
def spell(text: str) -> list[str]:
    """Spell a word."""
    return list(text)


class Voice:
    @staticmethod
    def sing(arguments: dict[str, Any]) -> str:
        return f"~{arguments['text']}~"


not_a_function = 5
