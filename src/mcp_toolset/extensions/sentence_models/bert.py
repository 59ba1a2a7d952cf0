"""`SentenceModel`: a sentence model of BERT's architecture, computed with numpy.

It reads a folder as sentence-transformers lays it out: `config.json`, `vocab.txt` and
`model.safetensors`. A text's vector is the mean of its pieces' vectors, of length 1, as with
all-MiniLM-L6-v2.
"""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from importlib import import_module
from importlib.util import find_spec
from math import prod, sqrt
from pathlib import Path
from typing import Any, Final, final

from mcp_toolset.errors import ToolsetError

_LONGEST_WORD = 100
_CHARACTERS = 4_000
_HAN: Final = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0002fa1f]")
_LEFT_OUT: Final = frozenset({"Mn", "Cc", "Cf"})


class WordPieces:
    """The pieces of a lower-case vocabulary; a piece that goes on with a word begins with `##`."""

    def __init__(self, pieces: Sequence[str]) -> None:
        self._places = {piece: place for place, piece in enumerate(pieces)}
        self._unknown = self._places["[UNK]"]
        self._first, self._last = self._places["[CLS]"], self._places["[SEP]"]

    def read(self, text: str, most: int) -> list[int]:
        """The places of at most `most` pieces of a text, with the marks of its beginning and its end."""
        read: list[int] = []
        for word in _spaced(text[:_CHARACTERS]).split():
            if len(read) >= most - 2:
                break
            read += self._pieces(word)
        return [self._first, *read[: most - 2], self._last]

    def _pieces(self, word: str) -> Iterator[int]:
        places = list(self._greedy(word)) if len(word) <= _LONGEST_WORD else [None]
        yield from [self._unknown] if None in places else [place for place in places if place is not None]

    def _greedy(self, word: str) -> Iterator[int | None]:
        start = 0
        while start < len(word):
            mark = "##" if start else ""
            ends = range(len(word), start, -1)
            end = next((end for end in ends if mark + word[start:end] in self._places), None)
            if end is None:
                yield None
                return
            yield self._places[mark + word[start:end]]
            start = end


def _spaced(text: str) -> str:
    """The text in lower case without accents, with blanks around punctuation and Chinese characters."""
    return "".join(map(_blank_around, unicodedata.normalize("NFD", text.lower())))


def _blank_around(letter: str) -> str:
    if letter.isalnum() and letter.isascii():
        return letter
    if letter.isspace():
        return " "
    category = unicodedata.category(letter)
    if category in _LEFT_OUT:
        return ""
    is_mark = category.startswith("P") or letter.isascii() or _HAN.match(letter)
    return f" {letter} " if is_mark else letter


_LONGEST_TEXT = 256
_BATCH = 16
_LENGTH_BYTES = 8
_SAMPLE = 65_536
_TYPES = {"F32": "<f4", "F16": "<f2"}
_NEEDED = ("config.json", "vocab.txt", "model.safetensors")
_FAR = -1e9


@final
class SentenceModel:
    """An `Embedder` of a folder with weights; needs `mcp-toolset[model]`, which is numpy."""

    def __init__(self, folder: Path | str) -> None:
        """Use the model in a folder; its weights are read when the first text is embedded.

        Raises:
            ToolsetError: numpy is not installed, a file is missing, or the model is no BERT.
        """
        folder = Path(folder)
        missing = [name for name in _NEEDED if not (folder / name).is_file()]
        if missing:
            raise ToolsetError(f"{folder} holds no sentence model: {', '.join(missing)} is missing")
        if find_spec("numpy") is None:
            raise ToolsetError("SentenceModel needs numpy; install mcp-toolset[model]")
        self._folder = folder
        self._config: Mapping[str, Any] = json.loads((folder / "config.json").read_text("utf-8"))
        if self._config.get("model_type") != "bert":
            raise ToolsetError(
                f"{folder} holds a model of type {self._config.get('model_type')!r}; SentenceModel computes "
                "'bert' only; use SentenceTransformerEmbedder for others"
            )
        self.name = f"sentence-model:{folder.name}:{self._version()}"

    def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """The vectors of texts, in their order."""
        longest = min(_LONGEST_TEXT, self._config["max_position_embeddings"])
        read = [self._pieces.read(text, longest) for text in texts]
        by_length = sorted(range(len(read)), key=lambda place: len(read[place]))
        vectors: dict[int, list[float]] = {}
        for start in range(0, len(read), _BATCH):
            places = by_length[start : start + _BATCH]
            made = self._vectors([read[place] for place in places]).tolist()
            vectors |= zip(places, made, strict=True)
        return [vectors[place] for place in range(len(read))]

    @cached_property
    def _numpy(self) -> Any:
        return import_module("numpy")

    @cached_property
    def _pieces(self) -> WordPieces:
        return WordPieces((self._folder / "vocab.txt").read_text("utf-8").split("\n"))

    @cached_property
    def _weights(self) -> Mapping[str, Any]:
        return _read_weights(self._numpy, self._folder / "model.safetensors")

    def _version(self) -> str:
        """A digest of the shapes and the first of the numbers: another training has others."""
        with (self._folder / "model.safetensors").open("rb") as file:
            return hashlib.sha256(file.read(_SAMPLE)).hexdigest()[:16]

    def _vectors(self, read: Sequence[Sequence[int]]) -> Any:
        np, longest = self._numpy, max(map(len, read))
        pieces = np.array([[*text, *[0] * (longest - len(text))] for text in read])
        mask = np.array([[1.0] * len(text) + [0.0] * (longest - len(text)) for text in read], np.float32)
        states = self._embedded(pieces)
        for layer in range(self._config["num_hidden_layers"]):
            states = self._layer(f"encoder.layer.{layer}.", states, (1 - mask)[:, None, None, :] * _FAR)
        sums = (states * mask[:, :, None]).sum(axis=1)
        return sums / np.linalg.norm(sums, axis=1, keepdims=True)

    def _embedded(self, pieces: Any) -> Any:
        weights, at = self._weights, "embeddings."
        states = weights[f"{at}word_embeddings.weight"][pieces]
        states = states + weights[f"{at}position_embeddings.weight"][: pieces.shape[1]]
        states = states + weights[f"{at}token_type_embeddings.weight"][0]
        return self._normal(f"{at}LayerNorm.", states)

    def _layer(self, at: str, states: Any, mask: Any) -> Any:
        attended = self._attention(f"{at}attention.self.", states, mask)
        attended = self._dense(f"{at}attention.output.dense.", attended)
        states = self._normal(f"{at}attention.output.LayerNorm.", states + attended)
        inner = _gelu(self._numpy, self._dense(f"{at}intermediate.dense.", states))
        return self._normal(f"{at}output.LayerNorm.", states + self._dense(f"{at}output.dense.", inner))

    def _attention(self, at: str, states: Any, mask: Any) -> Any:
        np, heads = self._numpy, self._config["num_attention_heads"]
        texts, length, size = states.shape

        def by_head(part: str) -> Any:
            made = self._dense(f"{at}{part}.", states)
            return made.reshape(texts, length, heads, size // heads).transpose(0, 2, 1, 3)

        query, key, value = map(by_head, ("query", "key", "value"))
        scores = query @ key.transpose(0, 1, 3, 2) / sqrt(size // heads) + mask
        scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
        scores /= scores.sum(axis=-1, keepdims=True)
        return (scores @ value).transpose(0, 2, 1, 3).reshape(texts, length, size)

    def _dense(self, at: str, states: Any) -> Any:
        return states @ self._weights[f"{at}weight"].T + self._weights[f"{at}bias"]

    def _normal(self, at: str, states: Any) -> Any:
        np = self._numpy
        states = states - states.mean(axis=-1, keepdims=True)
        spread = np.sqrt((states * states).mean(axis=-1, keepdims=True) + self._config["layer_norm_eps"])
        return states / spread * self._weights[f"{at}weight"] + self._weights[f"{at}bias"]


def _gelu(np: Any, x: Any) -> Any:
    """X · Φ(x); the error function after Abramowitz and Stegun, 7.1.26, exact to seven places."""
    z = np.abs(x) / sqrt(2)
    t = 1 / (1 + 0.3275911 * z)
    series = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))))
    return 0.5 * x * (1 + np.sign(x) * (1 - series * np.exp(-z * z)))


def _read_weights(np: Any, file: Path) -> Mapping[str, Any]:
    """The arrays of a safetensors file by name, mapped rather than copied where their type allows."""
    with file.open("rb") as opened:
        length = int.from_bytes(opened.read(_LENGTH_BYTES), "little")
        header: dict[str, Any] = json.loads(opened.read(length))
    numbers = np.memmap(file, np.uint8, "r", offset=_LENGTH_BYTES + length)
    weights: dict[str, Any] = {}
    for name, about in header.items():
        if about.get("dtype") in _TYPES:
            start, end = about["data_offsets"]
            flat = numbers[start:end].view(_TYPES[about["dtype"]])
            if prod(about["shape"]) != flat.size:
                raise ToolsetError(f"{file}: {name} has {flat.size} numbers, not {about['shape']}")
            weights[name.removeprefix("bert.")] = flat.reshape(about["shape"]).astype(np.float32, copy=False)
    return weights
