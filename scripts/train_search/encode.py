"""Step 1: make the training texts and let the teacher read them.

python scripts/train_search/encode.py --catalog CATALOG.jsonl --out WORK_DIRECTORY
"""

# It runs in an environment of its own, see requirements.txt beside it.
# pyright: reportMissingImports=false, reportMissingModuleSource=false

from __future__ import annotations

import argparse
import hashlib
import json
import re
from collections import Counter
from dataclasses import astuple
from pathlib import Path
from typing import Any

import numpy as np
import torch
from corpus import PERMISSIVE, Corpus, corpus_of
from teacher import Teacher


def card_of(corpus: Corpus, catalog: Path, seed: int) -> dict[str, Any]:
    """The source of the table."""
    return {
        "teacher": {"model": "sentence-transformers/all-MiniLM-L6-v2", "licence": "Apache-2.0"},
        "data": {
            "catalog": catalog.name,
            "sha256": hashlib.sha256(catalog.read_bytes()).hexdigest(),
            "licences": sorted(PERMISSIVE),
            "tools": len(corpus.pairs),
            "texts": len(corpus.kinds),
            "seed": seed,
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--catalog", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    options.out.mkdir(parents=True, exist_ok=True)
    teacher = Teacher()
    words = [piece for piece in teacher.pieces if re.fullmatch("[a-z]{2,}", piece)]
    corpus = corpus_of(options.catalog, words, options.seed)
    texts = list(corpus.kinds)
    print(len(texts), "texts,", len(corpus.pairs), "tools:", dict(Counter(corpus.kinds.values())), flush=True)
    known = {
        "texts": texts,
        "kinds": list(corpus.kinds.values()),
        "pieces": teacher.pieces,
        "pairs": [astuple(pair) for pair in corpus.pairs],
    }
    (options.out / "corpus.json").write_text(json.dumps(known))
    (options.out / "card.json").write_text(json.dumps(card_of(corpus, options.catalog, options.seed)))
    np.save(
        options.out / "pieces.npy", teacher.encode([p.removeprefix("##") for p in teacher.pieces], "pieces")
    )
    np.save(options.out / "texts.npy", teacher.encode(texts, "texts"))


if __name__ == "__main__":
    main()
