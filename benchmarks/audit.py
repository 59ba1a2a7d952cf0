"""The cost of an audit log: CPU of the server per bridged call, on and off; the time to verify a long log.

    python benchmarks/audit.py [--rounds 15] [--calls 1500] [--lines 1000000] [--json FILE]

Two servers run beside each other, one with `--audit`; every round calls each of them so often, in turns. CPU
is that of the server's process with all its threads, the one that writes the log too. A ratio divides
figures of the same round. A round ends when the log has been written: what is written late counts.
"""

from __future__ import annotations

import argparse
import http.client
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from costs import HELLO, HERE, Raw
from measuring import cpu_of, markdown
from reporting import say, surroundings

from mcp_toolset.audit import AuditLog
from mcp_toolset.extensions.audit.verification import verify

APP: Final = f"""
import sys
from mcp_toolset import RemoteToolset
tools = RemoteToolset([sys.executable, "-S", {str(HERE / "raw_upstream.py")!r}], name="raw")
"""
META: Final = "io.modelcontextprotocol"
ENVELOPE: Final[dict[str, Any]] = {
    f"{META}/protocolVersion": "2026-07-28",
    f"{META}/clientInfo": {"name": "audit", "version": "1"},
    f"{META}/clientCapabilities": {},
}
CALL: Final[dict[str, Any]] = {"name": "echo", "arguments": {"text": "a text of some length " * 5}}
WRITTEN: Final = 0.25
"""Seconds after which the log has what was called: it gathers lines for 0.1 s."""

MODERN: Final = {**CALL, "_meta": ENVELOPE}

Peer = tuple[int, Callable[[], None]]
"""The process of a server, and one call of it."""


@contextmanager
def stdio(command: Sequence[str], era: str) -> Generator[Peer]:
    server = Raw(command)
    try:
        if era == "legacy":
            server.greet()
        params = CALL if era == "legacy" else MODERN
        yield server.process.pid, lambda: _checked(server.request("tools/call", **params))
    finally:
        assert server.process.stdin is not None
        server.process.stdin.close()
        server.process.wait(30)


@contextmanager
def over_http(command: Sequence[str], era: str) -> Generator[Peer]:
    options = ["--transport", "http", "--port", "0"]
    process = subprocess.Popen([*command, *options], stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        url = next(line for line in process.stderr if " at http://" in line).split(" at http://")[1]
        line = http.client.HTTPConnection(url.split("/")[0])
        headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}

        def post(method: str, params: dict[str, Any], id: int | None = 1) -> bytes:
            message = {"jsonrpc": "2.0", "method": method, "params": params, **({"id": id} if id else {})}
            body = json.dumps(message)
            try:
                line.request("POST", "/mcp", body, headers)
                answer = line.getresponse()
            except ConnectionError:
                # The server closed the connection while it was idle.
                line.close()
                line.request("POST", "/mcp", body, headers)
                answer = line.getresponse()
            if session := answer.headers.get("mcp-session-id"):
                headers["mcp-session-id"] = session
            return answer.read()

        if era == "legacy":
            post("initialize", HELLO)
            headers["mcp-protocol-version"] = HELLO["protocolVersion"]
            post("notifications/initialized", {}, None)
        else:
            told = {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": "echo"}
            headers.update(told)
        params = CALL if era == "legacy" else MODERN
        yield process.pid, lambda: _checked(post("tools/call", params))
    finally:
        process.terminate()
        process.wait(30)


def _checked(answer: bytes) -> None:
    if b"some length" not in answer:
        raise RuntimeError(answer[:300])


def case(transport: str, era: str, rounds: int, calls: int) -> dict[str, Any]:
    opened = stdio if transport == "stdio" else over_http
    spent: dict[str, list[float]] = {"off": [], "on": []}
    with tempfile.TemporaryDirectory() as folder:
        app, log = Path(folder) / "app.py", Path(folder) / "audit.jsonl"
        app.write_text(APP)
        command = [sys.executable, "-m", "mcp_toolset", "serve", f"{app}:tools"]
        with ExitStack() as stack:
            peers = {
                "off": stack.enter_context(opened(command, era)),
                "on": stack.enter_context(opened([*command, "--audit", str(log)], era)),
            }
            for number in range(rounds + 1):
                for name in ("off", "on") if number % 2 else ("on", "off"):
                    pid, call = peers[name]
                    before = cpu_of(pid)
                    for _ in range(calls):
                        call()
                    time.sleep(WRITTEN)  # noqa: TID251
                    if number:
                        spent[name].append(1e6 * (cpu_of(pid) - before) / calls)
        # All of it is written when the servers have ended.
        found = verify([log])[0]
    if found.finding is not None or found.lines < calls * (rounds + 1):
        raise RuntimeError(str(found))
    ratios = [on / off for on, off in zip(spent["on"], spent["off"], strict=True)]
    return {
        "transport": transport,
        "era": era,
        "off, µs": statistics.median(spent["off"]),
        "on, µs": statistics.median(spent["on"]),
        "least on / least off": min(spent["on"]) / min(spent["off"]),
        "ratio, median": statistics.median(ratios),
        "lowest": min(ratios),
        "highest": max(ratios),
        "lines": found.lines,
    }


def long_log(lines: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "audit.jsonl"
        log = AuditLog(path, max_bytes=100_000_000, max_files=100, max_queued=lines + 10, fsync=None)
        before = time.process_time()
        with log.opened():
            fields = {"who": "alice", "roles": ["staff"], "key": '["desk", "https://idp.example", "alice"]'}
            for number in range(lines):
                arguments = log.digest({"number": number})
                more = {"arguments": arguments, "outcome": "result", "ran": True, "duration": 0.0123}
                log.record("call", client="desk 1", protocol="2026-07-28", tool="echo", **fields, **more)
            log.close(600)
        written = time.process_time() - before
        size = sum(file.stat().st_size for file in Path(folder).iterdir())
        cpu, wall = time.process_time(), time.perf_counter()
        found = verify([path])[0]
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    if found.finding is not None or found.lines < lines:
        raise RuntimeError(str(found))
    return {
        "lines": found.lines,
        "files": len(found.files),
        "MB": size / 1e6,
        "written, CPU s": written,
        "verified, CPU s": cpu,
        "verified, s": wall,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--calls", type=int, default=1500)
    parser.add_argument("--lines", type=int, default=1_000_000)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    finished = surroundings("audit", {key: str(value) for key, value in vars(options).items()})
    cases: list[dict[str, Any]] = []
    for transport in ("stdio", "http"):
        for era in ("legacy", "modern"):
            say("audit", f"{transport}, {era}")
            cases.append(case(transport, era, options.rounds, options.calls))
    say("audit", f"{options.lines} lines")
    log = long_log(options.lines)
    for table in (cases, [log]):
        print(markdown(list(table[0]), [[_cell(value) for value in row.values()] for row in table]), "\n")
    if options.json:
        options.json.write_text(json.dumps({**finished(), "calls": cases, "log": log}, indent=2) + "\n")
    return 0


def _cell(value: object) -> str:
    return f"{value:.3f}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    sys.exit(main())
