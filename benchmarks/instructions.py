"""The cost of telemetry and an audit log in instructions of the server per bridged call, counted by Valgrind.

    python benchmarks/instructions.py [--few 200] [--many 3000] [--only "http modern"] [--json FILE]

Valgrind has to be installed. The count is the same however busy the machine is, and says nothing of waits for
memory. Each choice runs twice, with few and with many calls; the difference has no start and no end in it.
Valgrind makes a server some fifty times slower, so that what is done by the clock would count fifty times:
`otlp` traces the share that its rate has at 1,000 calls in a second, 1 of 100, and exports fifty times
less often than by default. `every request` traces all.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

from audit import APP, over_http, stdio
from measuring import markdown
from reporting import say, surroundings
from telemetry import CASES, sink

_SLOWLY: Final = {"OTEL_BSP_SCHEDULE_DELAY": "250000", "OTEL_METRIC_EXPORT_INTERVAL": "3000000"}
CHOICES: Final[dict[str, tuple[list[str], dict[str, str]]]] = {
    "off": ([], {}),
    "audit": (["--audit", "{folder}/audit.jsonl"], {}),
    "prometheus": (["--telemetry", "prometheus"], {}),
    "otlp": (
        ["--telemetry", "otlp"],
        {**_SLOWLY, "OTEL_TRACES_SAMPLER": "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.01"},
    ),
    "every request": (["--telemetry", "otlp"], {**_SLOWLY, "OTEL_TRACES_SAMPLER": "always_on"}),
}
"""By choice the words for `serve` and the variables."""

_COUNTED: Final = re.compile(r"^(?:summary|totals): (\d+)$", re.MULTILINE)


def counted(transport: str, era: str, name: str, calls: int, url: str) -> int:
    """The instructions of a server from its start to its end, with so many calls."""
    opened = stdio if transport == "stdio" else over_http
    words, variables = CHOICES[name]
    with tempfile.TemporaryDirectory() as folder:
        app, out = Path(folder) / "app.py", Path(folder) / "counted"
        app.write_text(APP)
        valgrind = ["valgrind", "-q", "--tool=callgrind", f"--callgrind-out-file={out}"]
        command = [*valgrind, sys.executable, "-m", "mcp_toolset", "serve", f"{app}:tools"]
        command += [word.format(folder=folder) for word in words]
        # A hash of texts that differs from run to run changes the work of dictionaries.
        with patch.dict(os.environ, {"OTEL_EXPORTER_OTLP_ENDPOINT": url, "PYTHONHASHSEED": "0", **variables}):
            with opened(command, era) as (_, call):
                for _ in range(calls):
                    call()
        return max(int(found) for found in _COUNTED.findall(out.read_text()))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--few", type=int, default=200)
    parser.add_argument("--many", type=int, default=3000)
    parser.add_argument("--only", choices=CASES)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    finished = surroundings("instructions", {key: str(value) for key, value in vars(options).items()})
    rows: list[list[Any]] = []
    with sink() as (url, _):
        for case in [options.only] if options.only else CASES:
            transport, _, era = case.partition(" ")
            off = 0.0
            # The first server finds no lists from an earlier run.
            counted(transport, era, "off", 1, url)
            for name in CHOICES:
                if name == "prometheus" and transport == "stdio":
                    continue
                say("instructions", f"{case}, {name}")
                few, many = (
                    counted(transport, era, name, calls, url) for calls in (options.few, options.many)
                )
                each = (many - few) / (options.many - options.few)
                off = off or each
                rows.append([transport, era, name, round(each), f"{each / off:.3f}"])
    titles = ["transport", "era", "choice", "instructions per call", "× off"]
    print(markdown(titles, [[str(cell) for cell in row] for row in rows]))
    if options.json:
        options.json.write_text(json.dumps({**finished(), "columns": titles, "rows": rows}, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
