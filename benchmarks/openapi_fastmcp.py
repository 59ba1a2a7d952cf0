"""FastMCP over the documents of a plan: the calls of the plan by `FastMCP.from_openapi`; for `openapi.py`.

`python openapi_fastmcp.py PLAN SERVER` prints a line of JSON for each document.
"""

# The checks run in .venv, which is without fastmcp.
# pyright: reportMissingImports=false

from __future__ import annotations

import json
import logging
import sys
import time
from pathlib import Path
from typing import Any

import anyio
import yaml
from fastmcp import Client, FastMCP
from openapi_documents import arguments_for, arrived

try:
    import httpx2 as http
except ImportError:
    import httpx as http


def read(path: Path) -> Any:
    text = path.read_text()
    return json.loads(text) if text.lstrip()[:1] == "{" else yaml.load(text, yaml.CSafeLoader)


def last_of(server: str) -> Any:
    return http.get(f"{server}/last", timeout=30).json()


async def tried(one: dict[str, Any], server: str) -> dict[str, Any]:
    began = time.perf_counter()
    said = read(Path(one["path"]))
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
            route = tool._route
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
                told = result.content[0].text if result.is_error else arrived(call, last_of(server))
            except Exception as fault:
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


async def main(plan: list[dict[str, Any]]) -> None:
    logging.disable(logging.ERROR)
    for one in plan:
        try:
            with anyio.fail_after(300):
                found = await tried(one, sys.argv[2])
        except Exception as fault:
            found = {"fault": f"{type(fault).__name__}: {fault}"[:300]}
        print(json.dumps({"name": one["name"], **found}), flush=True)


if __name__ == "__main__":
    anyio.run(main, json.loads(Path(sys.argv[1]).read_text()))
