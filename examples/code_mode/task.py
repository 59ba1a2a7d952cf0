"""A whole task as a model does it: search, resolve with stubs, run code. It prints what is said."""

import json
from typing import Any

import anyio
from server import tools

from mcp_toolset import ToolsetServer
from mcp_toolset.testing import Client

CODE = """\
import asyncio
got, fx = await asyncio.gather(orders_list(month='2026-11'), rates_get(base='EUR'))
sums = {}
for order in got['orders']:
    if order['status'] != 'paid':
        key = order['country'] + '/' + order['status']
        sums[key] = sums.get(key, 0) + order['amount'] * fx['rates'][order['currency']]
rows = [{'key': key, 'eur': round(value, 2)} for key, value in sorted(sums.items())]
saved = await report_save(title='Open and late, November', rows=rows)
{'saved': saved, 'top': max(rows, key=lambda row: row['eur'])}
"""


async def main() -> None:
    async with Client(ToolsetServer(tools)) as client:

        async def call(name: str, arguments: dict[str, Any]) -> Any:
            print(f"▶ {name}", json.dumps({key: arguments[key] for key in arguments if key != "code"}))
            print(arguments.get("code", ""), end="")
            result = await client.call_tool(name, arguments)
            found: Any = result.structured_content
            for one in found.get("tools", ()):
                print(f"◀ {one['grant']}\n{one['stub']}")
            if "tools" not in found:
                print("◀", json.dumps(found))
            return found

        found = await call("search_tools", {"query": "orders of a month, exchange rates, save a report"})
        resolved = await call("resolve_tools", {"ids": [hit["id"] for hit in found["hits"]], "stubs": True})
        grants = [one["grant"] for one in resolved["tools"]]
        await call("run_code", {"grants": grants, "code": CODE})


if __name__ == "__main__":
    anyio.run(main)
