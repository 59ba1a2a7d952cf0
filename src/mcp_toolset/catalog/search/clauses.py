"""`clauses_of`: the clauses of a query, each of which may need a tool of its own.

`Ranking` scores the clauses of a long query beside the whole. The text is split at the ends of sentences, at
commas and at `and`, `then` and `also`; too short a clause is joined to its neighbour.
"""

from __future__ import annotations

import re
from typing import Final

from mcp_toolset.catalog.search.text import telling_words

_BETWEEN: Final = re.compile(
    r"[.!?;]+(?=\s|$)|\n+|[。！？；，、]|,(?=\s)|\s(?:and|then|also)(?=\s)", re.IGNORECASE
)
# With fewer telling words than this a clause says too little for a search.
_SHORTEST = 3
_MOST = 8
_MOST_CUTS = 32


def clauses_of(query: str) -> list[str]:
    """At most eight clauses of a query, in order; none if it has fewer than two."""
    clauses: list[str] = []
    for part in filter(None, map(str.strip, _BETWEEN.split(query, _MOST_CUTS))):
        if clauses and (_is_short(part) or _is_short(clauses[-1])):
            clauses[-1] = f"{clauses[-1]} {part}"
        else:
            clauses.append(part)
    return clauses[:_MOST] if len(clauses) > 1 else []


def _is_short(clause: str) -> bool:
    return len(telling_words(clause)) < _SHORTEST
