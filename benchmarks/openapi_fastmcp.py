"""FastMCP over the documents of a plan: the calls of the plan by `FastMCP.from_openapi`; for `openapi.py`.

`python openapi_fastmcp.py PLAN SERVER` prints a line of JSON for each document.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time
from pathlib import Path
from typing import Any

import yaml
from fastmcp import Client, FastMCP
from openapi_documents import arguments_for, arrived

try:
    import httpx2 as http
except ImportError:
    import httpx as http


async def tried(one: dict[str, Any], server: str) -> dict[str, Any]:
    began, path = time.perf_counter(), Path(one["path"])
    text = path.read_text()
    said = json.loads(text) if text.lstrip()[:1] == "{" else yaml.load(text, yaml.CSafeLoader)
    headers = {"authorization": "Bearer secret-secret", **one["headers"]}
    client = http.AsyncClient(
        base_url=f"{server}/{one['name']}", headers=headers, params=one["query"], timeout=60
    )
    mcp = FastMCP.from_openapi(openapi_spec=said, client=client, name=one["name"])
    async with Client(mcp) as session:
        listed = await session.list_tools()
        loaded = time.perf_counter() - began
        names = {}
        for tool in await mcp.list_tools():
            route = tool._route  # noqa: SLF001
            names[route.method.upper(), route.path] = tool.name
        tools = {tool.name: tool for tool in listed}
        right, faults = 0, []
        began = time.perf_counter()
        for call in one["calls"]:
            name = names.get((call["method"], call["path"]))
            if name is None:
                faults.append([call["method"], call["path"], "no tool"])
                continue
            arguments = arguments_for(call, tools[name].inputSchema)
            try:
                result = await session.call_tool(name, arguments, raise_on_error=False)
                last = http.get(f"{server}/last", timeout=30).json()
                told = result.content[0].text if result.is_error else arrived(call, last)
            except Exception as fault:  # noqa: BLE001
                told = repr(fault)
            right += not told
            faults += [[call["method"], call["path"], told[:300]]] if told else []
    size = sum(
        len(json.dumps(tool.model_dump(mode="json", by_alias=True, exclude_none=True))) for tool in listed
    )
    longest = max(len(tool.name) for tool in listed)
    calling = time.perf_counter() - began
    return {
        "tools": len(listed),
        "seconds": loaded,
        "size": size,
        "right": right,
        "faults": faults,
        "longest": longest,
        "calling": calling,
    }


async def main() -> None:
    logging.disable(logging.ERROR)
    for one in json.loads(Path(sys.argv[1]).read_text()):
        try:
            found = await asyncio.wait_for(tried(one, sys.argv[2]), 300)
        except Exception as fault:  # noqa: BLE001
            found = {"fault": f"{type(fault).__name__}: {fault}"[:300]}
        print(json.dumps({"name": one["name"], **found}), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
