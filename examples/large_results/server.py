"""A server whose long answers stay at the server: a model reads the part that it needs."""

from typing import Any

from mcp_toolset import Toolset, serve, tool


@tool(read_only=True)
def orders(year: int) -> list[dict[str, Any]]:
    """List all orders of a year."""
    return [{"id": number, "customer": f"C{number % 7}", "total": number * 3} for number in range(2000)]


@tool(read_only=True)
def revenue(orders: list[dict[str, Any]]) -> int:
    """Add up the totals of orders."""
    return sum(order["total"] for order in orders)


tools = Toolset(orders, revenue)

if __name__ == "__main__":
    serve(tools, large_results=20_000)
