"""The calls of one peer in a process of its own: `caller.py PEER SCENARIO MODE`, for `calls.py --before`.

Any interpreter runs it, so that the client and the bridge are those of its checkout. Each line on standard
input, `AT_ONCE SECONDS`, is answered with one sample.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from typing import Any

import anyio
from anyio.abc import Process
from anyio.streams.text import TextReceiveStream
from bridges import Mode, Scenario
from measuring import ANSWER_DEADLINE, Sample, separate_heaps, take_sample

OPENING_DEADLINE = 60.0


@dataclass(frozen=True)
class Caller:
    """A process that calls, and the protocol that its client speaks."""

    process: Process
    protocol: str

    async def sample(self, at_once: int, seconds: float) -> Sample:
        assert self.process.stdin is not None
        await self.process.stdin.send(f"{at_once} {seconds}\n".encode())
        with anyio.fail_after(seconds + 2 * ANSWER_DEADLINE):
            found = json.loads(await _line(self.process))
        return Sample(**{**found, "latencies": tuple(found["latencies"])})


@asynccontextmanager
async def caller(python: str, peer: str, scenario: Scenario, mode: Mode) -> AsyncGenerator[Caller]:
    """The peer, called by a process of this interpreter."""
    command = [python, __file__, peer, scenario, mode]
    async with await anyio.open_process(command, stdin=subprocess.PIPE, stderr=None) as process:
        assert process.stdin is not None
        with anyio.fail_after(OPENING_DEADLINE):
            protocol = (await _line(process)).strip()
        yield Caller(process, protocol)
        # It closes its bridge by itself.
        await process.stdin.aclose()
        with anyio.move_on_after(OPENING_DEADLINE):
            await process.wait()


async def _line(process: Process) -> str:
    assert process.stdout is not None
    said, text = "", TextReceiveStream(process.stdout)
    while not said.endswith("\n"):
        said += await text.receive()
    return said


async def main(name: str, scenario: Any, mode: Any) -> None:
    from peers import available

    async with available()[0][name].open(scenario, mode) as route, separate_heaps():
        await route.call()
        print(route.client.protocol_version, flush=True)
        while line := await anyio.to_thread.run_sync(sys.stdin.readline):
            at_once, seconds = line.split()
            taken = await take_sample(route.call, at_once=int(at_once), seconds=float(seconds), pid=route.pid)
            print(json.dumps(asdict(taken)), flush=True)


if __name__ == "__main__":
    anyio.run(main, sys.argv[1], sys.argv[2], sys.argv[3])
