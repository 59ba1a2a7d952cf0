"""Samples of a repeated call, and what several interleaved rounds of them come to, as ratios to a base.

On a shared machine absolute times wander by the minute. So every round measures all peers right after
one another, in the opposite order in odd rounds, and only figures of the same round are divided.
"""

from __future__ import annotations

import gc
import math
import statistics
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio

ANSWER_DEADLINE = 30.0
"""Seconds that a sample may outlast its budget before the run fails."""

Call = Callable[[], Awaitable[None]]
Sampler = Callable[[int, float], Awaitable["Sample"]]
"""Takes a sample in another process: so many calls at once, so many seconds."""


@dataclass(frozen=True)
class Sample:
    """One peer in one round: the latencies in seconds, and CPU seconds of this process per call.

    `bridge_cpu` is that of the bridge's own process, where it has one.
    """

    latencies: tuple[float, ...]
    wall: float
    cpu: float
    bridge_cpu: float | None = None

    @property
    def p50(self) -> float:
        return statistics.median(self.latencies)


@dataclass(frozen=True)
class Figures:
    """One peer over all rounds. `x_` is a ratio to the base of the same round: median, lowest, highest."""

    calls: int
    p50_ms: float
    p99_ms: float
    calls_per_s: float
    cpu_ms: float
    x_p50: float
    x_p50_lo: float
    x_p50_hi: float
    x_p99: float
    x_cpu: float
    x_cpu_lo: float
    x_cpu_hi: float
    bridge_cpu_ms: float | None


async def take_sample(call: Call, *, at_once: int, seconds: float, pid: int | None = None) -> Sample:
    """Call over and over, `at_once` calls in flight, until `seconds` are over."""
    latencies: list[float] = []
    before = None if pid is None else cpu_of(pid)
    start, cpu = time.perf_counter(), time.process_time()
    end = start + seconds

    async def repeat() -> None:
        while True:
            began = time.perf_counter()
            await call()
            done = time.perf_counter()
            latencies.append(done - began)
            if done >= end:
                return

    with anyio.fail_after(seconds + ANSWER_DEADLINE):
        if at_once == 1:
            await repeat()
        else:
            async with anyio.create_task_group() as group:
                for _ in range(at_once):
                    group.start_soon(repeat)
    wall, spent = time.perf_counter() - start, time.process_time() - cpu
    bridge = None if before is None or pid is None else (cpu_of(pid) - before) / len(latencies)
    return Sample(tuple(latencies), wall, spent / len(latencies), bridge)


def cpu_of(pid: int) -> float:
    """CPU seconds that a process's threads have had; only on Linux is it known so finely."""
    spent = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        spent += int((task / "schedstat").read_text().split()[0])
    return spent / 1e9


async def interleaved(
    calls: Mapping[str, Call],
    *,
    at_once: int,
    rounds: int,
    seconds: float,
    pids: Mapping[str, int | None] | None = None,
    elsewhere: Mapping[str, Sampler] | None = None,
) -> dict[str, list[Sample]]:
    """One sample of each peer in every round; a first, shorter round is thrown away."""
    pids, elsewhere = pids or {}, elsewhere or {}

    async def take(name: str, seconds: float) -> Sample:
        if name in elsewhere:
            return await elsewhere[name](at_once, seconds)
        return await take_sample(calls[name], at_once=at_once, seconds=seconds, pid=pids.get(name))

    names = [*calls, *elsewhere]
    samples: dict[str, list[Sample]] = {name: [] for name in names}
    for name in names:
        await take(name, seconds / 4)
    for number in range(rounds):
        gc.collect()
        for name in names[::-1] if number % 2 else names:
            samples[name].append(await take(name, seconds))
    return samples


@dataclass(frozen=True)
class Change:
    """Ratios of what is now to what was before, in the same round: the median and the quartiles."""

    wall: tuple[float, float, float]
    cpu: tuple[float, float, float]


def change(now: Sequence[Sample], before: Sequence[Sample]) -> Change:
    """Both hold one sample for each round, in the same order; CPU is the bridge's own, if it is a process."""
    pairs = list(zip(now, before, strict=True))
    return Change(
        _quartiles([new.p50 / old.p50 for new, old in pairs]),
        _quartiles([(new.bridge_cpu or new.cpu) / (old.bridge_cpu or old.cpu) for new, old in pairs]),
    )


def _quartiles(ratios: list[float]) -> tuple[float, float, float]:
    low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive")
    return middle, low, high


def figures(samples: Sequence[Sample], base: Sequence[Sample]) -> Figures:
    """Both sequences hold one sample for each round, in the same order."""
    pairs = list(zip(samples, base, strict=True))
    x_p50 = [own.p50 / other.p50 for own, other in pairs]
    x_cpu = [own.cpu / other.cpu for own, other in pairs]
    spent = [sample.bridge_cpu for sample in samples if sample.bridge_cpu is not None]
    return Figures(
        calls=sum(len(sample.latencies) for sample in samples),
        p50_ms=1e3 * statistics.median(sample.p50 for sample in samples),
        p99_ms=1e3 * _p99(samples),
        calls_per_s=statistics.median(len(sample.latencies) / sample.wall for sample in samples),
        cpu_ms=1e3 * statistics.median(sample.cpu for sample in samples),
        x_p50=statistics.median(x_p50),
        x_p50_lo=min(x_p50),
        x_p50_hi=max(x_p50),
        x_p99=_p99(samples) / _p99(base),
        x_cpu=statistics.median(x_cpu),
        x_cpu_lo=min(x_cpu),
        x_cpu_hi=max(x_cpu),
        bridge_cpu_ms=1e3 * statistics.median(spent) if spent else None,
    )


def _p99(samples: Sequence[Sample]) -> float:
    """Of all rounds together: one round has too few calls for it. Of fewer than 100 it is the longest."""
    latencies = sorted(latency for sample in samples for latency in sample.latencies)
    return latencies[math.ceil(0.99 * len(latencies)) - 1]


@asynccontextmanager
async def separate_heaps() -> AsyncGenerator[None]:
    """Keep what is loaded out of garbage collections: no peer is to pay for the others' modules."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)
