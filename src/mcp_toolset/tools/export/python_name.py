"""`python_name`: the name of a tool as a function in Python; `Functions`: several tools by these names."""

from __future__ import annotations

import builtins
import hashlib
import keyword
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Final

_UNSAFE: Final = re.compile(r"[^0-9A-Za-z_]+")
_SAFE: Final = re.compile(r"[A-Za-z][0-9A-Za-z_]*")
_MODULES: Final = frozenset({"asyncio", "collections", "datetime", "json", "math", "random", "re", "typing"})
_TAKEN: Final = frozenset(dir(builtins)) | frozenset(keyword.kwlist) | _MODULES
"""Names that mean something else in a snippet: a function of such a name would be shadowed."""

_MARKS: Final = (4, 8, 16, 64)
"""Lengths of the digest in a name that several tools would have: the first with which all differ."""


def python_name(name: str) -> str:
    """A name for a tool that Python code can call, which depends on the name of the tool alone.

    `get-weather` becomes `get_weather`, `list` becomes `list_`; a name without a letter becomes `tool_` and
    a digest.
    """
    plain = _UNSAFE.sub("_", name).strip("_") if not _SAFE.fullmatch(name) else name
    if not any(map(str.isalpha, plain)):
        return f"tool_{_digest(name)}"
    if not plain[0].isalpha():
        plain = f"tool_{plain}"
    return f"{plain}_" if plain in _TAKEN else plain


class Functions:
    """The functions of several tools.

    Attributes:
        tools: The public name of each tool, by the name of its function.
        ambiguous: The names that several tools would have, with the names that their functions have instead.
    """

    def __init__(self, names: Iterable[str]) -> None:
        """Name tools by their public names; no function stands for two tools."""
        wanted: dict[str, list[str]] = {}
        for name in dict.fromkeys(names):
            wanted.setdefault(python_name(name), []).append(name)
        self.tools: dict[str, str] = {plain: own[0] for plain, own in wanted.items() if len(own) == 1}
        self.ambiguous: dict[str, Mapping[str, str]] = {}
        for plain, own in wanted.items():
            if len(own) > 1:
                marked = _marked(plain, own, wanted.keys() | self.tools.keys())
                self.ambiguous[plain] = marked
                self.tools |= marked


def _marked(plain: str, names: Collection[str], taken: Collection[str]) -> Mapping[str, str]:
    """Tools by names with a digest; empty if a server has named its tools so that none is left."""
    for length in _MARKS:
        marked = {f"{plain}_{_digest(name, length)}": name for name in names}
        if len(marked) == len(names) and not any(name in taken for name in marked):
            return marked
    return {}


def _digest(name: str, length: int = _MARKS[0]) -> str:
    return hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:length]
