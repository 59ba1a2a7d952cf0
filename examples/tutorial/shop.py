from mcp_toolset import Toolset, serve, tool

ORDERS = {"A1": "paid", "A2": "shipped", "B7": "paid"}


@tool(read_only=True)
def find_orders(state: str) -> list[str]:
    """List the orders in one state.

    Args:
        state: paid, shipped or cancelled.
    """
    return [order for order, now in ORDERS.items() if now == state]


@tool(destructive=True)
def cancel_order(order: str) -> str:
    """Cancel an order that has not been shipped."""
    if ORDERS.get(order) != "paid":
        raise ValueError(f"order {order} cannot be cancelled: it is {ORDERS.get(order, 'unknown')}")
    ORDERS[order] = "cancelled"
    return f"{order} is cancelled"


shop = Toolset(find_orders, cancel_order)

if __name__ == "__main__":
    serve(shop)
