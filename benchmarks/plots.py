"""The plots of docs/benchmarks.md, drawn from what the benchmarks wrote.

    python benchmarks/plots.py FOLDER DOCS

FOLDER holds the JSON files that `scripts/bench` leaves; a plot whose figures are not there is left as it is.
SVG by hand: bars and lines need no library, and text stays text.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

WIDTH, LEFT, BAR, GAP = 760, 190, 16, 14
COLOURS = ("#1f6f8b", "#c46210", "#7a7a7a", "#4c9a2a", "#8e4585", "#b8860b", "#444444")
Report = Mapping[str, Any]


def text(x: float, y: float, what: str, anchor: str = "start", size: int = 12, fill: str = "#222") -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f'<text {place} font-size="{size}" fill="{fill}">{escape(what)}</text>'


def rectangle(x: float, y: float, width: float, height: float, colour: str) -> str:
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height}" fill="{colour}"/>'


def page(height: float, title: str, note: str, parts: Iterable[str]) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" role="img" '
        f'aria-label="{escape(title)}" font-family="sans-serif">'
    )
    ground = f'<rect width="{WIDTH}" height="{height:.0f}" fill="#fff"/>'
    return "\n".join(
        [
            head,
            ground,
            text(16, 24, title, size=15),
            text(16, 42, note, size=11, fill="#666"),
            *parts,
            "</svg>",
            "",
        ]
    )


def bars(
    title: str, note: str, groups: Mapping[str, Mapping[str, float]], *, line: float | None = None
) -> str:
    """Horizontal bars on a logarithmic scale, a group to a case; `line` marks one value."""
    names = list(dict.fromkeys(name for group in groups.values() for name in group))
    values = [value for group in groups.values() for value in group.values()]
    least, most = min([*values, line or math.inf]) / 1.3, max([*values, line or 0]) * 1.3
    room = WIDTH - LEFT - 70

    def at(value: float) -> float:
        return LEFT + room * math.log(value / least) / math.log(most / least)

    parts: list[str] = []
    y = 62.0
    for number, name in enumerate(names):
        x = 16 + 122 * (number % 6)
        row = y + 16 * (number // 6)
        parts.append(rectangle(x, row - 9, 10, 10, COLOURS[number % 7]))
        parts.append(text(x + 14, row, name, size=11))
    y += 16 * ((len(names) + 5) // 6) + 4
    top = y
    for case, group in groups.items():
        parts.append(text(LEFT - 8, y + BAR * len(group) / 2 + 4, case, "end"))
        for name, value in group.items():
            colour = COLOURS[names.index(name) % 7]
            parts.append(rectangle(LEFT, y, max(1.0, at(value) - LEFT), BAR - 2, colour))
            parts.append(text(at(value) + 4, y + BAR - 5, f"{value:.2f}", size=10))
            y += BAR
        y += GAP
    if line is not None:
        path = f"M{at(line):.1f} {top:.0f}V{y - GAP:.0f}"
        parts.append(f'<path d="{path}" stroke="#a00" stroke-dasharray="4 3"/>')
    return page(y + 6, title, note, parts)


def lines(title: str, note: str, curves: Mapping[str, Mapping[str, float]]) -> str:
    """Curves over a logarithmic scale of sizes, from zero up."""
    sizes = sorted({int(size) for curve in curves.values() for size in curve})
    most = 1.25 * max(value for curve in curves.values() for value in curve.values())
    left, top, room, depth = 60, 70, WIDTH - 90, 220

    def place(size: int, value: float) -> tuple[float, float]:
        spread = math.log(sizes[-1] / sizes[0]) or 1.0
        return left + room * math.log(size / sizes[0]) / spread, top + depth * (1 - value / most)

    parts = [f'<path d="M{left} {top}V{top + depth}H{left + room}" fill="none" stroke="#888"/>']
    parts += [text(place(size, 0)[0], top + depth + 16, f"{size:,}", "middle", 11) for size in sizes]
    marks = [share * most for share in (0.25, 0.5, 0.75, 1.0)]
    parts += [text(left - 6, place(sizes[0], mark)[1] + 4, f"{mark:.2f}", "end", 11) for mark in marks]
    for number, (name, curve) in enumerate(curves.items()):
        points = [place(int(size), value) for size, value in curve.items()]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{COLOURS[number]}" stroke-width="2"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{COLOURS[number]}"/>' for x, y in points]
        parts.append(
            text(points[-1][0] - 4, points[-1][1] - 9 - 14 * number, name, "end", 11, COLOURS[number])
        )
    return page(top + depth + 30, title, note, parts)


def about(report: Report) -> str:
    """The source of the figures, in one line."""
    versions, machine = report["versions"], report["machine"]
    load = ", ".join(f"{machine[key][0]:.1f}" for key in ("load_before", "load_after"))
    packages = ", ".join(f"{name} {versions[name]}" for name in ("mcp", "fastmcp") if versions.get(name))
    where = f"Python {versions['python']}, {packages}, {machine['cpus']} CPUs"
    return f"{report['when'][:10]}, {where}, load before and after {load}"


def case_of(row: Report) -> str:
    return f"{row['scenario']}, {'modern' if row['mode'] == 'auto' else row['mode']}, {row['conc']}"


def by_case(rows: Sequence[Report], figure: str) -> dict[str, dict[str, float]]:
    groups: dict[str, dict[str, float]] = {}
    for row in rows:
        if row.get(figure):
            groups.setdefault(case_of(row), {})[row["peer"]] = row[figure]
    return groups


def calls(report: Report) -> dict[str, str]:
    note = about(report)
    plots = {
        f"calls-{scenario}": bars(
            f"A call over {scenario}: p50 as a multiple of a direct call's",
            note,
            by_case(rows, "x_p50"),
            line=1.0,
        )
        for scenario in dict.fromkeys(row["scenario"] for row in report["rows"])
        if (rows := [row for row in report["rows"] if row["scenario"] == scenario])
    }
    spent = [row for row in report["rows"] if row["scenario"] == "pipe"]
    if spent:
        title = "stdio → bridge → stdio: CPU of the process that is called, ms a call"
        plots["calls-cpu"] = bars(title, note, by_case(spent, "bridge_cpu_ms"))
    return plots


def local_tool(report: Report) -> dict[str, str]:
    title = "One local tool: p50 as a multiple of the SDK's MCPServer"
    return {"local-tool": bars(title, about(report), by_case(report["rows"], "x_p50"), line=1.0)}


def growth(report: Report) -> dict[str, str]:
    curves = {"by tools": report["tools"], "by servers": report["servers"]}
    return {"growth": lines("CPU of a call, ms, by how much is mounted", about(report), curves)}


def pauses(report: Report) -> dict[str, str]:
    groups = {row["phase"]: {"longest pause": row["longest pause, ms"]} for row in report["rows"]}
    title = f"{report['options']['tools']:,} tools: the longest time, ms, in which nobody is answered"
    return {"pauses": bars(title, about(report), groups)}


def soak(report: Report) -> dict[str, str]:
    rows = {str(number + 1): sample["resident MB"] for number, sample in enumerate(report["samples"])}
    title = (
        f"Memory of the bridge, MB, over {report['options']['seconds']:.0f} s and {report['calls']:,} calls"
    )
    return {"soak": lines(title, about(report), {"resident": rows})}


DRAWN: dict[str, Callable[[Report], dict[str, str]]] = {
    "calls": calls,
    "local_tool": local_tool,
    "growth": growth,
    "pauses": pauses,
    "soak": soak,
}


def main() -> int:
    folder, docs = map(Path, sys.argv[1:3])
    docs.mkdir(parents=True, exist_ok=True)
    for name, draw in DRAWN.items():
        file = folder / f"{name}.json"
        if file.exists():
            for plot, svg in draw(json.loads(file.read_text())).items():
                (docs / f"{plot}.svg").write_text(svg)
                print(docs / f"{plot}.svg")
    return 0


if __name__ == "__main__":
    sys.exit(main())
