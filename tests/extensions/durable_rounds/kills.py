"""Kills a loop in DBOS at random times until it has ended, again and again, and counts what happened.

    python -m tests.extensions.durable_rounds.kills [--kills 200] [--seed 1]

The exit code is 1 if a payment happened twice, or never though it was said to be done, or a loop did not end.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

PROGRAM = Path(__file__).with_name("bills.py")
BILLS = 12
FEW = 3
"""Kills of one loop, before it is let run to its end."""


def loop(seed: int) -> Counter[str]:
    """Run one loop to its end, with kills; what was counted."""
    chance, counted = random.Random(seed), Counter[str]()
    with tempfile.TemporaryDirectory() as folder:
        for number in range(FEW + 1):
            patience = 120 if number == FEW else 0.7 + chance.random() * 1.2
            told = _run(Path(folder), patience)
            if told is not None:
                break
            counted["kills"] += 1
        if told is None:
            counted["loops that did not end"] += 1
            return counted
        paid = Counter((Path(folder) / "paid.txt").read_text().split())
    *payments, _ = json.loads(told.splitlines()[-1])
    for bill, said in enumerate(payments):
        times = paid[str(bill)]
        counted["payments"] += 1
        counted["payments that happened twice"] += times > 1
        if said == f"paid {bill}":
            counted["payments said to be done"] += 1
            counted["payments said to be done that did not happen"] += times == 0
        elif "outcome is not known" in said:
            counted["payments said to be unknown"] += 1
        else:
            counted["other answers"] += 1
    return counted


def _run(folder: Path, patience: float) -> str | None:
    """What the program printed; `None` if it was killed before."""
    surroundings = {**os.environ, "SLOW": "0.05", "BILLS": str(BILLS)}
    command = [sys.executable, str(PROGRAM), str(folder)]
    with subprocess.Popen(command, env=surroundings, stdout=subprocess.PIPE, text=True) as process:
        try:
            told, _ = process.communicate(timeout=patience)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            return None
    return told if process.returncode == 0 else None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    counted, seed = Counter[str](), options.seed
    with ThreadPoolExecutor(2) as pool:
        while counted["kills"] < options.kills:
            for found in pool.map(loop, range(seed, seed + 8)):
                counted.update(found)
            seed += 8
            sys.stderr.write(f"{counted['kills']} kills\n")
    bad = ("loops that did not end", "other answers")
    bad += ("payments that happened twice", "payments said to be done that did not happen")
    for name in sorted({*counted, *bad}):
        sys.stdout.write(f"{counted[name]:6} {name}\n")
    return int(any(counted[name] for name in bad))


if __name__ == "__main__":
    sys.exit(main())
