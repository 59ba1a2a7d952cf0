"""Step 1: make the training texts and let the teacher read them.

python scripts/train_search/encode.py --catalog CATALOG.jsonl --out WORK_DIRECTORY
"""

from __future__ import annotations

import argparse
import json
import re
from collections import Counter
from dataclasses import astuple
from pathlib import Path

import numpy as np
import torch
from corpus import corpus_of
from teacher import Teacher


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
    known = {"texts": texts, "kinds": list(corpus.kinds.values()), "pieces": teacher.pieces}
    known["pairs"] = [astuple(pair) for pair in corpus.pairs]
    (options.out / "corpus.json").write_text(json.dumps(known))
    np.save(
        options.out / "pieces.npy", teacher.encode([p.removeprefix("##") for p in teacher.pieces], "pieces")
    )
    np.save(options.out / "texts.npy", teacher.encode(texts, "texts"))


if __name__ == "__main__":
    main()
