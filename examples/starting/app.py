import anyio

from mcp_toolset import RemoteToolset, Toolset, tool
from mcp_toolset.errors import UnknownToolError
from mcp_toolset.rounds import ToolAvailability


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def main() -> None:
    time = RemoteToolset(["no-such-program"], name="time")
    async with Toolset(add, time).opened(timeout=2) as tools:
        print(*tools.view())
        try:
            tools.view(ToolAvailability.default_plus("get_current_time"))
        except UnknownToolError as fault:
            print(str(fault).partition(";")[0])


if __name__ == "__main__":
    anyio.run(main)
