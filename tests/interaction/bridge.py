"""The bridge under test: local tools and a mounted upstream, listed and deferred, behind one server."""

from __future__ import annotations

from pathlib import Path
from typing import Self

import anyio
from tests.support.warm import python

from mcp_toolset import (
    AskUser,
    Halt,
    HookSet,
    Reject,
    RemoteToolset,
    RunNormally,
    ToolCall,
    ToolContext,
    Toolset,
    ToolsetServer,
    serve,
    tool,
)
from mcp_toolset.middleware import PermissionChecker

SIZE = {
    "type": "object",
    "properties": {"size": {"type": "string", "enum": ["small", "large"]}},
    "required": ["size"],
}
UPSTREAM = str(Path(__file__).with_name("upstream.py"))


@tool
def add(a: int, b: int = 2) -> int:
    """Add two numbers.

    Args:
        a: The first.
        b: The second.
    """
    return a + b


@tool
async def count(tag: str, context: ToolContext) -> str:
    """Report three steps of progress."""
    for step in range(3):
        await context.progress(step + 1, 3, tag)
    return "done"


@tool
async def linger() -> str:
    """Wait until cancelled."""
    await anyio.sleep_forever()
    return "never"


@tool
def explode() -> str:
    """Raise."""
    raise ValueError("the fuse was lit")


@tool
def book(room: str) -> AskUser:
    """Book a room of a size that the user chooses."""
    return AskUser(f"Which size for {room}?", SIZE)


@tool
async def compose(context: ToolContext) -> str:
    """Ask for a word twice and have a line written about both."""
    words = [str((await context.ask("A word?")).content["answer"]) for _ in range(2)]
    return (await context.sample(" and ".join(words))).text


@tool
def wipe(disk: str) -> str:
    """Wipe a disk, if the user permits it."""
    return f"{disk} is empty"


@tool
def finish(n: int) -> int | Halt:
    """End the loop."""
    return Halt("enough", n)


@tool(manual=True)
def approve(amount: int) -> dict[str, bool]:
    """Approve a payment; the desk answers."""
    raise AssertionError("a manual tool is never run")


def desk(serving: list[ToolsetServer]) -> Toolset:
    """The application that answers manual calls, worked from the test's side of the wire."""

    @tool
    async def desk_pending() -> list[int]:
        """The amounts that wait."""
        return [call.arguments["amount"] for call in serving[0].pending_calls]

    @tool
    async def desk_answer(yes: bool) -> int:
        """Answer the next call."""
        call = await serving[0].next_pending()
        serving[0].submit_result(call.id, {"yes": yes})
        return call.arguments["amount"]

    return Toolset(desk_pending, desk_answer)


class SettledServer(ToolsetServer):
    """Is open only when its upstream has answered, however busy the machine is.

    How long opening waits for others is the business of `tests/faults`.
    """

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        await self.settled()
        return self


def make() -> ToolsetServer:
    hooks = HookSet()

    @hooks.execution("up_guarded")
    async def no(call: ToolCall, input: dict[str, object]) -> Reject:
        return Reject("not today")

    @hooks.execution("add")
    async def cap(call: ToolCall, input: dict[str, object]) -> RunNormally | Reject:
        if input["a"] == 13:
            return Reject("13 is not added here")
        return RunNormally({**input, "b": 100} if input["a"] == 7 else input)

    upstream = RemoteToolset(python(UPSTREAM), name="upstream")
    serving: list[ToolsetServer] = []
    local = Toolset(add, count, linger, explode, book, compose, wipe, finish, approve, desk(serving))
    tools = Toolset(local, upstream.prefixed("up"), upstream.prefixed("deep").deferred())
    serving.append(
        SettledServer(
            tools,
            name="bridge-under-test",
            hooks=hooks,
            tool_middleware={"wipe": [PermissionChecker(lambda call: "ask")]},
            capabilities=["ask", "sample"],
            list_timeout=60,
        )
    )
    return serving[0]


if __name__ == "__main__":
    serve(make())
