from dataclasses import dataclass
from typing import Annotated, Literal

import anyio
from pydantic import Field

from mcp_toolset import Injected, ToolContext, Toolset, tool


@dataclass
class Shop:
    stock: dict[str, int]


@tool
async def in_stock(
    article: str,
    size: Literal["s", "m", "l"] = "m",
    at_least: Annotated[int, Field(ge=1, description="How many are needed")] = 1,
    *,
    shop: Annotated[Shop, Injected],
    context: ToolContext,
) -> bool:
    """Say whether an article is in stock.

    Args:
        article: What it is called.
    """
    await context.log("info", f"looked up {article} ({size})")
    return shop.stock.get(article, 0) >= at_least


async def main() -> None:
    tools = Toolset(in_stock).injecting({Shop: Shop({"shirt": 3})})
    result = await tools.execute("in_stock", {"article": "shirt", "at_least": 2})
    print(in_stock.definition.description)
    print(in_stock.definition.input_schema["properties"])
    print(result.structured)
    print(await in_stock("hat", shop=Shop({}), context=ToolContext()))


if __name__ == "__main__":
    anyio.run(main)
