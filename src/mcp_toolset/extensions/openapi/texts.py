"""Names and texts of operations, for models."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from mcp_toolset.extensions.openapi.reading import text_of
from mcp_toolset.extensions.openapi.schemas import brief
from mcp_toolset.tools.definition import qualified

TITLE: Final = 80
"""Characters of a title, and of the first sentence of a description."""

_DESCRIPTION: Final = 700
_NAME: Final = 64


def names_of(said: Sequence[tuple[str, str, str]]) -> list[str]:
    """The names of tools for operations, each an id, a method and a path: unique, at most 64 characters."""
    wished = [_wished(*one) for one in said]
    counts = Counter(wished)
    names = list[str]()
    for (own, method, path), wish in zip(said, wished, strict=True):
        name = wish
        if counts[wish] > 1 or len(wish) > _NAME:
            plain = _legal(own) if own else f"{method}{_legal(path)}"
            name = plain if counts[wish] > 1 and plain != wish and len(plain) <= _NAME else wish
            if counts[name] > 1 or len(name) > _NAME:
                name = qualified(name, f"{method} {path}", _NAME)
        names.append(name)
    taken = Counter(names)
    return [
        name if taken[name] == 1 else qualified(name, f"{method} {path}", _NAME)
        for name, (_, method, path) in zip(names, said, strict=True)
    ]


def _wished(own: str, method: str, path: str) -> str:
    if not own:
        words = re.sub(r"\{([^{}]+)\}", r"by_\1", path)
        return _legal(f"{method}_{words}")
    # What FastAPI appends to the name of a function.
    plain = re.sub(r"\W", "_", path)
    generated = f"{plain}_{method}"
    if own.endswith(generated) and len(own) > len(generated):
        return _legal(own.removesuffix(generated))
    return _legal(own)


def _legal(text: str) -> str:
    return re.sub(r"_{2,}", "_", re.sub(r"[^A-Za-z0-9_-]", "_", text)).strip("_") or "operation"


def description(method: str, path: str, table: Mapping[str, Any]) -> str:
    """The text for a model: a first sentence of at most 80 characters, and more."""
    summary = brief(text_of(table.get("summary")), 2000)
    about = brief(text_of(table.get("description")), _DESCRIPTION)
    whole = summary or about
    if not whole:
        # A path that is long is cut.
        first, rest = brief(f"{method.upper()} {path}", TITLE - 1), ""
    else:
        first, rest = _sentence(whole)
        rest = " ".join(filter(None, (rest, about if summary and about != summary else "")))
    parts = [first if first[-1:] in ".!?…" else f"{first}."]
    if rest:
        parts.append(brief(rest, _DESCRIPTION))
    if table.get("deprecated") is True:
        parts.append("Deprecated.")
    return "\n".join(parts)


def _sentence(text: str) -> tuple[str, str]:
    """The first sentence of a text, in 80 characters at most, and the rest."""
    end = re.search(r"[.!?](?=\s|$)", text)
    first = text[: end.end()] if end is not None else text
    if len(first) <= TITLE - (end is None):
        return first, text[len(first) :].strip()
    return brief(text, TITLE), text


def hints(method: str) -> dict[str, Any]:
    if method in ("get", "head", "options"):
        return {"readOnlyHint": True, "openWorldHint": True}
    found: dict[str, Any] = {"readOnlyHint": False, "openWorldHint": True}
    if method in ("put", "delete"):
        found["idempotentHint"] = True
    if method in ("put", "delete", "patch"):
        found["destructiveHint"] = True
    return found
