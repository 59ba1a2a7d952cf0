"""A tool that returns a text, an image and a file."""

import asyncio

from mcp_toolset import ToolResult, Toolset, file_block, image_block, tool


@tool
def chart(year: int) -> ToolResult:
    """Draw a chart of a year."""
    image = image_block(b"\x89PNG", "image/png")
    table = file_block(b"month,sales", f"shop://sales/{year}", "text/csv")
    parts = [f"Sales of {year}", image, table]
    return ToolResult.of_content(parts, structured={"year": year}, meta={"source": "crm"})


async def main() -> None:
    result = await Toolset(chart).execute("chart", {"year": 2026})
    print([block["type"] for block in result.content], result.structured)


if __name__ == "__main__":
    asyncio.run(main())
