"""Step 3: write the table as the package ships it: small whole numbers, a scale for each piece, a card."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

LARGEST_SCALE = 4_095


def export(
    table: np.ndarray, pieces: Sequence[str], used: Sequence[int], card: dict[str, Any], out: Path
) -> None:
    """Write `pieces.txt`, `vectors.bin` and `table.json`.

    Args:
        table: A row for each of the teacher's pieces.
        pieces: The teacher's pieces.
        used: The places of the pieces to keep.
        card: What the table was made from.
        out: The directory.
    """
    rows, scales = quantised(turned(table[list(used)], card["seed"]), card["bits"])
    out.mkdir(parents=True, exist_ok=True)
    (out / "pieces.txt").write_text("\n".join(pieces[place] for place in used), "utf-8")
    (out / "vectors.bin").write_bytes(scales.astype("<u2").tobytes() + packed(rows, card["bits"]).tobytes())
    (out / "table.json").write_text(json.dumps(card, indent=1) + "\n", "utf-8")


def turned(table: np.ndarray, seed: int) -> np.ndarray:
    """The table turned at random, so that all dimensions have the same spread; products do not change."""
    size = table.shape[1]
    turn, _ = np.linalg.qr(np.random.default_rng(seed).standard_normal((size, size)))
    return table @ turn


def quantised(table: np.ndarray, bits: int) -> tuple[np.ndarray, np.ndarray]:
    """Whole numbers around 0, and what 1 is worth in each row as a share of `LARGEST_SCALE`."""
    largest = 2 ** (bits - 1) - 1
    reach = np.abs(table).max(1)
    if bits < 8:
        reach = np.minimum(reach, 2.7 * table.std(1))
    worth = reach / largest
    scales = np.maximum(1, np.round(worth / worth.max() * LARGEST_SCALE))
    exact = scales[:, None] / LARGEST_SCALE * worth.max()
    return np.clip(np.round(table / exact), -largest, largest), scales


def packed(rows: np.ndarray, bits: int) -> np.ndarray:
    """One byte a number, or two numbers a byte: the first half of a row in the low bits."""
    middle = 2 ** (bits - 1)
    shifted = (rows + middle).astype(np.uint8)
    if bits == 8:
        return shifted
    half = shifted.shape[1] // 2
    return shifted[:, :half] | shifted[:, half:] << 4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, required=True, help="what distil.py wrote")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--bits", type=int, default=8, choices=(4, 8))
    options = parser.parse_args()
    made = json.loads((options.work / "made.json").read_text())
    card = made["card"] | {"bits": options.bits}
    export(np.load(options.work / "table.npy"), made["pieces"], made["used"], card, options.out)


if __name__ == "__main__":
    main()
