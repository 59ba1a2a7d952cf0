"""The time of a client's handshake with a hub, beside servers that start slowly or never answer.

Each figure is a real process: from starting `mcp-toolset serve` until `initialize` is answered, and then
until `tools/list` is. Run it with `python -m benchmarks.handshake [ROUNDS]`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

QUICK: Final = """
import json, sys, time
time.sleep(float(sys.argv[1]))
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    tool = {"name": "now", "description": "Tell the time.", "inputSchema": {"type": "object"}}
    results = {
        "initialize": {
            "protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
            "serverInfo": {"name": "clock", "version": "1"},
        },
        "tools/list": {"tools": [tool]},
    }
    found = results.get(asked["method"])
    answer = {"result": found} if found else {"error": {"code": -32601, "message": "unknown"}}
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **answer}), flush=True)
"""

HANGS: Final = "import sys; sys.stdin.read()"

HELLO: Final = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "benchmark", "version": "1"},
}


def command(source: str, *arguments: str) -> dict[str, Any]:
    """A server of a configuration that is a Python program."""
    return {"command": sys.executable, "args": ["-c", source, *arguments]}


HUBS: Final[dict[str, dict[str, Any]]] = {
    "one quick server": {"clock": command(QUICK, "0")},
    "and one that hangs": {"clock": command(QUICK, "0"), "stuck": command(HANGS)},
    "and one that takes 10 s": {"clock": command(QUICK, "0"), "slow": command(QUICK, "10")},
    "only one that hangs": {"stuck": command(HANGS)},
}


def measured(config: Path, options: list[str]) -> tuple[float, float]:
    """Seconds until `initialize` is answered, and until `tools/list` is."""
    began = time.perf_counter()
    environment = {**os.environ, "MCP_TOOLSET_CACHE": str(config.parent / "cache")}
    with subprocess.Popen(
        [sys.executable, "-m", "mcp_toolset", "serve", str(config), *options],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment,
        text=True,
    ) as hub:
        greeted = asked(hub, 1, "initialize", HELLO, began)
        assert hub.stdin is not None
        hub.stdin.write(json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"}) + "\n")
        listed = asked(hub, 2, "tools/list", {}, began)
        hub.stdin.close()
        hub.wait(60)
    return greeted, listed


def asked(
    hub: subprocess.Popen[str], number: int, method: str, params: dict[str, Any], began: float
) -> float:
    """Seconds from `began` until the hub has answered a request."""
    assert hub.stdin is not None
    assert hub.stdout is not None
    hub.stdin.write(json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}) + "\n")
    hub.stdin.flush()
    for line in hub.stdout:
        if json.loads(line).get("id") == number:
            return time.perf_counter() - began
    raise SystemExit(f"the hub ended before it answered {method}")


def main() -> None:
    """Print a table: the best of some rounds for each hub, at its first run and at later ones.

    The rounds go through all hubs in turn, so that a busy machine is busy for all of them alike.
    """
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    with tempfile.TemporaryDirectory() as folder:
        configs = {name: Path(folder) / f"{number}" / "mcp.json" for number, name in enumerate(HUBS)}
        for name, config in configs.items():
            config.parent.mkdir()
            config.write_text(json.dumps({"mcpServers": HUBS[name]}))
        first = {name: measured(config, []) for name, config in configs.items()}
        later = [{name: measured(config, []) for name, config in configs.items()} for _ in range(rounds)]
        behind = [
            {name: measured(config, ["--deferred"]) for name, config in configs.items()}
            for _ in range(rounds)
        ]
    table("first run", [first])
    table("later runs", later)
    table("later runs, deferred", behind)


def table(title: str, rounds: list[dict[str, tuple[float, float]]]) -> None:
    """Print the best time of each hub, and how it compares with that of the first hub."""
    print(f"\n{title}\n\n| hub | initialize | times the first | tools/list |\n|---|---|---|---|")
    least = min(one[next(iter(HUBS))][0] for one in rounds)
    for name in HUBS:
        greeted, listed = (min(one[name][step] for one in rounds) for step in (0, 1))
        print(f"| {name} | {greeted:.2f} s | {greeted / least:.2f} | {listed:.2f} s |")


if __name__ == "__main__":
    main()
