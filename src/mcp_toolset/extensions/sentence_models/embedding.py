"""`EmbeddingScorer`: ranking by a sentence model of the host's choice, better and slower than the table.

Give it to `SearchIndex(scorer=…)`. A background thread embeds the catalog and ends when all tools are
embedded. Until then the built-in table answers, so no query waits. Vectors are cached by the digest of the
text. Afterwards the cosines of model and table are averaged. `read` embeds a query: in the caller's thread,
or in a worker thread when an event loop runs.
"""

from __future__ import annotations

import hashlib
import logging
import sqlite3
import threading
import weakref
from array import array
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from importlib import import_module
from itertools import islice
from math import isfinite
from pathlib import Path
from typing import Any, Protocol, final

from mcp_toolset._numbers import require_positive
from mcp_toolset.catalog.search import meaning
from mcp_toolset.catalog.search.entry import CatalogEntry
from mcp_toolset.catalog.search.text import clauses_of
from mcp_toolset.concurrency.sqlite_file import SqliteFile
from mcp_toolset.errors import ToolsetError

_log = logging.getLogger("mcp_toolset.search")

_QUERY_CHARACTERS = 2_000  # characters of a query that are embedded
_QUERIES = 128  # embedded queries that are cached
_TIMEOUT = 2.0  # seconds that a query waits for the model
_BATCH = 32  # tools that are embedded together
_ENOUGH = 0.2  # the cosine at which MiniLM makes a tool worth showing
_SHARE = 0.8  # the share of a sentence model in a ranking
_MODELS_PART = 0.5  # the weight of the model's cosines, beside the table's


class Embedder(Protocol):
    """Turns texts into vectors; texts of similar meaning get vectors with a high cosine."""

    @property
    def name(self) -> str:
        """The model and its version: only vectors of the same name are compared or cached together."""
        ...

    def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """One vector for each text, all of one length; never called from two threads at once."""
        ...


class SentenceTransformerEmbedder:
    """Any sentence-transformers model; needs `mcp-toolset[embeddings]`."""

    def __init__(self, model: str) -> None:
        """Load a model by its name or path.

        Raises:
            ToolsetError: sentence-transformers is not installed.
        """
        try:
            package = import_module("sentence_transformers")
        except ImportError:
            raise ToolsetError(
                "SentenceTransformerEmbedder needs sentence-transformers; install mcp-toolset[embeddings]"
            ) from None
        self.name = f"sentence-transformers:{model}"
        self._model: Any = package.SentenceTransformer(model)

    def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """The vectors of texts, in their order."""
        return self._model.encode(list(texts), show_progress_bar=False).tolist()


class VectorCache(Protocol):
    """Vectors by the digest of their text: a dictionary, or a `VectorFile`, which outlives the process."""

    def get(self, digest: str, /) -> bytes | None:
        """The vector kept under a digest, if any."""
        ...

    def __setitem__(self, digest: str, vector: bytes, /) -> None:
        """Keep a vector."""
        ...


@final
class EmbeddingScorer:
    """Scores tools by an embedder's cosines, and by the built-in table until all tools are embedded.

    Attributes:
        enough: See `Scorer`. The cosines of both models are scaled to it.
        timeout: See `ReadingScorer`.
    """

    enough = meaning.MeaningScorer.enough

    def __init__(
        self,
        embedder: Embedder,
        *,
        cache: VectorCache | None = None,
        enough: float = _ENOUGH,
        part: float = _MODELS_PART,
        timeout: float = _TIMEOUT,
        english: bool = False,
    ) -> None:
        """Start empty.

        Args:
            embedder: The model.
            cache: The cache of vectors, by the digest of their text; in memory if `None`.
            enough: The cosine at which this model makes a tool worth showing; 0.2 suits MiniLM.
            part: The weight of the model's cosines, from 0 to 1; the built-in table has the rest, for queries
                that it can read. Give a model that is much larger than MiniLM more.
            timeout: Seconds that a query waits for the model at most; then the built-in table answers.
            english: True if the model reads English only; queries in other scripts are then ranked by words.
        """
        require_positive("EmbeddingScorer", timeout=timeout)
        self.timeout = timeout
        self._english = english
        self._part = part
        self._embedder = embedder
        self._cache: VectorCache = {} if cache is None else cache
        self._scale = self.enough / enough
        self._table = meaning.MeaningScorer()
        self._packed: meaning.PackedVectors | None = None
        self._waiting: dict[str, tuple[str, str]] = {}
        self._worker: threading.Thread | None = None
        self._queries: dict[str, Sequence[float]] = {}
        self._state, self._model = threading.RLock(), threading.Lock()

    @property
    def share(self) -> float:
        """The share of the cosines in a ranking; smaller while the built-in table replaces the model."""
        return self._table.share if self._waiting else _SHARE

    def add(self, entries: Iterable[CatalogEntry]) -> None:
        """Index entries whose public names are not indexed yet; embed those whose vectors are not cached."""
        entries = list(entries)
        with self._state:
            self._table.add(entries)
            for entry in entries:
                text = meaning.text_of(entry, name_twice=False)
                digest = self._digest(text)
                kept = self._cache.get(digest)
                if kept is None:
                    self._waiting[entry.public_name] = digest, text
                else:
                    self._put(entry.public_name, array("f", kept))
            if self._waiting and self._worker is None:
                self._worker = threading.Thread(target=self._work, name="mcp-toolset-embedding", daemon=True)
                self._worker.start()

    def remove(self, public_names: Iterable[str]) -> None:
        """Remove entries."""
        names = list(public_names)
        with self._state:
            self._table.remove(names)
            for name in names:
                self._waiting.pop(name, None)
                if self._packed is not None:
                    self._packed.drop(name)

    def best(
        self, query: str, count: int, among: AbstractSet[str] | None = None, also: Iterable[str] = ()
    ) -> Mapping[str, float]:
        """By the embedder if all tools and the query are embedded, else by the built-in table."""
        similarity = self.compare(query, among)
        return {} if similarity is None else meaning.best_cosines(similarity, count, among, also)

    def compare(self, query: str, among: AbstractSet[str] | None = None) -> meaning.Similarity | None:
        """The similarity of every tool to the query, scaled to `enough`; `None` if it cannot be read."""
        if self._english and not meaning.is_latin(query[:_QUERY_CHARACTERS]):
            return None
        with self._state:
            vector = self._queries.get(query[:_QUERY_CHARACTERS])
            by_table = self._table.compare(query, among)
            if vector is None or self._waiting or not self._packed:
                return by_table
            by_model = self._packed.cosines(vector, self._scale, among)
            return by_model if by_table is None else meaning.Blend(by_model, by_table, self._part)

    def must_read(self, query: str) -> bool:
        """True if reading the query now would change the answer."""
        query = query[:_QUERY_CHARACTERS]
        return bool(query.strip() and self._packed) and not self._waiting and query not in self._queries

    def read(self, query: str) -> None:
        """Embed a query. If the model fails, the failure is logged and the built-in table answers."""
        query = query[:_QUERY_CHARACTERS]
        if not self._model.acquire(timeout=self.timeout):
            return
        try:
            texts = [query, *clauses_of(query)]
            vectors = self._embedder.embed(texts)
            if not all(isfinite(number) for vector in vectors for number in vector):
                raise ValueError("a vector has values that are not finite numbers")
        # The model is the host's and may raise anything; the built-in table answers in its place.
        except Exception:
            _log.exception("%s could not read a query; the built-in table answers", self._embedder.name)
            return
        finally:
            self._model.release()
        with self._state:
            self._queries |= zip(texts, vectors, strict=True)
            while len(self._queries) > _QUERIES:
                del self._queries[next(iter(self._queries))]

    def settle(self, timeout: float | None = None) -> bool:
        """Wait until all tools are embedded, at most `timeout` seconds; return whether they are."""
        worker = self._worker
        if worker is not None:
            worker.join(timeout)
        return not self._waiting

    def _digest(self, text: str) -> str:
        return hashlib.sha256(f"{self._embedder.name}\0{text}".encode("utf-8", "replace")).hexdigest()

    def _work(self) -> None:
        try:
            while batch := self._next():
                with self._model:
                    vectors = self._embedder.embed([text for _, _, text in batch])
                with self._state:
                    for (name, digest, _), vector in zip(batch, vectors, strict=True):
                        self._take(name, digest, vector)
        finally:
            with self._state:
                self._worker = None

    def _next(self) -> list[tuple[str, str, str]]:
        with self._state:
            return [(name, *asked) for name, asked in islice(self._waiting.items(), _BATCH)]

    def _take(self, name: str, digest: str, vector: Sequence[float]) -> None:
        self._cache[digest] = array("f", vector).tobytes()
        # The tool may have been removed or changed while the model embedded its text.
        if self._waiting.get(name, ("",))[0] == digest:
            self._put(name, vector)
            del self._waiting[name]

    def _put(self, name: str, vector: Sequence[float]) -> None:
        if self._packed is None:
            self._packed = meaning.PackedVectors(len(vector))
        self._packed.put(name, vector)


_TABLE = "CREATE TABLE vectors (digest TEXT PRIMARY KEY, vector BLOB NOT NULL) WITHOUT ROWID"
_FILE = SqliteFile(b"MTsv", (_TABLE,))


class VectorFile:
    """A `VectorCache` in a file that several processes may share. Close it when done."""

    def __init__(self, path: Path) -> None:
        """Open the file, or create it.

        Raises:
            ToolsetError: It is not an SQLite file, or cannot be opened; it is unchanged.
        """
        self._lock = threading.Lock()
        try:
            self._base = _FILE.open(path)
        except (sqlite3.Error, OSError) as fault:
            raise ToolsetError(f"{path} cannot hold vectors: {fault}; name another, or remove it") from None
        # The scorer of an installed model has no owner that could close its file.
        weakref.finalize(self, self._base.close).atexit = False

    def get(self, digest: str) -> bytes | None:
        """The vector kept under a digest, if any."""
        with self._lock:
            row = self._base.execute("SELECT vector FROM vectors WHERE digest = ?", (digest,)).fetchone()
        return None if row is None else row[0]

    def __setitem__(self, digest: str, vector: bytes) -> None:
        with self._lock:
            self._base.execute("INSERT OR REPLACE INTO vectors VALUES (?, ?)", (digest, vector))

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._base.close()
