"""Sentence models in the search of deferred tools, and the files that keep their vectors."""

MENDS = {"scorer": " such as EmbeddingScorer(…)"}
