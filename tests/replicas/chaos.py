"""Three replicas, round robin without stickiness; one is killed every few seconds under load.

HAProxy, which has to be installed, sends each request to the next replica; the store is `valkey-server` of a
package, or `--redis PROGRAM`. Clients are those of the SDK, in both eras, over streamable HTTP and SSE.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import anyio
import httpx
from mcp import Client, MCPError
from mcp.client.sse import sse_client
from tests.replicas.three import killing, three

from mcp_toolset.shared.state import ALIVE

KINDS = ("modern", "legacy", "sse")
SOON = 2.5
"""Seconds after a kill in which a failed call counts as one that was in flight at the dead replica."""


@dataclass
class Seen:
    """What the clients saw."""

    kills: list[float] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    done: set[str] = field(default_factory=set)
    lost: set[str] = field(default_factory=set)
    reasons: Counter[str] = field(default_factory=Counter)
    switches: int = 0
    heard: Counter[str] = field(default_factory=Counter)

    def failed(self, kind: str, fault: BaseException) -> None:
        now = time.monotonic()
        recent = any(0 <= now - kill < SOON for kill in self.kills)
        why = "in flight at the dead replica" if recent else "LOST OTHERWISE"
        if "shared store" in str(fault):
            why = "refused, as the store gave no answer within two seconds"
        self.counts[f"{kind}: {why}"] += 1
        self.reasons[f"{kind}: {type(fault).__name__} {str(fault)[:90]}"] += 1


def leaf(fault: BaseException) -> BaseException:
    while isinstance(fault, BaseExceptionGroup):
        fault = fault.exceptions[0]
    return fault


@asynccontextmanager
async def connected(kind: str, base: str, heard: Any) -> AsyncIterator[Client]:
    async def note(message: Any) -> None:
        if getattr(message, "method", "") == "notifications/tools/list_changed":
            heard()

    if kind == "sse":
        transport: Any = sse_client(f"{base}/sse")
        async with Client(transport, mode="legacy", message_handler=note, read_timeout_seconds=30) as client:
            yield client
        return
    mode: Any = "legacy" if kind == "legacy" else "2026-07-28"
    async with Client(f"{base}/mcp", mode=mode, message_handler=note, read_timeout_seconds=30) as client:
        yield client


class Load:
    """One client, for as long as the run takes; it opens anew if its connection ends."""

    def __init__(self, kind: str, number: int, base: str, seen: Seen) -> None:
        self.kind, self.name, self._base, self._seen = kind, f"{kind} {number}", base, seen
        self._random = random.Random(number)

    async def run(self) -> None:
        while True:
            try:
                async with connected(self.kind, self._base, self._hear) as client:
                    async with anyio.create_task_group() as group:
                        if self.kind == "modern":
                            group.start_soon(self._listen, client)
                        await self._work(client)
            except anyio.get_cancelled_exc_class():
                raise
            # Whatever ends a connection, the client opens another one, as a user's would; it is counted.
            except Exception as fault:
                self._seen.counts[f"{self.kind}: connections opened again"] += 1
                self._seen.reasons[f"{self.kind} connection: {leaf(fault)!r}"[:120]] += 1
                await anyio.sleep(0.2)

    def _hear(self) -> None:
        self._seen.heard[self.name] += 1

    async def _listen(self, client: Client) -> None:
        while True:
            try:
                async with client.listen(tools_list_changed=True) as changes:
                    async for _ in changes:
                        self._hear()
            except Exception:
                self._seen.counts["modern: subscriptions opened again"] += 1
            await anyio.sleep(0.2)

    async def _work(self, client: Client) -> None:
        grant = ""
        while True:
            id = uuid4().hex
            try:
                result = await client.call_tool("append", {"id": id, "seconds": self._random.uniform(0, 0.1)})
                if result.is_error:
                    raise MCPError(0, str(result.content))
                self._seen.done.add(id)
                self._seen.counts[f"{self.kind}: calls answered"] += 1
                grant = await self._granted(client, grant)
            except anyio.get_cancelled_exc_class():
                self._seen.lost.add(id)
                raise
            except Exception as fault:
                self._seen.lost.add(id)
                self._seen.failed(self.kind, leaf(fault))
                if self.kind == "sse" or "session" in str(fault).lower():
                    if self.kind == "legacy":
                        self._seen.counts["legacy: SESSIONS LOST"] += 1
                    raise
            await anyio.sleep(self._random.uniform(0, 0.05))

    async def _granted(self, client: Client, grant: str) -> str:
        if not grant:
            resolved = await client.call_tool("resolve_tools", {"ids": ["read_invoice"]})
            assert resolved.structured_content is not None
            return resolved.structured_content["tools"][0]["grant"]
        called = await client.call_tool("call_read_only_tool", {"grant": grant, "arguments": {"number": 1}})
        if called.is_error and "shared store" in str(called.content):
            raise MCPError(0, str(called.content))
        if called.is_error:
            self._seen.counts[f"{self.kind}: GRANTS LOST"] += 1
            return ""
        self._seen.counts[f"{self.kind}: calls by grant answered"] += 1
        return grant


class OneSession:
    """A client without a library: one legacy session for the whole run, even if single requests fail."""

    def __init__(self, base: str, seen: Seen) -> None:
        self._url, self._seen = f"{base}/mcp", seen
        self._head = {"accept": "application/json, text/event-stream"}

    async def run(self) -> None:
        async with httpx.AsyncClient(timeout=30) as web:
            hello = {
                "protocolVersion": "2025-11-25",
                "clientInfo": {"name": "r", "version": "1"},
                "capabilities": {},
            }
            began = await self._post(web, "initialize", hello)
            self._head["mcp-session-id"] = began.headers["mcp-session-id"]
            while True:
                id = uuid4().hex
                try:
                    told = await self._post(
                        web, "tools/call", {"name": "append", "arguments": {"id": id, "seconds": 0.05}}
                    )
                    if told.status_code == 404:
                        self._seen.counts["one session: SESSIONS LOST"] += 1
                        return
                    if told.status_code == 503:
                        raise httpx.HTTPError(told.text)
                    told.raise_for_status()
                    self._seen.done.add(id)
                    self._seen.counts["one session: calls answered"] += 1
                except anyio.get_cancelled_exc_class():
                    self._seen.lost.add(id)
                    raise
                except httpx.HTTPError as fault:
                    self._seen.lost.add(id)
                    self._seen.failed("one session", fault)

    async def _post(self, web: httpx.AsyncClient, method: str, params: Any) -> httpx.Response:
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        return await web.post(self._url, json=body, headers=self._head)


async def switching(base: str, seen: Seen, names: list[str]) -> None:
    """Change the list again and again, and see that every client hears of it."""
    on = True
    while True:
        await anyio.sleep(5)
        on, before = not on, dict(seen.heard)
        try:
            async with Client(f"{base}/mcp", mode="2026-07-28", read_timeout_seconds=10) as client:
                await client.call_tool("switch", {"on": on})
        except Exception:
            seen.counts["switches that failed"] += 1
            continue
        seen.switches += 1
        with anyio.move_on_after(4 + ALIVE):
            deaf = names
            while deaf:
                await anyio.sleep(0.02)
                deaf = [name for name in names if seen.heard[name] == before.get(name, 0)]
            seen.counts["changes heard by every client"] += 1
            continue
        seen.counts["changes NOT heard by every client"] += 1
        seen.reasons[f"not heard: {', '.join(deaf)}"] += 1


async def main(arguments: argparse.Namespace) -> int:
    if shutil.which("haproxy") is None:
        print("haproxy is missing: apt-get install haproxy", file=sys.stderr)
        return 2
    folder = Path(tempfile.mkdtemp(prefix="replicas"))
    effects, seen = folder / "effects", Seen()
    async with three(folder, effects) as (base, replicas):
        loads = [Load(kind, n, base, seen) for kind in KINDS for n in range(arguments.clients)]
        with anyio.move_on_after(arguments.seconds):
            async with anyio.create_task_group() as group:
                for load in loads:
                    group.start_soon(load.run)
                group.start_soon(OneSession(base, seen).run)
                await anyio.sleep(3)
                group.start_soon(killing, replicas, arguments.every, seen.kills)
                group.start_soon(switching, base, seen, [load.name for load in loads])
    return report(seen, effects, folder)


def report(seen: Seen, effects: Path, folder: Path) -> int:
    """Print what was seen, and return the number of things that must not happen."""
    ran = Counter(effects.read_text().split())
    twice, false = sum(1 for times in ran.values() if times > 1), len(seen.done - ran.keys())
    print(f"{len(seen.kills)} kills; {len(seen.done)} calls with an effect answered, {len(seen.lost)} not")
    print(f"executed twice: {twice}")
    print(f"answered and not executed: {false}")
    print(f"not answered: executed {len(seen.lost & ran.keys())}, not executed {len(seen.lost - ran.keys())}")
    print(f"changes of the list: {seen.switches}")
    for name, times in sorted((seen.counts).items()):
        print(f"  {name}: {times}")
    print("what clients were told:")
    for name, times in seen.reasons.most_common(25):
        print(f"  {times} × {name}")
    print(f"logs: {folder}")
    bad = sum(times for name, times in seen.counts.items() if "LOST" in name or "NOT" in name)
    return min(twice + false + bad, 1)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--every", type=float, default=10, help="seconds between two kills")
    parser.add_argument("--clients", type=int, default=4, help="clients of each kind")
    raise SystemExit(anyio.run(main, parser.parse_args()))
