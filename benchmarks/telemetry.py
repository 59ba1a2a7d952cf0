"""What metrics and traces cost: CPU of the server per bridged call, with each choice and without.

    python benchmarks/telemetry.py [--rounds 100] [--calls 100] [--json FILE]

A server for each choice runs beside one without; every round calls each of them so often, in turns. CPU is
that of the server's process with all its threads, those that send too. A ratio divides figures of the same
round. The collector is in this process. `every request` traces all, by `OTEL_TRACES_SAMPLER`. A page for
Prometheus is there over HTTP alone. `off again` is a second server without: it shows what the machine adds.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import threading
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

from audit import APP, over_http, stdio
from measuring import cpu_of, markdown
from reporting import say, surroundings

WORDS: Final = {"prometheus": "prometheus", "otlp": "otlp", "every request": "otlp"}
"""By choice what `--telemetry` is given."""

CASES: Final = [f"{transport} {era}" for transport in ("stdio", "http") for era in ("legacy", "modern")]


@contextmanager
def sink() -> Generator[tuple[str, list[int]]]:
    """A collector that throws away what it gets; its URL, and the sizes of the messages."""
    sizes: list[int] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            sizes.append(len(self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", sizes
        server.shutdown()


def case(transport: str, era: str, rounds: int, calls: int, url: str) -> list[dict[str, Any]]:
    opened = stdio if transport == "stdio" else over_http
    spent: dict[str, list[float]] = {
        name: [] for name in ("off", "off again", *WORDS) if opened is over_http or name != "prometheus"
    }
    peers: dict[str, tuple[int, Callable[[], None]]] = {}
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        app = Path(folder) / "app.py"
        app.write_text(APP)
        command = [sys.executable, "-m", "mcp_toolset", "serve", f"{app}:tools"]
        for name in spent:
            sampler = {"OTEL_TRACES_SAMPLER": "always_on"} if name == "every request" else {}
            with patch.dict(os.environ, {"OTEL_EXPORTER_OTLP_ENDPOINT": url, **sampler}):
                more = ["--telemetry", WORDS[name]] if name in WORDS else []
                peers[name] = stack.enter_context(opened([*command, *more], era))
        for number in range(rounds + 1):
            for name in list(spent)[:: 1 if number % 2 else -1]:
                pid, call = peers[name]
                before = cpu_of(pid)
                for _ in range(calls):
                    call()
                if number:
                    spent[name].append(1e6 * (cpu_of(pid) - before) / calls)
    return [_row(transport, era, name, spent) for name in spent]


def _row(transport: str, era: str, name: str, spent: dict[str, list[float]]) -> dict[str, Any]:
    ratios = [on / off for on, off in zip(spent[name], spent["off"], strict=True)]
    return {
        "transport": transport,
        "era": era,
        "telemetry": name,
        "µs": statistics.median(spent[name]),
        "least / least off": min(spent[name]) / min(spent["off"]),
        "ratio, median": statistics.median(ratios),
        "of all": sum(spent[name]) / sum(spent["off"]),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--calls", type=int, default=100)
    parser.add_argument("--only", choices=CASES)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    finished = surroundings("telemetry", {key: str(value) for key, value in vars(options).items()})
    rows: list[dict[str, Any]] = []
    with sink() as (url, sizes):
        for name in [options.only] if options.only else CASES:
            say("telemetry", name)
            transport, _, era = name.partition(" ")
            rows += case(transport, era, options.rounds, options.calls, url)
    print(markdown(list(rows[0]), [[_cell(value) for value in row.values()] for row in rows]), "\n")
    print(f"the collector got {len(sizes)} messages, {sum(sizes)} bytes")
    if options.json:
        found = {**finished(), "calls": rows, "messages": len(sizes)}
        options.json.write_text(json.dumps(found, indent=2) + "\n")
    return 0


def _cell(value: object) -> str:
    return f"{value:.3f}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    sys.exit(main())
