"""Calls in a second through one, two and three replicas, and the CPU that each part takes for a call.

    python -m benchmarks.throughput [--seconds 5] [--rounds 3] [--json FILE]

HAProxy, which has to be installed, sends each request to the next replica; the replicas share a Valkey
server. Clients are modern ones with connections that stay open, in one process. All processes share the
machine's cores, so calls in a second are bounded by these; CPU for a call is not.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from socket import socket
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import anyio
from measuring import cpu_of, markdown
from reporting import say, surroundings
from sizing import HERE, MODERN
from tests.replicas.three import PROXY
from tests.support.valkey import valkey_process

CLIENTS = 16
PARAMS = {"name": "add", "arguments": {"a": 1, "b": 2}, "_meta": MODERN}
BODY = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": PARAMS}).encode()


def free_port() -> int:
    with socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@contextmanager
def process(*words: str) -> Generator[int]:
    running = subprocess.Popen(words, stderr=subprocess.DEVNULL)
    try:
        yield running.pid
    finally:
        running.terminate()
        running.wait(30)


async def one_client(port: int, until: float) -> int:
    """Call again and again over one connection; the number of answers."""
    read, write = await asyncio.open_connection("127.0.0.1", port)
    head = (
        f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
        "Accept: application/json, text/event-stream\r\nMcp-Protocol-Version: 2026-07-28\r\n"
        f"Mcp-Method: tools/call\r\nMcp-Name: add\r\nContent-Length: {len(BODY)}\r\n\r\n"
    ).encode()
    count = 0
    while time.monotonic() < until:
        write.write(head + BODY)
        answer = await read.readuntil(b"\r\n\r\n")
        lines = answer.lower().split(b"\r\n")
        length = next(int(line[15:]) for line in lines if line.startswith(b"content-length:"))
        body = await read.readexactly(length)
        if b'"3"' not in body:
            raise RuntimeError(f"{answer!r} {body!r}")
        count += 1
    write.close()
    return count


async def load(port: int, seconds: float) -> int:
    until = time.monotonic() + seconds
    async with asyncio.TaskGroup() as group:
        clients = [group.create_task(one_client(port, until)) for _ in range(CLIENTS)]
    return sum(client.result() for client in clients)


async def answering(ports: list[int]) -> None:
    async with asyncio.timeout(60):
        for port in ports:
            while True:
                try:
                    await one_client(port, time.monotonic() + 0.01)
                    break
                except (OSError, asyncio.IncompleteReadError):
                    await anyio.sleep(0.1)


def measured(replicas: int, store: str, seconds: float) -> dict[str, float]:
    """Calls in a second, and CPU milliseconds for a call."""
    with ExitStack() as stack:
        ports = [free_port() for _ in range(replicas)]
        server = [sys.executable, str(HERE / "sized_server.py")]
        pids = [
            stack.enter_context(process(*server, str(port), "0", "listed", "0", "", store)) for port in ports
        ]
        front = free_port()
        lines = "\n".join(f"  server r{port} 127.0.0.1:{port} no-check" for port in ports)
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        (folder / "haproxy.cfg").write_text(PROXY.format(port=front, servers=lines))
        asyncio.run(answering(ports))
        proxy = stack.enter_context(process("haproxy", "-db", "-f", str(folder / "haproxy.cfg")))
        asyncio.run(answering([front]))
        asyncio.run(load(front, 1))
        before = [cpu_of(pid) for pid in (*pids, proxy, os.getpid())]
        began = time.perf_counter()
        count = asyncio.run(load(front, seconds))
        took = time.perf_counter() - began
        after = [cpu_of(pid) for pid in (*pids, proxy, os.getpid())]
        spent = [1e3 * (now - then) / count for now, then in zip(after, before, strict=True)]
        return {
            "calls in a second": count / took,
            "CPU of the replicas, ms": sum(spent[:replicas]),
            "CPU of the proxy, ms": spent[-2],
            "CPU of the clients, ms": spent[-1],
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    finished = surroundings("throughput", {"seconds": options.seconds, "rounds": options.rounds})
    found: dict[str, list[dict[str, float]]] = {}
    with valkey_process() as store:
        for number in range(options.rounds):
            say("throughput", f"round {number + 1} of {options.rounds}")
            found.setdefault("1, no store", []).append(measured(1, "", options.seconds))
            for replicas in (1, 2, 3):
                one = measured(replicas, store.url, options.seconds)
                found.setdefault(str(replicas), []).append(one)
    figures: dict[str, dict[str, Any]] = {
        name: {title: statistics.median(each[title] for each in rounds) for title in rounds[0]}
        for name, rounds in found.items()
    }
    titles = list(next(iter(figures.values())))
    rows = [[name, *(f"{values[title]:,.3g}" for title in titles)] for name, values in figures.items()]
    print(markdown(["replicas", *titles], rows))
    if options.json:
        options.json.write_text(json.dumps({**finished(), "figures": figures}, indent=2))


if __name__ == "__main__":
    main()
