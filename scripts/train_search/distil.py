"""Step 2: distil the teacher into a table with one vector for each word piece.

    python scripts/train_search/distil.py --work WORK_DIRECTORY --out DIRECTORY

A text is then the sum of its pieces. Three losses are added: one minus the cosine to the teacher's vector
(reduced by PCA), the divergence between how teacher and table rank the other texts of a batch of
neighbours, and telling a tool by a part of its first sentence.
"""

# It runs in an environment of its own, see requirements.txt beside it.
# pyright: reportMissingImports=false, reportMissingModuleSource=false

from __future__ import annotations

import argparse
import itertools
import json
import random
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

from mcp_toolset.catalog.search.meaning import pieces_of, words_of

SHARES = {
    "name": 1.0,
    "first": 2.0,
    "text": 2.0,
    "sentence": 1.5,
    "request": 2.0,
    "dropped": 2.0,
    "parameter": 1.0,
    "server": 2.0,
    "word": 0.5,
    "bag": 0.7,
    "wish": 1.0,
    "topic": 1.0,
    "piece": 0.3,
}
PROSE = ("first", "text", "request", "dropped", "name", "bag", "wish", "topic")
ANCHORS, NEIGHBOURS, STRANGERS, ASKING = 6, 190, 900, 700
TEMPERATURE = 0.05
PAIRS = 512
LONGEST = 80


class Data:
    """Texts as places of pieces, with what the teacher makes of them."""

    def __init__(self, work: Path, dimensions: int) -> None:
        known = json.loads((work / "corpus.json").read_text())
        self.pieces: list[str] = known["pieces"]
        self.vocabulary = {piece: i for i, piece in enumerate(self.pieces) if _is_plain(piece)}
        single = sorted(self.vocabulary.values())
        kinds = known["kinds"] + ["piece"] * len(single)
        vectors = np.load(work / "texts.npy").astype(np.float32)
        alone = np.load(work / "pieces.npy").astype(np.float32)
        self.ids = [self.places(text) for text in known["texts"]] + [[place] for place in single]
        self.teacher = np.vstack([vectors, alone[single]])
        shares = np.array([SHARES[kind] for kind in kinds]) * [bool(ids) for ids in self.ids]
        self.shares = shares / shares.sum()
        prose = self.teacher[np.isin(kinds, PROSE)]
        _, axes = np.linalg.eigh(prose.T @ prose)
        axes = axes[:, ::-1][:, :dimensions]
        target = self.teacher @ axes
        self.target = torch.from_numpy(target / (np.linalg.norm(target, axis=1, keepdims=True) + 1e-9))
        self.start = self._start(alone, axes)
        pairs = [
            (self.places(first)[:40], self.places(name), self.places(parameters)[:20], self.places(text))
            for first, name, parameters, text in known["pairs"]
        ]
        self.pairs = [pair for pair in pairs if len(pair[0]) > 1 and pair[1]]

    def places(self, text: str) -> list[int]:
        return [p for word in words_of(text) for p in pieces_of(word, self.vocabulary)][:LONGEST]

    def _start(self, alone: np.ndarray, axes: np.ndarray) -> torch.Tensor:
        """Each piece as the teacher sees it alone, weighed by how rare it is in the texts."""
        counts = np.bincount([i for ids in self.ids for i in set(ids)], minlength=len(self.pieces))
        rarity = np.log(len(self.ids) / (counts + 1.0))
        used = counts > 1
        start = (alone - 0.7 * alone[used].mean(0)) @ axes * (rarity[:, None] / 5)
        start[[i for i in range(len(self.pieces)) if i not in set(self.vocabulary.values())]] = 0
        return torch.tensor(start, dtype=torch.float32)


def distil(data: Data, options: argparse.Namespace) -> np.ndarray:
    table = torch.nn.Parameter(data.start.clone())
    optimizer = torch.optim.Adam([table], lr=options.rate, betas=(0.9, 0.99))
    teacher = torch.from_numpy(data.teacher)
    chance = np.random.default_rng(options.seed)
    begun, told = time.monotonic(), time.monotonic()
    for step in range(options.steps):
        for group in optimizer.param_groups:
            group["lr"] = options.rate * min(1, (step + 1) / 50) * (1 - step / options.steps)
        batch = _neighbourhoods(data, chance)
        seen = _sums(table, [data.ids[i] for i in batch], options.drop)
        places = torch.from_numpy(batch)
        likeness = (1 - (seen * data.target[places]).sum(1)).mean()
        ranking = _ranking(seen, teacher[places])
        telling = _telling(table, data)
        loss = likeness + ranking + options.telling * telling
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if time.monotonic() - told > 20:
            told = time.monotonic()
            parts = f"{likeness.item():.3f} {ranking.item():.3f} {telling.item():.3f}"
            print(f"step {step} of {options.steps}, {told - begun:.0f} s: {parts}", flush=True)
    return table.detach().numpy()


def _neighbourhoods(data: Data, chance: np.random.Generator) -> np.ndarray:
    """Some texts, and with a few of them those that the teacher finds most alike."""
    some = chance.choice(len(data.ids), 9_000, p=data.shares)
    alike = data.teacher[some] @ data.teacher[some[:ANCHORS]].T
    near = [some[np.argpartition(-alike[:, i], NEIGHBOURS)[:NEIGHBOURS]] for i in range(ANCHORS)]
    batch = np.unique(np.concatenate([some[:STRANGERS], *near]))
    chance.shuffle(batch)
    return batch


def _sums(table: torch.Tensor, texts: list[list[int]], drop: float = 0.0) -> torch.Tensor:
    if drop:
        texts = [[p for p in text if random.random() > drop] or text for text in texts]
    offsets = torch.tensor([0] + [len(text) for text in texts[:-1]]).cumsum(0)
    flat = torch.tensor(list(itertools.chain.from_iterable(texts)))
    return F.normalize(F.embedding_bag(flat, table, offsets, mode="sum"), dim=1)


def _ranking(seen: torch.Tensor, taught: torch.Tensor) -> torch.Tensor:
    asking = min(ASKING, len(seen))
    itself = torch.eye(asking, len(seen), dtype=torch.bool)
    ours = (seen[:asking] @ seen.T / TEMPERATURE).masked_fill(itself, -1e4)
    theirs = (taught[:asking] @ taught.T / TEMPERATURE).masked_fill(itself, -1e4)
    logs = F.log_softmax(ours, 1), F.log_softmax(theirs, 1)
    return F.kl_div(*logs, log_target=True, reduction="batchmean")


def _telling(table: torch.Tensor, data: Data) -> torch.Tensor:
    some = random.sample(data.pairs, min(PAIRS, len(data.pairs)))
    asked = _sums(table, [first for first, *_ in some], 0.35)
    shown = [name + parameters if random.random() < 0.5 else text for _, name, parameters, text in some]
    scores = asked @ _sums(table, shown, 0.1).T / TEMPERATURE
    right = torch.arange(len(some))
    return (F.cross_entropy(scores, right) + F.cross_entropy(scores.T, right)) / 2


def _is_plain(piece: str) -> bool:
    bare = piece.removeprefix("##")
    return bare.isascii() and bare.isalnum()


def most_used(data: Data, count: int) -> list[int]:
    """The pieces to keep: those met most often in texts, then those that the teacher ranks first."""
    met = np.bincount([p for ids in data.ids for p in set(ids)], minlength=len(data.pieces))
    places = sorted(data.vocabulary.values(), key=lambda place: (-met[place], place))
    single = [place for place in places if len(data.pieces[place].removeprefix("##")) == 1]
    return sorted({*single, *places[:count]})


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--work", type=Path, required=True, help="what encode.py wrote")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--dimensions", type=int, default=64)
    parser.add_argument("--pieces", type=int, default=22_000)
    parser.add_argument("--steps", type=int, default=2_500)
    parser.add_argument("--rate", type=float, default=3e-3)
    parser.add_argument("--telling", type=float, default=0.3)
    parser.add_argument("--drop", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    random.seed(options.seed)
    data = Data(options.work, options.dimensions)
    table = distil(data, options)
    options.out.mkdir(parents=True, exist_ok=True)
    np.save(options.out / "table.npy", table)
    made_with = ("dimensions", "steps", "rate", "telling", "drop", "seed")
    card = json.loads((options.work / "card.json").read_text())
    card |= {"training": {key: getattr(options, key) for key in made_with}}
    made = {"card": card, "pieces": data.pieces, "used": most_used(data, options.pieces)}
    (options.out / "made.json").write_text(json.dumps(made))


if __name__ == "__main__":
    main()
