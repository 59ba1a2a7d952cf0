"""The cost of the bridge's own process, with raw bytes as requests: lists, big results, idle mounts.

    python benchmarks/costs.py [--rounds 5] [--json FILE]

CPU is that of the bridge's process, the least of the rounds: a busy neighbour only adds to it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from measuring import cpu_of, markdown
from reporting import say, surroundings

HERE = Path(__file__).parent
CLIENT = {"name": "costs", "version": "1"}
HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": CLIENT}
BIG = 32_000_000


class Raw:
    """A server as a process, and the bytes that it is spoken to in."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        self.began = time.perf_counter()
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
        )
        self._id = 0

    def request(self, method: str, **params: Any) -> bytes:
        """Ask, and return the line of the answer."""
        self._id += 1
        assert self.process.stdin is not None and self.process.stdout is not None
        message = {"jsonrpc": "2.0", "id": self._id, "method": method, "params": params}
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()
        wanted = b'"id":%d,' % self._id
        while wanted not in (line := self.process.stdout.readline())[:60]:
            if not line:
                raise RuntimeError("the server has ended")
        return line

    def greet(self) -> None:
        """Do the handshake."""
        self.request("initialize", **HELLO)
        assert self.process.stdin is not None
        self.process.stdin.write(b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')

    def wait_for(self, tools: int) -> None:
        """List until that many tools are there."""
        while len(json.loads(self.request("tools/list"))["result"]["tools"]) < tools:
            time.sleep(0.1)  # noqa: TID251

    @property
    def cpu(self) -> float:
        return cpu_of(self.process.pid)

    @property
    def resident(self) -> float:
        """MB that are its own."""
        lines = Path(f"/proc/{self.process.pid}/smaps_rollup").read_text().splitlines()
        return sum(int(line.split()[1]) for line in lines if line.startswith("Private_")) / 1024


@contextmanager
def raw(
    *command: str, python: str = sys.executable, environment: Mapping[str, str] | None = None
) -> Generator[Raw]:
    """A server that is a Python program; it has been greeted, and is ended at the end."""
    server = Raw([python, *command], environment)
    try:
        server.greet()
        yield server
    finally:
        assert server.process.stdin is not None
        server.process.stdin.close()
        try:
            server.process.wait(10)
        except subprocess.TimeoutExpired:
            server.process.kill()


def bridge(tools: int, upstreams: int = 1, *, prefixed: bool = False) -> list[str]:
    """The arguments of a bridge; several upstreams have prefixes, one has if it is told."""
    return [str(HERE / "raw_bridge.py"), str(tools), str(upstreams), *(["prefixed"] if prefixed else [])]


def lists(tools: int, rounds: int) -> dict[str, float]:
    with raw(*bridge(tools)) as server:
        server.wait_for(tools)
        taken: list[tuple[float, float]] = []
        for _ in range(rounds * 4):
            before, cpu = time.perf_counter(), server.cpu
            server.request("tools/list")
            taken.append((time.perf_counter() - before, server.cpu - cpu))
    return {
        f"tools/list of {tools}, least ms": 1e3 * min(wall for wall, _ in taken),
        f"tools/list of {tools}, CPU ms": 1e3 * min(spent for _, spent in taken),
    }


def big(rounds: int) -> dict[str, float]:
    with raw(*bridge(1)) as server:
        server.wait_for(1)
        taken: list[float] = []
        for _ in range(rounds):
            before = server.cpu
            size = len(server.request("tools/call", name="echo", arguments={"size": BIG}))
            if size < BIG:
                raise RuntimeError(f"only {size} bytes came")
            taken.append(server.cpu - before)
    return {"a result of 32 MB, CPU ms": 1e3 * min(taken)}


def idle(upstreams: int = 20) -> dict[str, float]:
    found: dict[int, float] = {}
    for count in (1, 1 + upstreams):
        with raw(*bridge(1, count)) as server:
            server.wait_for(count)
            found[count] = server.resident
    return {"memory per idle stdio upstream, MB": (found[1 + upstreams] - found[1]) / upstreams}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="once each, and small: shows that it runs")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    rounds = 1 if options.quick else options.rounds
    about = surroundings("costs", {"rounds": rounds, "quick": options.quick})
    figures: dict[str, float] = {}
    parts = [lambda: lists(50 if options.quick else 5000, rounds), lambda: big(rounds)]
    if not options.quick:
        parts += [idle]
    for part in parts:
        figures.update(part())
        say("costs", ", ".join(list(figures)[-1:]))
    print(markdown(("what", "figure"), [(name, f"{figure:.2f}") for name, figure in figures.items()]))
    if options.json:
        options.json.write_text(json.dumps({**about(), "figures": figures}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
