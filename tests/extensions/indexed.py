"""`indexed`: another index of extensions for the time of a test."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from mcp_toolset import _index


@contextmanager
def indexed(rows: Mapping[str, Mapping[str, Any]]) -> Generator[None]:
    """Have the extensions of these folders, by what is declared in each; see `mcp_toolset.extensions`."""
    caches = (_index.homes, _index.owners, _index.rule_keys, _index.marked)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_index, "rows", lambda: rows)
        for one in caches:
            one.cache_clear()
        yield
    for one in caches:
        one.cache_clear()
