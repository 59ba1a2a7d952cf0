"""Runs the sweeps and prints how many cases ran, and each that fell short; exit code 1 if one did.

python -m tests.faults.sweep [upstreams|clients] [--every N] [--at-once N] [--only TEXT]
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
from pathlib import Path

import anyio
from tests.faults.sweep import clients, upstreams

SWEEPS = {"upstreams": upstreams, "clients": clients}


def tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


async def swept(name: str, folder: Path, options: argparse.Namespace) -> int:
    sweep = SWEEPS[name]
    every = [case for case in await sweep.cases(folder) if options.only in str(case)][:: options.every]
    limit, short, done = anyio.CapacityLimiter(options.at_once), 0, 0

    async def one(number: int, case: object) -> None:
        nonlocal short, done
        where = folder / str(number)
        where.mkdir()
        async with limit:
            wrong = await sweep.fell_short(case, where)
        done += 1
        if wrong:
            short += 1
            tell(f"{case}: {'; '.join(wrong)}")
        if done % 100 == 0:
            sys.stderr.write(f"{name}: {done} of {len(every)}\n")

    async with anyio.create_task_group() as group:
        for number, case in enumerate(every):
            group.start_soon(one, number, case)
    tell(f"{name}: {len(every)} cases ran, {short} fell short")
    return short


async def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sweep", nargs="?", choices=[*SWEEPS, "all"], default="all")
    parser.add_argument("--every", type=int, default=1, help="run one case of so many")
    parser.add_argument("--at-once", type=int, default=8)
    parser.add_argument("--only", default="", help="a text that the names of the cases have")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    short = 0
    for name in SWEEPS if options.sweep == "all" else [options.sweep]:
        with tempfile.TemporaryDirectory() as folder:
            short += await swept(name, Path(folder), options)
    return short


sys.exit(bool(anyio.run(main)))
