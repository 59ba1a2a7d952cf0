"""Takes random steps of three users at four kinds of clients; exit code 1 if anything crosses over.

python -m tests.identities [--steps N] [--seed N]
"""

from __future__ import annotations

import argparse
import random
import sys
import time

import anyio
from tests.identities.steps import run
from tests.identities.world import World
from tests.support.authorization_server import authorization_server


def tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


async def taken(world: World, steps: int) -> None:
    async with world.running():
        await run(world, steps)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    options = parser.parse_args()
    tell(f"seed {options.seed}")
    began = time.monotonic()
    with authorization_server() as issuing:
        world = World(issuing, options.seed)
        anyio.run(taken, world, options.steps)
    for kind, count in sorted(world.judge.counts.items()):
        tell(f"{count:8} {kind}")
    for crossing in world.judge.crossings[:20]:
        tell(crossing)
    tell(
        f"{options.steps} steps in {time.monotonic() - began:.0f} s, crossings: {len(world.judge.crossings)}"
    )
    return bool(world.judge.crossings)


if __name__ == "__main__":
    sys.exit(main())
