"""Names that a provider accepts, unique, so that a table maps each back to its tool."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from itertools import count
from typing import Final

from mcp_toolset.tools.core.names import qualified

_OUTSIDE: Final = re.compile(r"[^A-Za-z0-9_]")


def provider_names(
    names: Iterable[str], legal: re.Pattern[str], reserved: Collection[str] = ()
) -> dict[str, str]:
    """A name that matches `legal` for each of `names`, all different, none of them `reserved`.

    A name that matches is kept. Another is altered and gets a digest of the original, so that the same name
    is altered in the same way in every request.
    """
    listed = list(names)
    kept = {name: name for name in listed if legal.fullmatch(name) and name not in reserved}
    taken = {*kept, *reserved}
    for name in listed:
        if name not in kept:
            kept[name] = _altered(name, taken)
            taken.add(kept[name])
    return {name: kept[name] for name in listed}


def _altered(name: str, taken: Collection[str]) -> str:
    stem = _OUTSIDE.sub("_", name)
    if not stem or stem[0].isdigit():
        stem = f"_{stem}"
    identities = (name if attempt == 0 else f"{name}\0{attempt}" for attempt in count())
    return next(made for identity in identities if (made := qualified(stem, identity)) not in taken)
