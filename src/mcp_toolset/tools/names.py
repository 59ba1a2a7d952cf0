"""Public tool names: an alphabet and a length that every client accepts (H23).

The protocol allows 128 of `[A-Za-z0-9_.-]`; widely used clients accept 64 of `[A-Za-z0-9_-]`. A name
that must be altered gets a short digest of what it was, so that two names never become one. Names
are mapped back through a view, never by parsing.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final

from mcp_toolset.errors import DefinitionError

MAX_NAME_LENGTH: Final = 64
_DIGEST_LENGTH: Final = 7
_OUTSIDE: Final = re.compile(r"[^A-Za-z0-9_-]")
_ALLOWED: Final = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_PREFIX: Final = re.compile(r"[A-Za-z0-9_-]{1,32}")


def public_name(name: str, *, prefix: str = "") -> str:
    """A name that every client accepts, made from a tool's own name.

    Args:
        name: Any non-empty string.
        prefix: Put before it with an underscore; checked by `check_prefix`.

    Returns:
        `prefix_name` as it is when it fits; else its legal part, cut, with a digest of the whole.
    """
    whole = f"{prefix}_{name}" if prefix else name
    legal = _OUTSIDE.sub("_", whole)
    if legal == whole and len(legal) <= MAX_NAME_LENGTH:
        return whole
    return qualified(legal, whole)


def qualified(name: str, identity: str) -> str:
    """`name`, cut as needed, with a digest of `identity` that tells it from others of that name."""
    digest = hashlib.sha256(identity.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST_LENGTH]
    return f"{name[: MAX_NAME_LENGTH - _DIGEST_LENGTH - 1]}_{digest}"


def check_name(name: str, place: str) -> str:
    """A name that somebody chose for a tool, if the protocol allows it (server/tools, "Tool Names"; H9).

    Raises:
        DefinitionError: it is empty, longer than 128, or has a character outside `[A-Za-z0-9_.-]`;
            the message starts with `place`.
    """
    if not _ALLOWED.fullmatch(name):
        raise DefinitionError(
            f"{place}: a tool cannot be named {name!r}; choose a name of 1 to 128 of A-Z a-z 0-9 _ . -"
        )
    return name


def check_prefix(prefix: str) -> str:
    """The prefix, if it can start a tool's name.

    Raises:
        DefinitionError: it is empty, longer than 32, or has a character outside `[A-Za-z0-9_-]`.
    """
    if not _PREFIX.fullmatch(prefix):
        raise DefinitionError(f"prefix {prefix!r} cannot start a tool's name: use 1 to 32 of A-Z a-z 0-9 _ -")
    return prefix


def prefix_from(name: str) -> str:
    """A usable prefix made from a server's name: its legal part, cut, told apart by a digest if altered."""
    legal = _OUTSIDE.sub("_", name)
    if legal == name and _PREFIX.fullmatch(name):
        return name
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST_LENGTH]
    return f"{legal[:24]}_{digest}"
