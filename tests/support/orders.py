"""A task of three calls over 200 rows, as tools and as code: what code mode is measured and shown with."""

from __future__ import annotations

from typing import Any

from typing_extensions import TypedDict

from mcp_toolset import Toolset, tool

COUNTRIES, CURRENCIES, STATES = (
    ("DE", "CH", "FR", "JP"),
    ("EUR", "CHF", "EUR", "JPY"),
    ("paid", "open", "late"),
)


class Order(TypedDict):
    id: str
    customer: str
    country: str
    currency: str
    amount: float
    status: str
    created: str


class Orders(TypedDict):
    orders: list[Order]
    total: int


class Rates(TypedDict):
    base: str
    rates: dict[str, float]


ROWS: list[Order] = [
    {
        "id": f"ord-{i:04d}",
        "customer": f"cust-{i % 37:03d}",
        "country": COUNTRIES[i % 4],
        "currency": CURRENCIES[i % 4],
        "amount": round(10 + i * 3.7, 2),
        "status": STATES[i % 3],
        "created": f"2026-11-{1 + i % 20:02d}T08:00:00Z",
    }
    for i in range(200)
]


@tool(read_only=True)
def orders_list(month: str, limit: int = 200) -> Orders:
    """List the orders of a month."""
    return {"orders": ROWS[:limit], "total": len(ROWS)}


@tool(read_only=True)
def rates_get(base: str) -> Rates:
    """Exchange rates to a base currency."""
    return {"base": base, "rates": {"EUR": 1.0, "CHF": 1.07, "JPY": 0.0061}}


@tool
def report_save(title: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Save a report; rows are objects."""
    return {"saved": title, "rows": len(rows)}


OFFICE = Toolset(orders_list, rates_get, report_save)

CODE = """\
import asyncio
got, fx = await asyncio.gather(orders_list(month='2026-11'), rates_get(base='EUR'))
sums = {}
for o in got['orders']:
    if o['status'] != 'paid':
        k = o['country'] + '/' + o['status']
        sums[k] = sums.get(k, 0) + o['amount'] * fx['rates'][o['currency']]
rows = [{'key': k, 'eur': round(v, 2)} for k, v in sorted(sums.items())]
saved = await report_save(title='Open and late, November', rows=rows)
{'saved': saved, 'top': max(rows, key=lambda r: r['eur'])}
"""
