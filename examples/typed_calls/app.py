import anyio
from pydantic import BaseModel

from mcp_toolset import ToolCall, ToolInput, Toolset, tool, tool_input
from mcp_toolset.rounds import DecodedCall, FunctionCall, ToolRound


class Snippets(BaseModel):
    snippets: list[str]


@tool_input(name="web_search", tags=["web"])
class WebSearch(BaseModel, ToolInput[Snippets]):
    """Search the web."""

    query: str


def double(number: int) -> int:
    """Double a number."""
    return 2 * number


class App(Toolset[DecodedCall[WebSearch, Snippets] | FunctionCall[..., int | str]]):
    search = WebSearch
    double = double

    def __init__(self, greeting: str) -> None:
        super().__init__()
        self.greeting = greeting

    @tool
    async def greet(self, name: str) -> str:
        """Greet somebody."""
        return f"{self.greeting} {name}"


async def main() -> None:
    app = App("hello")
    view = app.view()
    calls = [
        ToolCall("web_search", {"query": "tea"}, id="1"),
        ToolCall("double", {"number": 21}, id="2"),
        ToolCall("greet", {"name": "you"}, id="3"),
    ]
    plan = ToolRound.from_calls(calls, view).plan
    done = []
    for pending in plan.pending:
        match app.decode(pending, view):
            case DecodedCall(WebSearch(query=query)) as call:
                done.append(call.complete(Snippets(snippets=[f"about {query}"])))
            case FunctionCall() as call:
                done.append(call.complete(await call.call()))
    for message in plan.commit(done).to_openai()[1:]:
        print(message["content"])
    print(app.view()[WebSearch].tags)


if __name__ == "__main__":
    anyio.run(main)
