"""Ranking by a sentence model of the host's choice: better than the built-in table, and slower.

A catalog is embedded in the background, by a thread that lives only while there is something to embed.
Until it is done the built-in table answers, so no query waits. What was embedded once is kept by content.
Then both have a say: the model knows more, and the table was made for tools.
A query is embedded by `read`, in the thread of whoever asks or in another while an event loop goes on.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from array import array
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from importlib import import_module
from itertools import islice
from math import isfinite
from typing import Any, Protocol, final

from mcp_toolset.catalog.search.entry import CatalogEntry
from mcp_toolset.catalog.search.meaning import MeaningScorer, opinion, said_of
from mcp_toolset.catalog.search.model_blend import Blend
from mcp_toolset.catalog.search.packed_vectors import Lanes, Likeness, numpy_if_present
from mcp_toolset.errors import ToolsetError

_log = logging.getLogger("mcp_toolset.search")

_QUERY_CHARACTERS = 2_000
_QUERIES = 128
_PATIENCE = 2.0
_BATCH = 32
_ENOUGH = 0.2
_SHARE = 0.8
_MODELS_PART = 0.5


class Embedder(Protocol):
    """Turns texts into vectors that lie close together where the texts mean the same."""

    @property
    def name(self) -> str:
        """Which model this is, in which version: only vectors of one name are compared or kept together."""
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
        """See `Embedder`."""
        return self._model.encode(list(texts), show_progress_bar=False).tolist()


class VectorCache(Protocol):
    """Vectors by the digest of what was embedded; a dictionary will do, `VectorFile` outlives the process."""

    def get(self, digest: str, /) -> bytes | None:
        """The vector kept under a digest, if any."""
        ...

    def __setitem__(self, digest: str, vector: bytes, /) -> None:
        """Keep a vector."""
        ...


@final
class EmbeddingScorer:
    """Cosines by an embedder; give it to `SearchIndex(scorer=…)`.

    Attributes:
        enough: See `Scorer`. Both models are scaled to it, so that a query may meet either.
        patience: See `ReadingScorer`.
    """

    enough = MeaningScorer.enough

    def __init__(
        self,
        embedder: Embedder,
        *,
        cache: VectorCache | None = None,
        enough: float = _ENOUGH,
        part: float = _MODELS_PART,
        patience: float = _PATIENCE,
        numpy: Any = None,
    ) -> None:
        """Start empty.

        Args:
            embedder: The model.
            cache: Where vectors are kept by content; in memory if `None`.
            enough: The cosine at which this model makes a tool worth showing; 0.2 suits MiniLM.
            part: How much of the opinion is the model's, from 0 to 1; the built-in table has the rest, as
                far as it can read a query. Give a model that is much larger than MiniLM more.
            patience: Seconds that a query waits for the model at most; then the built-in table answers.
            numpy: As for `MeaningScorer`.
        """
        self.patience = patience
        self._part = part
        self._embedder = embedder
        self._cache: VectorCache = {} if cache is None else cache
        self._scale = self.enough / enough
        self._numpy = numpy_if_present() if numpy is None else numpy or None
        self._table = MeaningScorer(numpy=numpy)
        self._lanes: Lanes | None = None
        self._waiting: dict[str, tuple[str, str]] = {}
        self._worker: threading.Thread | None = None
        self._queries: dict[str, Sequence[float]] = {}
        self._state, self._model = threading.RLock(), threading.Lock()

    @property
    def numpy(self) -> Any:
        """The module it compares with, or `None`."""
        return self._numpy

    @property
    def share(self) -> float:
        """See `Scorer`. A sentence model has more to say than the table that stands in for it."""
        return self._table.share if self._waiting else _SHARE

    def add(self, entries: Iterable[CatalogEntry]) -> None:
        """Take in entries whose public names are not indexed yet, and start to embed what is not kept."""
        entries = list(entries)
        with self._state:
            self._table.add(entries)
            for entry in entries:
                text = said_of(entry, stressed=False)
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
        """Forget entries."""
        names = list(public_names)
        with self._state:
            self._table.remove(names)
            for name in names:
                self._waiting.pop(name, None)
                if self._lanes is not None:
                    self._lanes.drop(name)

    def best(
        self, query: str, count: int, among: AbstractSet[str] | None = None, also: Iterable[str] = ()
    ) -> Mapping[str, float]:
        """By the embedder if all is embedded and the query has been read, else by the built-in table."""
        likeness = self.compare(query)
        return {} if likeness is None else opinion(likeness, count, among, also)

    def compare(self, query: str) -> Likeness | None:
        """The likeness of every tool to the query, on the scale of `enough`; `None` if nobody can tell."""
        with self._state:
            vector = self._queries.get(query[:_QUERY_CHARACTERS])
            by_table = self._table.compare(query)
            if vector is None or self._waiting or not self._lanes:
                return by_table
            by_model = self._lanes.cosines(vector, self._scale)
            return by_model if by_table is None else Blend(by_model, by_table, self._part)

    def must_read(self, query: str) -> bool:
        """See `ReadingScorer`."""
        query = query[:_QUERY_CHARACTERS]
        return bool(query.strip() and self._lanes) and not self._waiting and query not in self._queries

    def read(self, query: str) -> None:
        """See `ReadingScorer`. A model that fails is reported in the log."""
        query = query[:_QUERY_CHARACTERS]
        if not self._model.acquire(timeout=self.patience):
            return
        try:
            (vector,) = self._embedder.embed([query])
            if not all(map(isfinite, vector)):
                raise ValueError("its vector has numbers that are none")
        # The model is the host's and may raise anything; the built-in table goes on without it.
        except Exception:
            _log.exception("%s could not read a query; the built-in table answers", self._embedder.name)
            return
        finally:
            self._model.release()
        with self._state:
            while len(self._queries) >= _QUERIES:
                del self._queries[next(iter(self._queries))]
            self._queries[query] = vector

    def settle(self, timeout: float | None = None) -> bool:
        """Wait until all is embedded, for so many seconds at most; whether it is."""
        worker = self._worker
        if worker is not None:
            worker.join(timeout)
        return not self._waiting

    def _digest(self, text: str) -> str:
        return hashlib.sha256(f"{self._embedder.name}\0{text}".encode("utf-8", "replace")).hexdigest()

    def _work(self) -> None:
        """Embed until nothing waits. If the model fails the rest waits, and the built-in table goes on."""
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
        # While the model was at it the tool may have gone, or changed.
        if self._waiting.get(name, ("",))[0] == digest:
            self._put(name, vector)
            del self._waiting[name]

    def _put(self, name: str, vector: Sequence[float]) -> None:
        if self._lanes is None:
            self._lanes = Lanes(len(vector), numpy=self._numpy)
        self._lanes.put(name, vector)
