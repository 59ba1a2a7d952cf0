from typing import Annotated

from pydantic import BaseModel, Field

from mcp_toolset import Prompts, Resources, ToolContext, Toolset, serve, tool

BOOKS = {"1": "Dune", "2": "Emma"}
prompts = Prompts()
resources = Resources()


class Book(BaseModel):
    id: str
    title: str


@tool(read_only=True)  # @mcp.tool(annotations={"readOnlyHint": True})
def find(word: Annotated[str, Field(description="A word of the title.")]) -> list[Book]:
    """Find books."""
    return [Book(id=id, title=title) for id, title in BOOKS.items() if word.lower() in title.lower()]


@tool  # @mcp.tool
async def lend(id: str, context: ToolContext) -> str:  # ctx: Context
    """Lend a book."""
    await context.log("info", f"lending {id}")  # ctx.info(…)
    await context.progress(1, 2)  # ctx.report_progress(1, 2)
    if id not in BOOKS:
        raise ValueError(f"no book {id}")
    return f"lent {BOOKS[id]}"


@prompts.add  # @mcp.prompt
def review(title: str) -> str:
    """Review a book."""
    return f"Write a review of {title}."


@resources.add("book://{id}")  # @mcp.resource("book://{id}")
def book(id: str) -> str:
    """Read a book."""
    return BOOKS[id]


if __name__ == "__main__":
    serve(Toolset(find, lend), name="library", prompts=prompts, resources=resources)  # mcp.run()
