"""Compare what a Prometheus scrapes from a server with its audit log; `scripts/telemetry` runs it."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import httpx2
from tests.support.callers import client_of

TOKEN = "a-token-of-the-scraper"
APP = '''
from mcp_toolset import Toolset, tool

@tool
async def pay(amount: int) -> str:
    """Pay an amount."""
    if amount < 0:
        raise ValueError("negative")
    return f"paid {amount}"

tools = Toolset(pay)
'''
SCRAPING = """
global: {{scrape_interval: 250ms, scrape_timeout: 250ms}}
scrape_configs:
  - job_name: mcp-toolset
    authorization: {{credentials: {token}}}
    static_configs: [{{targets: ["127.0.0.1:{port}"]}}]
"""
QUERY = "sum by (gen_ai_tool_name, mcp_toolset_outcome) (gen_ai_execute_tool_duration_seconds_count)"
DEADLINE = 60.0


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def program(name: str) -> str:
    found = shutil.which(name, path=os.environ.get("PROMETHEUS")) or shutil.which(name)
    if found is None:
        raise SystemExit(f"scripts/telemetry: no {name} on PATH; install Debian's package prometheus")
    return found


@contextmanager
def running(command: list[str], log: Path, **variables: str) -> Iterator[None]:
    with log.open("wb") as file:
        process = subprocess.Popen(command, stderr=file, stdout=file, env={**os.environ, **variables})
        try:
            yield
        finally:
            process.terminate()
            process.wait(30)


async def answered(http: httpx2.AsyncClient, url: str) -> httpx2.Response:
    """The first answer with status 200."""
    with anyio.fail_after(DEADLINE):
        while True:
            with suppress(httpx2.TransportError):
                if (answer := await http.get(url)).status_code == 200:
                    return answer
            await anyio.sleep(0.1)


async def call(url: str, mode: str, calls: int) -> None:
    async with client_of(url, "scraper", mode, token=TOKEN) as client:
        for number in range(calls):
            await client.call_tool("pay", {"amount": number if number % 3 else -1})
            await client.call_tool("pay", {"amount": "much"})


def audited(path: Path) -> Counter[tuple[str, str]]:
    lines = [json.loads(line) for line in path.read_bytes().splitlines()]
    return Counter((one["tool"], one["outcome"]) for one in lines if one["event"] == "call")


async def scraped(http: httpx2.AsyncClient, url: str, calls: int) -> Counter[tuple[str, str]]:
    """The metrics in Prometheus, once it has so many calls."""
    with anyio.fail_after(DEADLINE):
        while True:
            rows = (await answered(http, url)).json()["data"]["result"]
            told = ("gen_ai_tool_name", "mcp_toolset_outcome")
            counts = ((tuple(row["metric"][name] for name in told), int(row["value"][1])) for row in rows)
            if (found := Counter[Any](dict(counts))).total() >= calls:
                return found
            await anyio.sleep(0.1)


async def compared(folder: Path, calls: int) -> Counter[tuple[str, str]]:
    """The counts that Prometheus and the audit log agree on."""
    port, own = free_port(), free_port()
    app, audit, config = folder / "app.py", folder / "audit.jsonl", folder / "prometheus.yml"
    app.write_text(APP)
    config.write_text(SCRAPING.format(token=TOKEN, port=port))
    serving = [sys.executable, "-m", "mcp_toolset", "serve", f"{app}:tools", "--audit", str(audit)]
    serving += ["--transport", "http", "--port", str(port), "--auth-token-env", "SCRAPER"]
    serving += ["--telemetry", "prometheus"]
    scraping = [program("prometheus"), f"--config.file={config}", f"--storage.tsdb.path={folder / 'data'}"]
    scraping += [f"--web.listen-address=127.0.0.1:{own}"]
    async with httpx2.AsyncClient(timeout=30) as http:
        with running(scraping, folder / "prometheus.log"):
            with running(serving, folder / "server.log", SCRAPER=TOKEN):
                url = f"http://127.0.0.1:{port}"
                await answered(http, f"{url}/ready")
                for mode in ("legacy", "2026-07-28"):
                    await call(url, mode, calls)
                http.headers["Authorization"] = f"Bearer {TOKEN}"
                page = await answered(http, f"{url}/metrics")
                await anyio.run_process([program("promtool"), "check", "metrics"], input=page.content)
                del http.headers["Authorization"]
                ask = str(httpx2.URL(f"http://127.0.0.1:{own}/api/v1/query", params={"query": QUERY}))
                found = await scraped(http, ask, 4 * calls)
        wanted = audited(audit)
    if found != wanted:
        raise SystemExit(f"scripts/telemetry: Prometheus has {found}, the audit log {wanted}")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/telemetry")
    parser.add_argument("--calls", type=int, default=50, help="calls of each kind in each era")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = anyio.run(compared, Path(folder), options.calls)
    for (tool, outcome), count in sorted(found.items()):
        print(f"{tool:12} {outcome:10} {count:6}")
    print(f"Prometheus and the audit log agree on {found.total()} calls")
    return 0


if __name__ == "__main__":
    sys.exit(main())
