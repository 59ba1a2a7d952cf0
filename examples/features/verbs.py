from dataclasses import replace

import anyio

from mcp_toolset import ToolBinding, ToolDefinition, Toolset, tool
from mcp_toolset.arguments import describe, hide, rename


@tool
async def search(q: str, api_key: str, limit: int = 10) -> str:
    """Search the shop."""
    return f"{limit} hits for {q} with {api_key}"


@tool
async def delete(article: str) -> str:
    """Delete an article."""
    return f"deleted {article}"


def for_language(binding: ToolBinding, turn: str | None) -> ToolDefinition:
    text = binding.definition.description
    return replace(binding.definition, description=f"{text} Answer in {turn or 'English'}.")


plain = Toolset(search, delete)
tools = (
    plain.with_arguments(
        {"search": {"api_key": hide(value="secret"), "q": rename("query") | describe("What to look for")}}
    )
    .renamed({"delete": "remove"})
    .off("remove")
    .prepared(for_language)
    .prefixed("shop")
)


async def main() -> None:
    view = tools.view(turn="French")
    print(list(view), plain.names())
    print(view["shop_search"].definition.description)
    print(list(view["shop_search"].definition.input_schema["properties"]))
    print((await view.execute("shop_search", {"query": "tea"})).text)
    print(tools.filtered(include=["*_remove"]).names())


if __name__ == "__main__":
    anyio.run(main)
