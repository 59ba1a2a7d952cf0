"""Full load on one bridge for a while: does its memory, or the number of its handles and threads, grow?

    python benchmarks/soak.py [--seconds 600] [--json FILE]

Sixteen calls are under way at any time, over stdio, before an upstream over stdio. The first tenth of
the time is for warming up; what counts is how the rest differs from its end.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from costs import Raw, bridge, raw
from measuring import markdown
from reporting import say, surroundings

AT_ONCE = 16
SAMPLES = 20


def state(server: Raw) -> dict[str, float]:
    """The figures that a leak would raise."""
    process = Path(f"/proc/{server.process.pid}")
    return {
        "resident MB": server.resident,
        "handles": len(list((process / "fd").iterdir())),
        "threads": len(list((process / "task").iterdir())),
    }


def load(server: Raw, seconds: float) -> int:
    """Call, `AT_ONCE` at a time, until the time is over; returns how many calls were answered."""
    assert server.process.stdin is not None and server.process.stdout is not None
    params = {"name": "echo", "arguments": {"text": "x" * 64}}
    message = {"jsonrpc": "2.0", "id": 0, "method": "tools/call", "params": params}
    end, done = time.perf_counter() + seconds, 0
    while time.perf_counter() < end:
        lines = [json.dumps({**message, "id": f"s{done + number}"}) for number in range(AT_ONCE)]
        server.process.stdin.write("".join(line + "\n" for line in lines).encode())
        server.process.stdin.flush()
        for _ in range(AT_ONCE):
            if b'"isError":true' in (answer := server.process.stdout.readline()) or not answer:
                raise RuntimeError(f"a call failed: {answer[:200]!r}")
        done += AT_ONCE
    return done


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    about = surroundings("soak", {"seconds": options.seconds})
    with raw(*bridge(1)) as server:
        server.wait_for(1)
        calls = load(server, options.seconds / 10)
        samples: list[dict[str, Any]] = [state(server)]
        for number in range(SAMPLES):
            calls += load(server, options.seconds * 0.9 / SAMPLES)
            samples.append(state(server))
            say("soak", f"{number + 1} of {SAMPLES}: {calls} calls, {samples[-1]}")
    rows = [(name, f"{samples[0][name]:.1f}", f"{samples[-1][name]:.1f}") for name in samples[0]]
    print(markdown((f"{calls} calls", "after warming up", "at the end"), rows))
    if options.json:
        report = {**about(), "calls": calls, "samples": samples, "load": os.getloadavg()}
        options.json.write_text(json.dumps(report, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
