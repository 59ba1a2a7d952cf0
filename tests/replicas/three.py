"""Three replicas behind HAProxy, which sends each request to the next one, and what kills them in turn."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from socket import socket

import anyio
from mcp.client import streamable_http
from tests.support.valkey import valkey_process

ROOT = Path(__file__).parents[2]


def free_port() -> int:
    with socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


PROXY = """
global
  maxconn 4096
defaults
  mode http
  option redispatch 1
  retries 3
  retry-on conn-failure
  timeout connect 2s
  timeout client 300s
  timeout server 300s
  timeout tunnel 300s
  default-server check inter 300ms fall 1 rise 1
frontend front
  bind 127.0.0.1:{port}
  default_backend replicas
backend replicas
  balance roundrobin
  option httpchk
  http-check send meth GET uri /health ver HTTP/1.1 hdr Host 127.0.0.1
{servers}
"""


class Replica:
    """One process."""

    def __init__(self, port: int, url: str, effects: Path, log: Path) -> None:
        self.port, self._url, self._effects, self._log = port, url, effects, log
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        words = [
            "serve",
            str(ROOT / "tests/replicas/served.py"),
            "--transport",
            "http",
            "--port",
            str(self.port),
        ]
        env = {**os.environ, "REPLICAS_EFFECTS": str(self._effects), "MCP_TOOLSET_CACHE": "off"}
        env |= {"MCP_TOOLSET_STATS": "off"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "mcp_toolset", *words, "--shared", self._url],
            stdout=subprocess.DEVNULL,
            stderr=self._log.open("ab"),
            env=env,
        )

    def kill(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()


@contextmanager
def proxied(folder: Path) -> Iterator[None]:
    words = ["haproxy", "-db", "-f", str(folder / "haproxy.cfg")]
    with subprocess.Popen(words, stderr=subprocess.DEVNULL) as proxy:
        try:
            yield
        finally:
            proxy.kill()


@asynccontextmanager
async def three(folder: Path, effects: Path) -> AsyncIterator[tuple[str, list[Replica]]]:
    """Three replicas, and where their proxy is."""
    # The SDK's legacy client opens its stream anew once in its life, and then hears nothing until it ends.
    streamable_http.MAX_RECONNECTION_ATTEMPTS = 10**9
    await anyio.Path(effects).touch()
    async with AsyncExitStack() as stack:
        store = stack.enter_context(valkey_process())
        ports = [free_port() for _ in range(3)]
        replicas = [Replica(port, store.url, effects, folder / f"log{port}") for port in ports]
        for replica in replicas:
            replica.start()
            stack.callback(replica.kill)
        front = free_port()
        servers = "\n".join(f"  server r{port} 127.0.0.1:{port} check" for port in ports)
        (folder / "haproxy.cfg").write_text(PROXY.format(port=front, servers=servers))
        stack.enter_context(proxied(folder))
        await anyio.sleep(8)
        yield f"http://127.0.0.1:{front}", replicas


async def killing(replicas: list[Replica], every: float, kills: list[float]) -> None:
    turn = 0
    while True:
        await anyio.sleep(every)
        one = replicas[turn % len(replicas)]
        turn += 1
        kills.append(time.monotonic())
        one.kill()
        await anyio.sleep(min(2.0, every / 3))
        one.start()
