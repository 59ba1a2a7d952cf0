from typing import Any

import anyio

from mcp_toolset import Tool, ToolContext
from mcp_toolset.errors import DefinitionError


async def weather(arguments: dict[str, Any]) -> dict[str, Any]:
    return {"city": arguments["city"], "degrees": 21}


async def remind(arguments: dict[str, Any], context: ToolContext) -> str:
    await context.progress(1, 1)
    return f"I will remind you of {arguments['what']}."


loose = Tool.from_schema("weather", {"city": "string", "days": "int"}, weather)
extended = Tool.from_schema(
    "remind",
    {"what": "str", "hour": {"type": "int", "default": 9}, "urgent": {"type": "bool", "optional": True}},
    remind,
)
full = Tool.from_schema("forecast", {"type": "object", "properties": {"city": {"enum": ["Bern"]}}}, weather)


async def main() -> None:
    print(loose.definition.input_schema)
    print(extended.definition.input_schema)
    print(full.definition.input_schema)
    print((await loose.execute({"city": "Bern", "days": 1})).structured)
    print((await extended.execute({"what": "tea"})).text)
    try:
        Tool.from_schema("bad", {"when": "moment"})
    except DefinitionError as fault:
        print(fault)


if __name__ == "__main__":
    anyio.run(main)
