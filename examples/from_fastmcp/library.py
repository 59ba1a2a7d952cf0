from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

from pydantic import BaseModel, Field

from mcp_toolset import Prompts, ToolContext, Toolset, serve, tool

BOOKS = {"1": "Dune", "2": "Emma"}
prompts = Prompts()


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


class Books:  # @mcp.resource("book://{id}")
    """Each book is a resource."""

    async def list_resources(self) -> Sequence[Mapping[str, Any]]:
        return []

    async def list_resource_templates(self) -> Sequence[Mapping[str, Any]]:
        return [{"uriTemplate": "book://{id}", "name": "book", "mimeType": "text/plain"}]

    async def read_resource(self, uri: str) -> Sequence[Mapping[str, Any]]:
        return [{"uri": uri, "text": BOOKS[uri.removeprefix("book://")]}]

    def on_change(self, callback: Callable[[], None]) -> Callable[[], None]:
        return lambda: None


if __name__ == "__main__":
    serve(Toolset(find, lend), name="library", prompts=prompts, resources=Books())  # mcp.run()
