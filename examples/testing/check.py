"""Check a tool that asks the user, and its rules, without a server, a client or a user."""

from collections.abc import Mapping
from typing import Any

import anyio

from mcp_toolset import HookSet, Reject, Rules, RunNormally, ToolCall, ToolContext, Toolset, tool
from mcp_toolset.rounds import RoundContext


@tool
async def delete(name: str, context: ToolContext) -> str:
    """Delete a file."""
    answer = await context.ask(f"Delete {name}?")
    return f"deleted {name}" if answer.accepted else f"kept {name}"


hooks = HookSet()


@hooks.execution(delete)
async def no_keys(call: ToolCall) -> RunNormally | Reject:
    return Reject("keys stay") if call.arguments["name"].endswith(".key") else RunNormally(call.arguments)


async def decline(method: str, params: Mapping[str, Any] | None) -> dict[str, Any]:
    return {"action": "decline"}


async def main() -> None:
    view = Toolset(delete).view()
    context = RoundContext(request=decline)
    for name in ("a.txt", "server.key"):
        result = await view.execute(delete, {"name": name}, context, rules=Rules(hooks))
        print(result.is_error, result.text)


if __name__ == "__main__":
    anyio.run(main)
