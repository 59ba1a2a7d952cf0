"""A server whose tools a model can call from code: `mcp-toolset serve examples/code_mode/server.py`."""

from typing import Any

from typing_extensions import TypedDict

from mcp_toolset import Toolset, serve, tool


class Order(TypedDict):
    id: str
    country: str
    currency: str
    amount: float
    status: str


class Orders(TypedDict):
    orders: list[Order]


class Rates(TypedDict):
    rates: dict[str, float]


@tool(read_only=True)
def orders_list(month: str) -> Orders:
    """List the orders of a month."""
    places = [("DE", "EUR"), ("CH", "CHF"), ("FR", "EUR"), ("JP", "JPY")]
    orders: list[Order] = []
    for number in range(200):
        country, currency = places[number % 4]
        amount, status = round(10 + number * 3.7, 2), ("paid", "open", "late")[number % 3]
        orders.append(
            Order(id=f"{month}-{number}", country=country, currency=currency, amount=amount, status=status)
        )
    return Orders(orders=orders)


@tool(read_only=True)
def rates_get(base: str) -> Rates:
    """Get the exchange rates to a base currency."""
    return Rates(rates={"EUR": 1.0, "CHF": 1.07, "JPY": 0.0061})


@tool
def report_save(title: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Save a report; rows are objects."""
    return {"saved": title, "rows": len(rows)}


tools = Toolset(orders_list, rates_get, report_save).deferred(code=True)

if __name__ == "__main__":
    serve(tools)
