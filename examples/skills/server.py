"""Two tools, and a skill that says how to use them together."""

from pathlib import Path

from mcp_toolset import Toolset, serve, tool

HERE = Path(__file__).parent


@tool(read_only=True)
def find_order(number: int) -> dict[str, int]:
    """Find an order by its number."""
    return {"number": number, "cents": 4_200}


@tool
def refund(number: int, cents: int) -> str:
    """Refund an order, wholly or in part."""
    return f"refunded {cents / 100:.2f} for order {number}"


if __name__ == "__main__":
    serve(Toolset(find_order, refund), name="shop", skills=HERE / "skills")
