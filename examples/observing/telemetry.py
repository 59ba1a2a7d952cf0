from mcp_toolset import Toolset, ToolsetServer, tool
from mcp_toolset.telemetry import Telemetry


@tool
async def pay(amount: int) -> str:
    """Pay an amount."""
    return f"paid {amount}"


server = ToolsetServer(Toolset(pay), telemetry=Telemetry(prometheus=True, max_spans_per_second=20))
