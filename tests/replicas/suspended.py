"""A run of code waits for an approval while all three replicas are killed and replaced, and then goes on.

`scripts/suspended` runs it. Each request goes to the next replica; nothing is kept but the store. Prints what
became of the run in both eras, the effects of its calls, and the size of its state.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from socket import socket
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid4

import anyio
import httpx
from tests.support.valkey import valkey_process

from mcp_toolset.shared import SharedState

ROOT = Path(__file__).parents[2]
MODERN, LEGACY = "2026-07-28", "2025-11-25"
CODE = """\
bills = [await book(number=n) for n in range({first}, {first} + 5)]
paid = await pay(amount=sum(each['total'] for each in bills))
[len(bills), paid]
"""
ME = {"name": "someone", "version": "1"}
ASKS = {"elicitation": {"form": {}}}
JSON = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
YES = {"action": "accept", "content": {}}


def free_port() -> int:
    with socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class Replicas:
    """Three processes."""

    def __init__(self, target: Path, url: str, effects: Path, log: Path) -> None:
        self.ports = [free_port() for _ in range(3)]
        self._turns = cycle(self.ports)
        env = {**os.environ, "REPLICAS_EFFECTS": str(effects), "MCP_TOOLSET_STATS": "off"}
        words = [sys.executable, "-m", "mcp_toolset", "serve", str(target)]
        self.processes = [
            subprocess.Popen(
                [*words, "--transport", "http", "--port", str(port), "--shared", url],
                stdout=subprocess.DEVNULL,
                stderr=log.open("ab"),
                env=env,
            )
            for port in self.ports
        ]

    @property
    def next(self) -> str:
        """The address of the next replica."""
        return f"http://127.0.0.1:{next(self._turns)}/mcp"

    async def ready(self) -> None:
        async with httpx.AsyncClient() as http:
            for port in self.ports:
                for _ in range(600):
                    if await self._answers(http, port):
                        break
                    await anyio.sleep(0.1)

    async def _answers(self, http: httpx.AsyncClient, port: int) -> bool:
        try:
            return (await http.get(f"http://127.0.0.1:{port}/health")).status_code == 200
        except httpx.HTTPError:
            return False

    def kill(self) -> None:
        for each in self.processes:
            each.send_signal(signal.SIGKILL)
            each.wait()


@contextmanager
def replicas(url: str, folder: Path) -> Iterator[Replicas]:
    three = Replicas(ROOT / "tests/replicas/approving.py", url, folder / "effects", folder / "log")
    try:
        yield three
    finally:
        three.kill()


async def events(response: httpx.Response) -> AsyncIterator[dict[str, Any]]:
    """The messages of an answer, as JSON or as a stream."""
    if "json" in response.headers["content-type"]:
        yield json.loads(await response.aread())
        return
    async for line in response.aiter_lines():
        if line.startswith("data:") and len(line) > 6:
            yield json.loads(line[5:])


class Caller:
    """A client that holds its requests in its own hands."""

    def __init__(self, http: httpx.AsyncClient, version: str) -> None:
        self.http, self.version, self.number = http, version, 0
        self.headers = {**JSON, "mcp-protocol-version": version}

    def message(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        self.number += 1
        if self.version == MODERN:
            mine = {"protocolVersion": MODERN, "clientInfo": ME, "clientCapabilities": ASKS}
            meta = {f"io.modelcontextprotocol/{name}": each for name, each in mine.items()}
            params = {**params, "_meta": {**meta, **params.get("_meta", {})}}
        return {"jsonrpc": "2.0", "id": self.number, "method": method, "params": params}

    def named(self, message: dict[str, Any]) -> dict[str, str]:
        if self.version == LEGACY:
            return self.headers
        return {
            **self.headers,
            "mcp-method": message["method"],
            "mcp-name": message["params"].get("name", ""),
        }

    async def ask(self, url: str, method: str, params: dict[str, Any]) -> Any:
        """The result of a request."""
        message = self.message(method, params)
        async with self.http.stream("POST", url, json=message, headers=self.named(message)) as response:
            if session := response.headers.get("mcp-session-id"):
                self.headers["mcp-session-id"] = session
            async for event in events(response):
                if "result" in event or "error" in event:
                    return event.get("result") or event["error"]
        raise AssertionError("no answer")

    async def call(self, url: str, name: str, arguments: dict[str, Any], **more: Any) -> Any:
        return await self.ask(url, "tools/call", {"name": name, "arguments": arguments, **more})

    async def granted(self, url: str) -> list[str]:
        told = await self.call(url, "resolve_tools", {"ids": ["book", "pay"]})
        return [each["grant"] for each in told["structuredContent"]["tools"]]


async def sizes(url: str) -> list[int]:
    shared = SharedState(url)
    async with shared.running():
        run = shared.connection.run
        keys = await run("KEYS", shared.connection.key("kept code run", "*"), to="look")
        return [await run("HSTRLEN", key, "value", to="look") for key in keys]


async def modern(url: str, folder: Path, http: httpx.AsyncClient) -> None:
    caller = Caller(http, MODERN)
    with replicas(url, folder) as before:
        await before.ready()
        call = {"code": CODE.format(first=1), "grants": await caller.granted(before.next)}
        question = await caller.call(before.next, "run_code", call)
        ((key, request),) = question["inputRequests"].items()
        print(f"2026-07-28: asked {request['params']['message']!r}")
        carried = len(question["requestState"])
        print(f"  its state: {await sizes(url)} bytes in the store, {carried} characters at the client")
        print(f"  effects so far: {(folder / 'effects').read_text().splitlines()}")
    killed = time.monotonic()
    with replicas(url, folder) as after:
        await after.ready()
        back = {"requestState": question["requestState"], "inputResponses": {key: YES}}
        told = await caller.call(after.next, "run_code", call, **back)
        took = time.monotonic() - killed
        print(f"  all replicas replaced, and done after {took:.1f} s: {told['structuredContent']['value']}")
        again = await caller.call(after.next, "run_code", call, **back)
        print(f"  the answer once more: {again.get('message', again)}")


async def legacy(url: str, folder: Path, http: httpx.AsyncClient) -> None:
    caller = Caller(http, LEGACY)
    meta = {"mcp-toolset/replay-key": uuid4().hex}
    with replicas(url, folder) as before:
        await before.ready()
        hello = {"protocolVersion": LEGACY, "clientInfo": ME, "capabilities": ASKS}
        await caller.ask(before.next, "initialize", hello)
        call = {"code": CODE.format(first=11), "grants": await caller.granted(before.next)}
        asked, _ = await answered(caller, before.next, call, meta, before.kill)
        print(f"2025-11-25: asked {asked!r}")
    with replicas(url, folder) as after:
        await after.ready()
        asked, told = await answered(caller, after.next, call, meta, None)
        print(f"  all replicas replaced; the same call under its key asked {asked!r}")
        print(f"  done: {told['value']}")
        asked, told = await answered(caller, after.next, call, meta, None)
        print(f"  the call once more asked {asked!r}, and was told {told['value']}")


async def answered(
    caller: Caller, url: str, call: dict[str, Any], meta: dict[str, Any], instead: Any
) -> tuple[str, Any]:
    """What a call has asked, and what it came to with the answer yes; unless something is done instead."""
    asked, message = "", caller.message("tools/call", {"name": "run_code", "arguments": call, "_meta": meta})
    try:
        async with caller.http.stream("POST", url, json=message, headers=caller.headers) as response:
            async for event in events(response):
                if event.get("method") == "elicitation/create":
                    asked = event["params"]["message"]
                    if instead is not None:
                        instead()
                        continue
                    answer = {"jsonrpc": "2.0", "id": event["id"], "result": YES}
                    await caller.http.post(url, json=answer, headers=caller.headers)
                elif "result" in event or "error" in event:
                    return asked, event.get("result", {}).get("structuredContent", event)
    except httpx.HTTPError:
        if instead is None:
            raise
    return asked, None


async def main() -> None:
    with valkey_process() as store, TemporaryDirectory() as made:
        folder = Path(made)
        url = f"{store.url}?namespace=suspended"
        async with httpx.AsyncClient(timeout=60) as http:
            await modern(url, folder, http)
            await legacy(url, folder, http)
        lines = (folder / "effects").read_text().splitlines()
        print(f"{len(lines)} effects, {len(lines) - len(set(lines))} of them repeated: {lines}")
        if len(set(lines)) != len(lines) or len(lines) != 12:
            print((folder / "log").read_text()[-3000:])
            raise SystemExit("calls were repeated or lost")


if __name__ == "__main__":
    anyio.run(main)
