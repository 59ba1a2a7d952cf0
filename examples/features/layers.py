from typing import Literal

import anyio

from mcp_toolset import HookSet, RunNormally, ToolCall, ToolContext, ToolResult, Toolset, ToolsetServer, tool
from mcp_toolset.middleware import (
    CallNext,
    OutputFormatter,
    PermissionChecker,
    RetryLimit,
    SchemaValidator,
    Timeout,
    tool_middleware,
)


@tool
async def count(to: int) -> str:
    """Count."""
    if to < 0:
        raise ValueError("cannot count down")
    return " ".join(str(number) for number in range(to))


@tool
async def wait() -> str:
    """Wait for ever."""
    await anyio.sleep_forever()
    return "never"


@tool_middleware
async def shout(call: ToolCall, context: ToolContext, next: CallNext) -> ToolResult:
    print("before", call.name, call.arguments)
    result = await next()
    print("after", result.is_error)
    return result


def policy(call: ToolCall) -> Literal["allow", "deny", "ask"]:
    return "deny" if call.arguments.get("to") == 13 else "allow"


hooks = HookSet()


@hooks.execution("count")
async def seen(call: ToolCall, input: dict[str, int]) -> RunNormally:
    print("hook")
    return RunNormally(input)


async def main() -> None:
    server = ToolsetServer(
        Toolset(count, wait),
        hooks=hooks,
        middleware=[PermissionChecker(policy), OutputFormatter(200), SchemaValidator(), RetryLimit(2)],
        tool_middleware={"count": [shout], "wait": [Timeout(0.02)]},
    )
    async with server:
        for name, arguments in (("count", {"to": 3}), ("count", {"to": 13}), ("wait", {})):
            print((await server.call_tool(name, arguments)).text)
        for to in ("many", -1, -1, 3):
            print((await server.call_tool("count", {"to": to})).text)


if __name__ == "__main__":
    anyio.run(main)
