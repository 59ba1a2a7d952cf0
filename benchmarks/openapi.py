"""APIs as tools: public documents loaded, listed, searched and called, beside FastMCP's `from_openapi`.

Calls are planned from the raw documents, by code that shares nothing with the extension, and sent to a server
that checks each request by its document (`openapi_server.py`) and says what has arrived. The documents are
not part of this repository: give a folder with them, as they lie in public repositories, and an interpreter
with fastmcp and openapi-core:

    .venv/bin/python benchmarks/openapi.py FOLDER --peer VENV/bin/python
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import anyio
import click
import httpx2
from openapi_documents import Raw, arguments_for, arrived, calls_of

from mcp_toolset import OpenAPIToolset, ToolsetServer

HERE = Path(__file__).parent
SECRET = "secret-secret"


def credentials_of(said: dict[str, Any], raw: Raw) -> dict[str, Any]:
    """A secret for each scheme, and the same as headers and parameters of a plain HTTP client."""
    named = said.get("securityDefinitions") or said.get("components", {}).get("securitySchemes", {})
    given, headers, query = dict[str, str](), dict[str, str](), dict[str, str]()
    for name, one in named.items():
        one, _ = raw.followed(one, raw.path)
        is_basic = one.get("type") == "basic" or one.get("scheme") == "basic"
        given[name] = "me:secret-secret" if is_basic else SECRET
        if one.get("type") == "apiKey":
            (query if one["in"] == "query" else headers)[one["name"].lower()] = SECRET
    return {"credentials": given, "headers": headers, "query": query}


def came(server: str) -> Any:
    """The server's report of the last request, which it then forgets."""
    return httpx2.get(f"{server}/last", timeout=30).json()


async def tried(one: dict[str, Any], server: str) -> dict[str, Any]:
    """The outcome of a document and of its calls."""
    began = time.perf_counter()
    mount = OpenAPIToolset(
        Path(one["path"]),
        name=one["name"],
        server=f"{server}/{one['name']}",
        credentials=one["credentials"],
        start_timeout=300,
    )
    async with ToolsetServer(mount, keep=False) as tools:
        status = tools.statuses()[one["name"]]
        loaded = time.perf_counter() - began
        if status.state != "ready":
            return {"fault": status.reason}
        listed = mount.bindings()
        at = {
            (meta["method"], meta["path"]): each
            for each in listed
            for meta in [(each.definition.meta or {})["toolset/reaches"]]
        }
        wires = [each.definition.to_wire() for each in listed]
        right, faults, refused, lacking, found = 0, [], 0, 0, 0
        began = time.perf_counter()
        for call in one["calls"]:
            tool = at.get((call["method"], call["path"]))
            if tool is None:
                faults.append([call["method"], call["path"], "no tool"])
                continue
            arguments = arguments_for(call, dict(tool.definition.input_schema))
            result = await tools.call_as_host(tool.name, arguments)
            told = result.text if result.is_error else arrived(call, came(server))
            right += not told
            faults += [[call["method"], call["path"], told[:400]]] if told else []
            for name in tool.definition.input_schema.get("required", [])[:1]:
                lacking += 1
                less = {key: value for key, value in arguments.items() if key != name}
                refused += (await tools.call_as_host(tool.name, less)).is_error
        calling = time.perf_counter() - began
        questions = [
            at[call["method"], call["path"]] for call in one["calls"] if (call["method"], call["path"]) in at
        ]
    async with ToolsetServer(mount.deferred(), keep=False) as behind:
        for tool in questions:
            first = (tool.definition.description or "").split("\n")[0]
            found += tool.name in [hit.name for hit in behind.search(first)][:5]
    return {
        "tools": len(listed),
        "aside": len(status.set_aside),
        "seconds": loaded,
        "size": sum(len(json.dumps(wire)) for wire in wires),
        "longest": max(len(wire["name"]) for wire in wires),
        "sentence": max(len(wire["description"].split("\n")[0]) for wire in wires),
        "right": right,
        "faults": faults,
        "lacking": lacking,
        "refused": refused,
        "found": found,
        "asked": len(questions),
        "calling": calling,
    }


def documents_in(folder: Path) -> Iterator[tuple[str, Path]]:
    """The documents of a folder; a folder in it has one of several files, the largest being its root."""
    for path in sorted(folder.iterdir()):
        if path.is_file() and path.suffix in (".json", ".yaml", ".yml"):
            yield path.stem, path
        elif path.is_dir():
            yield (
                path.name,
                max((one for one in path.iterdir() if one.is_file()), key=lambda one: one.stat().st_size),
            )


@click.command()
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "--peer", required=True, help="An interpreter with fastmcp, openapi-core, starlette and uvicorn."
)
@click.option("--calls", default=200, help="Calls of all documents together.")
@click.option("--only", default="", help="The names of documents, by commas.")
@click.option("--faults", is_flag=True, help="Show each call that went wrong.")
@click.option("--alone", is_flag=True, help="Leave FastMCP out.")
def main(folder: Path, peer: str, calls: int, only: str, faults: bool, alone: bool) -> None:
    """Load, list, search and call the APIs whose documents lie in FOLDER."""
    os.environ["MCP_TOOLSET_CACHE"] = "off"
    every = [one for one in documents_in(folder) if not only or one[0] in only.split(",")]
    plan, left = [], calls
    for number, (name, path) in enumerate(every):
        raw = Raw(path.resolve())
        share = -(-left // (len(every) - number))
        made = [*calls_of(raw, share)]
        left -= len(made)
        plan.append(
            {"name": name, "path": str(path.resolve()), "calls": made, **credentials_of(raw.said, raw)}
        )
        print(f"{name}: {len(made)} calls planned", file=sys.stderr)
    with tempfile.TemporaryDirectory() as scratch, socket.socket() as free:
        file = Path(scratch) / "plan.json"
        file.write_text(json.dumps(plan))
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        process = subprocess.Popen([peer, str(HERE / "openapi_server.py"), str(file), str(port)])
        try:
            server = f"http://127.0.0.1:{port}"
            waited(server, process)
            ours = {one["name"]: anyio.run(tried, one, server) for one in plan}
            theirs = dict[str, Any]()
            if not alone:
                words = [peer, str(HERE / "openapi_fastmcp.py"), str(file), server]
                said = subprocess.run(words, capture_output=True, text=True, check=True, timeout=3000)
                theirs = {one["name"]: one for one in map(json.loads, said.stdout.splitlines())}
        finally:
            process.terminate()
            process.wait(30)
    show(plan, ours, theirs)
    if faults:
        for title, results in (("mcp-toolset", ours), ("FastMCP", theirs)):
            for name, one in results.items():
                for fault in one.get("faults", []):
                    print(title, name, *fault)


def waited(server: str, process: subprocess.Popen[bytes]) -> None:
    """Wait until the server has read the documents."""
    until = time.monotonic() + 600
    while time.monotonic() < until and process.poll() is None:
        try:
            httpx2.get(f"{server}/none", timeout=5)
            return
        except httpx2.TransportError:
            with socket.socket() as waiting:
                waiting.settimeout(0.5)
                waiting.connect_ex(("192.0.2.1", 9))
    raise SystemExit("the server that checks has not started")


HEAD = (
    *("document", "tools", "set aside", "tokens", "seconds", "calls right", "lacking refused", "found in 5"),
    *("FastMCP: tools", "tokens", "seconds", "calls right"),
)


def show(plan: list[dict[str, Any]], ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    """Print the table; the sums are of the documents that each of the two has loaded."""
    sums, their_sums, planned = Counter[str](), Counter[str](), 0
    print(line(HEAD))
    print(line(["---"] * len(HEAD)))
    for one in plan:
        us, them, count = ours[one["name"]], theirs.get(one["name"], {"fault": "not run"}), len(one["calls"])
        sums.update({key: value for key, value in us.items() if isinstance(value, int | float)})
        their_sums.update({key: value for key, value in them.items() if isinstance(value, int | float)})
        planned += count
        print(line([one["name"], *our_cells(us, count), *their_cells(them, count)]))
    print(line(["**sum**", *our_cells(sums, planned), *their_cells(their_sums, planned)]))


def our_cells(found: Mapping[str, Any], calls: int) -> list[str]:
    if "fault" in found:
        return ["–", "–", "–", "–", f"0 of {calls}: {found['fault'][:80]}", "–", "–"]
    lacking, hits = (f"{found[a]} of {found[b]}" for a, b in (("refused", "lacking"), ("found", "asked")))
    return [str(found["tools"]), str(found["aside"]), *their_cells(found, calls)[1:], lacking, hits]


def their_cells(found: Mapping[str, Any], calls: int) -> list[str]:
    if "fault" in found:
        return ["–", "–", "–", f"0 of {calls}: {found['fault'][:60]}"]
    size, right = f"{found['size'] // 4:,}", f"{found['right']} of {calls}"
    return [str(found["tools"]), size, f"{found['seconds']:.1f}", right]


def line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
