"""Step 3: write the table as the package ships it: small whole numbers, a scale for each piece, a card."""

# It runs in an environment of its own, see requirements.txt beside it.
# pyright: reportMissingImports=false, reportMissingModuleSource=false

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mcp_toolset.catalog.search.meaning import LEVELS

LARGEST_SCALE = 4_095
# How many level units the standard deviation of a row is: the outermost level stands for 2.73 of them.
SPREAD = 127 / 2.73


def export(
    table: np.ndarray, pieces: Sequence[str], used: Sequence[int], card: dict[str, Any], out: Path
) -> None:
    """Write `pieces.txt`, `vectors.bin` and `table.json`.

    Args:
        table: A row for each of the teacher's pieces.
        pieces: The teacher's pieces.
        used: The places of the pieces to keep.
        card: The sources of the table.
        out: The directory.
    """
    card |= {"dimensions": table.shape[1], "bits": 4, "pieces": len(used)}
    levels, scales = quantised(turned(table[list(used)], card["turn"]))
    out.mkdir(parents=True, exist_ok=True)
    (out / "pieces.txt").write_text("\n".join(pieces[place] for place in used), "utf-8")
    (out / "vectors.bin").write_bytes(scales.astype("<u2").tobytes() + packed(levels).tobytes())
    (out / "table.json").write_text(json.dumps(card, indent=1) + "\n", "utf-8")


def turned(table: np.ndarray, seed: int) -> np.ndarray:
    """The table turned at random, so that all dimensions have the same spread; products do not change."""
    size = table.shape[1]
    turn, _ = np.linalg.qr(np.random.default_rng(seed).standard_normal((size, size)))
    return table @ turn


def quantised(table: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each number the place of its level, and for each row what 1 is worth."""
    levels = np.array(LEVELS, dtype=float)
    spread = table.std(1, keepdims=True) + 1e-9
    places = np.searchsorted((levels[1:] + levels[:-1]) / 2, table / spread * SPREAD)
    chosen = levels[places]
    worth = (chosen * table).sum(1) / (chosen * chosen).sum(1)
    return places, np.maximum(1, np.round(worth / worth.max() * LARGEST_SCALE))


def packed(places: np.ndarray) -> np.ndarray:
    """Two numbers a byte: the first half of a row in the low bits."""
    half = places.shape[1] // 2
    places = places.astype(np.uint8)
    return places[:, :half] | places[:, half:] << 4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, required=True, help="what distil.py wrote")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--turn", type=int, default=3, help="the seed of the turn")
    options = parser.parse_args()
    made = json.loads((options.work / "made.json").read_text())
    card = made["card"] | {"turn": options.turn}
    export(np.load(options.work / "table.npy"), made["pieces"], made["used"], card, options.out)


if __name__ == "__main__":
    main()
