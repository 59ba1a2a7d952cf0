"""A sentence model of the host's own: in the background, kept by content, and never waited for."""

import threading
from collections.abc import Sequence
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from mcp_toolset import ToolDefinition, ToolsetError
from mcp_toolset.search import (
    CatalogEntry,
    Embedder,
    EmbeddingScorer,
    MeaningScorer,
    SearchIndex,
    SentenceTransformerEmbedder,
    VectorFile,
)
from mcp_toolset.tools.call import SearchHit

PATIENCE = 30.0
MEANINGS = {"refund": 0, "money": 0, "geld": 0, "weather": 1, "regen": 1, "file": 2}


class Glossary:
    """An embedder that knows a few words, and waits where a test tells it to."""

    name = "glossary-1"

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.texts: list[str] = []

    def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        assert self.gate.wait(PATIENCE)
        self.texts += texts
        return [self._vector(text) for text in texts]

    def _vector(self, text: str) -> list[float]:
        vector = [0.01, 0.01, 0.01, 0.1]
        for word, place in MEANINGS.items():
            vector[place] += word in text.lower()
        return vector


def entry(name: str, description: str = "") -> CatalogEntry:
    return CatalogEntry(ToolDefinition(name, description), name)


TOOLS = [entry("refund", "Pay back."), entry("weather", "The sky."), entry("file_read", "Contents.")]


def first(index: SearchIndex, query: str) -> str | None:
    return next((hit.name for hit in index.search(query)), None)


def test_h19_an_embedder_decides_once_the_catalog_is_embedded() -> None:
    scorer = EmbeddingScorer(Glossary())
    index = SearchIndex(TOOLS, scorer=scorer)
    assert scorer.settle(PATIENCE)
    assert (first(index, "Geld"), first(index, "Regen")) == ("refund", "weather")
    index.remove(["weather"])
    assert first(index, "Regen") != "weather"


def test_h19_no_query_waits_for_a_catalog_to_be_embedded() -> None:
    embedder = Glossary()
    embedder.gate.clear()
    scorer = EmbeddingScorer(embedder)
    index = SearchIndex(TOOLS, scorer=scorer)
    assert not scorer.settle(0)
    assert first(index, "will it rain in the weather to come") == "weather"
    assert first(index, "Geld") is None
    index.remove(["file_read"])
    embedder.gate.set()
    assert scorer.settle(PATIENCE)
    assert first(index, "Geld") == "refund"
    assert "file_read" not in {hit.name for hit in index.search("file", limit=100)}


def test_h20_what_was_embedded_once_is_kept_by_content(tmp_path: Path) -> None:
    kept = VectorFile(tmp_path / "vectors.db")
    before = EmbeddingScorer(Glossary(), cache=kept)
    SearchIndex(TOOLS, scorer=before)
    assert before.settle(PATIENCE)
    kept.close()

    again, embedder = VectorFile(tmp_path / "vectors.db"), Glossary()
    scorer = EmbeddingScorer(embedder, cache=again)
    index = SearchIndex([*TOOLS[:2], entry("file_read", "Other contents.")], scorer=scorer)
    assert scorer.settle(PATIENCE)
    assert len(embedder.texts) == 1 and "Other contents" in embedder.texts[0]
    assert first(index, "Geld") == "refund"
    again.close()


def test_h20_vectors_of_another_model_are_not_taken() -> None:
    cache: dict[str, bytes] = {}
    one, other = Glossary(), Glossary()
    other.name = "glossary-2"
    for embedder in (one, other):
        scorer = EmbeddingScorer(embedder, cache=cache)
        SearchIndex(TOOLS, scorer=scorer)
        assert scorer.settle(PATIENCE)
        assert len(embedder.texts) == len(TOOLS)


def test_h20_a_file_that_holds_something_else_is_named_and_left(tmp_path: Path) -> None:
    foreign = tmp_path / "notes.txt"
    foreign.write_text("These are notes, and no database. " * 50)
    with pytest.raises(ToolsetError, match="notes.txt cannot hold vectors"):
        VectorFile(foreign)
    assert foreign.read_text().startswith("These are notes")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_h19_the_built_in_table_goes_on_where_the_model_fails() -> None:
    class Broken(Glossary):
        def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
            raise ValueError("no model today")

    scorer = EmbeddingScorer(Broken())
    index = SearchIndex(TOOLS, scorer=scorer)
    assert not scorer.settle(PATIENCE)
    assert first(index, "will it rain in the weather to come") == "weather"


def test_h19_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "sentence_transformers", None)
    with pytest.raises(ToolsetError, match=r"install mcp-toolset\[embeddings\]"):
        SentenceTransformerEmbedder("some-model")


class Slow(Glossary):
    """Embeds the catalog at once, and a query only when the gate is open."""

    def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        if any(one.public_name in text for one in TOOLS for text in texts):
            return [self._vector(text) for text in texts]
        return super().embed(texts)


def slow_index(embedder: Embedder, timeout: float) -> SearchIndex:
    scorer = EmbeddingScorer(embedder, timeout=timeout)
    index = SearchIndex(TOOLS, scorer=scorer)
    assert scorer.settle(PATIENCE)
    return index


@pytest.mark.anyio
async def test_h19_an_event_loop_goes_on_while_a_query_is_embedded() -> None:
    embedder = Slow()
    embedder.gate.clear()
    index = slow_index(embedder, PATIENCE)
    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(index.read, "Geld")
            # The loop would never come here if the model held it up: nobody else opens the gate.
            await anyio.lowlevel.checkpoint()
            embedder.gate.set()
    assert [hit.name for hit in index.search("Geld", wait=False)][:1] == ["refund"]


@pytest.mark.anyio
async def test_h19_a_model_that_takes_too_long_leaves_the_query_to_the_table() -> None:
    embedder = Slow()
    embedder.gate.clear()
    index = slow_index(embedder, 0.01)
    with anyio.fail_after(PATIENCE):
        for _ in range(3):
            await index.read("Geld")
            await index.read("the weather")
    assert index.search("Geld", wait=False) == []
    assert [hit.name for hit in index.search("the weather", wait=False)] == ["weather"]
    embedder.gate.set()


def test_h19_a_model_that_fails_on_a_query_leaves_it_to_the_table(caplog: pytest.LogCaptureFixture) -> None:
    class Moody(Slow):
        def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
            if texts == ["Regen"]:
                raise ValueError("no rain today")
            if texts == ["Schnee"]:
                return [[float("nan")] * 4]
            return super().embed(texts)

    index = slow_index(Moody(), PATIENCE)
    assert first(index, "Regen") is None
    assert first(index, "Schnee") is None
    assert "glossary-1 could not read a query" in caplog.text
    assert first(index, "Geld") == "refund"


def test_h19_a_query_is_embedded_once_and_few_are_kept() -> None:
    embedder = Slow()
    index = slow_index(embedder, PATIENCE)
    for query in ("Geld", *(f"Regen {number}" for number in range(200)), "Regen 199"):
        first(index, query)
    assert len(embedder.texts) == 201
    assert first(index, "Geld") == "refund"
    assert len(embedder.texts) == 202


def test_h19_the_model_and_the_table_rank_together_after_changes_as_at_once() -> None:
    many = [entry(f"{one.public_name}_{n}", f"Sky {n} money") for one in TOOLS for n in range(60)]
    gone = {f"file_read_{n}" for n in range(0, 60, 7)}
    cloud = entry("cloud", "The weather above.")
    found: list[list[SearchHit]] = []
    for tools in ([*TOOLS, *many], [cloud, *(tool for tool in many if tool.public_name not in gone), *TOOLS]):
        scorer = EmbeddingScorer(Glossary())
        index = SearchIndex(tools, scorer=scorer)
        assert scorer.settle(PATIENCE)
        index.remove(gone)
        index.add([cloud])
        assert scorer.settle(PATIENCE)
        asked = ("money", "Regen", "clouds and money", "file_read_3", "天気")
        found.append([hit for query in asked for hit in index.search(query, limit=100)])
    assert found[0] == found[1]
    assert {hit.name for hit in found[0]} >= {"cloud", "refund"}


def test_h19_a_model_that_has_all_the_say_is_not_swayed_by_the_table() -> None:
    scores: dict[float, float] = {}
    for part in (0.0, 1.0):
        scorer = EmbeddingScorer(Glossary(), part=part)
        scorer.add([entry("plane", "Flights to another city.")])
        assert scorer.settle(PATIENCE)
        scorer.read("travel by air")
        scores[part] = scorer.best("travel by air", 1).get("plane", 0.0)
    assert scores[0.0] > MeaningScorer.enough / 2 and scores[0.0] != scores[1.0]
