"""A bridge's overhead for a tool call: this toolkit and FastMCP against the SDK's client on the upstream.

    python benchmarks/calls.py [--rounds 5] [--budget 0.35] [--peers ours,fastmcp_proxy]
                               [--before PYTHON] [--json FILE]

The client is in this process. So is the bridge, before an upstream that is too (`memory`) or is a child
(`stdio`); or the bridge is a process between the client and a child, reached by stdio (`pipe`) or by
streamable HTTP (`http`). All peers of a case are open together and measured in interleaved rounds, so
compare the ratios; CPU is that of this process or of the bridge's, which a busy neighbour moves less.
`--before` names the interpreter of another checkout: then `before` is `ours` of that checkout, both are
called by processes of their own, and a second table has the ratios with their quartiles. `--mode auto` is
the modern protocol where a peer speaks it. `--quick` only shows that everything runs.
See docs/benchmarks.md for results.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, get_args

import anyio
from caller import Caller, caller
from measuring import Change, Figures, change, figures, interleaved, markdown, separate_heaps
from peers import Mode, Peer, Route, Scenario, available
from reporting import say, surroundings

BASE = "direct"
NOW, BEFORE = "ours", "before"
OPENING_DEADLINE = 60.0
"""Seconds that opening all the peers of one case may take."""

QUICK = {"rounds": 2, "budget": 0.02}


@dataclass(frozen=True)
class Row:
    """One peer in one case."""

    scenario: str
    mode: str
    protocol: str
    conc: int
    peer: str
    figures: Figures
    change: Change | None = None


def main(arguments: Sequence[str] | None = None) -> int:
    peers, missing = available()
    options = _options(arguments, known=[*peers, *missing])
    left_out = {name: missing[name] for name in options.peers or missing if name in missing}
    for name, reason in left_out.items():
        say("calls", f"{name} is left out: {reason}")
    asked = options.peers or peers
    chosen = {name: peer for name, peer in peers.items() if name == BASE or name in asked}
    about = surroundings("calls", {name: vars(options)[name] for name in ("rounds", "budget", "quick")})
    rows = anyio.run(measured, chosen, options)
    print(table(rows))
    if options.before:
        print("\n" + changes(rows))
    if options.json:
        report = {**about(), "left_out": left_out, "rows": list(_flat(rows))}
        options.json.write_text(json.dumps(report, indent=1) + "\n")
    return 0


async def measured(peers: Mapping[str, Peer], options: argparse.Namespace) -> list[Row]:
    rows: list[Row] = []
    for scenario in options.scenario:
        for mode in options.mode:
            async with opened(peers, scenario, mode, options.before) as routes, separate_heaps():
                for conc in options.conc:
                    say("calls", f"{scenario}, {mode}, {conc} at once: {', '.join(routes)}")
                    rows.extend(await case(routes, scenario, mode, conc, options))
    return rows


@asynccontextmanager
async def opened(
    peers: Mapping[str, Peer], scenario: Scenario, mode: Mode, before: str | None
) -> AsyncGenerator[dict[str, Route | Caller]]:
    """All peers of one scenario and era, each open and called once."""
    async with AsyncExitStack() as stack:
        routes: dict[str, Route | Caller] = {}
        for name, peer in peers.items():
            if not peer.serves(scenario, mode) or (before and name == NOW):
                continue
            routes[name] = route = await stack.enter_async_context(peer.open(scenario, mode))
            with anyio.fail_after(OPENING_DEADLINE):
                await route.call()
        for name, python in ((NOW, sys.executable), (BEFORE, before)) if before else ():
            routes[name] = await stack.enter_async_context(caller(python or "", NOW, scenario, mode))
        yield routes


async def case(
    routes: Mapping[str, Route | Caller], scenario: str, mode: str, conc: int, options: argparse.Namespace
) -> list[Row]:
    here = {name: route for name, route in routes.items() if isinstance(route, Route)}
    samples = await interleaved(
        {name: route.call for name, route in here.items()},
        at_once=conc,
        rounds=options.rounds,
        seconds=options.budget,
        pids={name: route.pid for name, route in here.items()},
        elsewhere={name: route.sample for name, route in routes.items() if isinstance(route, Caller)},
    )
    return [
        Row(
            scenario,
            mode,
            routes[name].protocol,
            conc,
            name,
            figures(taken, samples[BASE]),
            change(taken, samples[BEFORE]) if BEFORE in samples and name == NOW else None,
        )
        for name, taken in samples.items()
    ]


def changes(rows: Sequence[Row]) -> str:
    head = ("upstream", "era", "at once", "p50 × before", "quartiles", "CPU × before", "quartiles")
    cells = [
        (row.scenario, row.mode, str(row.conc), *_spread(row.change.wall), *_spread(row.change.cpu))
        for row in rows
        if row.change
    ]
    return markdown(head, cells)


def _spread(ratio: tuple[float, float, float]) -> tuple[str, str]:
    middle, low, high = ratio
    return f"{middle:.3f}", f"{low:.3f}–{high:.3f}"


def table(rows: Sequence[Row]) -> str:
    head = ("upstream", "era", "at once", "peer", "p50 × direct", "lo–hi", "p50 ms", "p99 × direct")
    head = (*head, "CPU ms", "CPU × direct", "bridge CPU ms")
    return markdown(head, [_cells(row) for row in rows])


def _cells(row: Row) -> tuple[str, ...]:
    taken = row.figures
    return (
        row.scenario,
        f"{row.mode} ({row.protocol})",
        str(row.conc),
        row.peer,
        f"{taken.x_p50:.2f}",
        f"{taken.x_p50_lo:.2f}–{taken.x_p50_hi:.2f}",
        f"{taken.p50_ms:.3f}",
        f"{taken.x_p99:.2f}",
        f"{taken.cpu_ms:.3f}",
        f"{taken.x_cpu:.2f}",
        "" if taken.bridge_cpu_ms is None else f"{taken.bridge_cpu_ms:.3f}",
    )


def _flat(rows: Sequence[Row]) -> Iterator[dict[str, Any]]:
    for row in rows:
        flat = asdict(row)
        yield {**flat, **flat.pop("figures")}


def _options(arguments: Sequence[str] | None, *, known: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5, help="interleaved rounds (5)")
    parser.add_argument("--budget", type=float, default=0.35, help="seconds per peer and round (0.35)")
    parser.add_argument(
        "--peers", type=_listed, metavar="A,B", help=f"some of {','.join(known)}; default all"
    )
    parser.add_argument("--scenario", type=_listed, default=list(get_args(Scenario)), metavar="A,B")
    parser.add_argument("--mode", type=_listed, default=list(get_args(Mode)), metavar="A,B")
    parser.add_argument("--conc", type=_counts, default=[1, 16], metavar="1,16", help="calls in flight")
    parser.add_argument("--before", metavar="PYTHON", help="the interpreter of another checkout")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there, too")
    parser.add_argument("--quick", action="store_true", help="tiny samples: shows that it runs, no more")
    options = parser.parse_args(arguments)
    if options.quick:
        vars(options).update(QUICK)
    for name, allowed in (("peers", known), ("scenario", get_args(Scenario)), ("mode", get_args(Mode))):
        unknown = [value for value in getattr(options, name) or () if value not in allowed]
        if unknown:
            parser.error(f"--{name}: {unknown[0]!r} is none of {', '.join(allowed)}")
    if options.rounds < 1 or options.budget <= 0 or min(options.conc) < 1:
        parser.error("--rounds, --budget and --conc are positive")
    return options


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _counts(text: str) -> list[int]:
    return [int(part) for part in _listed(text)]


if __name__ == "__main__":
    sys.exit(main())
