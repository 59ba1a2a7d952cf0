"""Names of tools: public ones that every client accepts, stable ids, and importable names of handlers.

The protocol allows 128 of `[A-Za-z0-9_.-]`; widely used clients accept 64 of `[A-Za-z0-9_-]`. A name that
must be altered gets a short digest of the original, so that two names never become one, whichever servers are
up (docs/decisions/0008-names-that-depend-on-nobody-else.md). Names are mapped back through a view, never by
parsing.
"""

from __future__ import annotations

import hashlib
import inspect
import re
import sys
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, Final, cast

from mcp_toolset.errors import DefinitionError

MAX_NAME_LENGTH: Final = 64
_DIGEST_LENGTH: Final = 7
_OUTSIDE: Final = re.compile(r"[^A-Za-z0-9_-]")
_ALLOWED: Final = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_PREFIX: Final = re.compile(r"[A-Za-z0-9_-]{1,32}")
_PUBLIC: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_DIGESTED: Final = re.compile(r"_[0-9a-f]{7}$")
_SEPARATED: Final = re.compile(r"[./:]")
_SEPARATORS: Final = "_-./:"
_SHORTEST: Final = 24


def public_name(name: str, *, prefix: str = "", limit: int = MAX_NAME_LENGTH) -> str:
    """A name that every client accepts: `prefix_name`, or its legal characters, cut, with a digest."""
    whole = f"{prefix}_{name}" if prefix else name
    legal = _OUTSIDE.sub("_", whole)
    if legal == whole and len(legal) <= limit:
        return whole
    return qualified(legal, whole, limit)


def mounted_name(prefix: str, name: str) -> str:
    """The name of a server's tool in a hub, which depends on these two only.

    `git` and `log` make `git_log`; so do `git` and `git_log`, since a prefix that the name has already is
    not doubled. A name without digest can be read in one way only: up to its first `__`, or else its
    first `_`, it is the prefix. So a prefix with an underscore is followed by two (`my_git__log`),
    and `a` + `b_c` and `a_b` + `c` are `a_b_c` and `a_b__c`. A pair for which neither is clear gets a
    digest, and so does a name that looks as if it had one.
    """
    rest = _without(prefix, name)
    legal = _OUTSIDE.sub("_", rest)
    for joint in ("_", "__"):
        whole = f"{prefix}{joint}{rest}"
        parts = whole.partition("__" if "__" in whole else "_")
        clear = parts[::2] == (prefix, rest) and not _DIGESTED.search(whole)
        if clear and legal == rest and len(whole) <= MAX_NAME_LENGTH:
            return whole
    return qualified(f"{prefix}{'__' if '_' in prefix else '_'}{legal}", f"{prefix}\n{rest}")


def qualified(name: str, identity: str, limit: int = MAX_NAME_LENGTH) -> str:
    """`name`, cut as needed, with a digest of `identity`, which keeps names apart that would be equal."""
    digest = hashlib.sha256(identity.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST_LENGTH]
    return f"{name[: limit - _DIGEST_LENGTH - 1]}_{digest}"


def readable_name(name: str, own: str) -> str | None:
    """A name without its digest, if only the separators in `own`, the tool's name at its server, caused it.

    `quiet.note` becomes `quiet_note_0a1b2c3`, so that it never collides with `quiet_note`. If no tool is
    named `quiet_note`, that name is used: see `catalog.registry.name_assignment`.
    """
    if not _DIGESTED.search(name):
        return None
    plain, stem = _SEPARATED.sub("_", own), name[: -_DIGEST_LENGTH - 1]
    altered = plain != own and not _OUTSIDE.search(plain) and "__" not in plain
    return stem if altered and stem.endswith(plain) and not _DIGESTED.search(stem) else None


def limit_beside(client_prefix: str) -> int:
    """The number of characters left for a name beside a client's prefix, such as `mcp__SERVER__`."""
    limit = MAX_NAME_LENGTH - len(client_prefix)
    if limit < _SHORTEST:
        raise DefinitionError(
            f"client prefix {client_prefix!r} leaves {limit} of {MAX_NAME_LENGTH} characters for a tool's "
            f"name; choose one of at most {MAX_NAME_LENGTH - _SHORTEST}"
        )
    return limit


def check_public_name(name: str, place: str) -> str:
    """A name to serve a tool under; `DefinitionError` unless it is 1 to 64 of `[A-Za-z0-9_-]`."""
    if not _PUBLIC.fullmatch(name):
        raise DefinitionError(
            f"{place}: a tool cannot be served as {name!r}; choose a name of 1 to 64 of A-Z a-z 0-9 _ -"
        )
    return name


def check_name(name: str, place: str) -> str:
    """A name that the protocol allows (server/tools, "Tool Names"); `DefinitionError` otherwise."""
    if not _ALLOWED.fullmatch(name):
        raise DefinitionError(
            f"{place}: a tool cannot be named {name!r}; choose a name of 1 to 128 of A-Z a-z 0-9 _ . -"
        )
    return name


def check_prefix(prefix: str) -> str:
    """The prefix, if it can start a tool's name; `DefinitionError` otherwise."""
    if not _PREFIX.fullmatch(prefix):
        raise DefinitionError(f"prefix {prefix!r} cannot start a tool's name: use 1 to 32 of A-Z a-z 0-9 _ -")
    return prefix


def plain_prefix(prefix: str) -> str:
    return check_prefix(re.sub("_+", "_", check_prefix(prefix)).rstrip("_"))


@lru_cache(1_000)
def prefix_from(name: str) -> str:
    legal = re.sub("_+", "_", _OUTSIDE.sub("_", name)).rstrip("_")
    if legal == name and _PREFIX.fullmatch(name):
        return name
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST_LENGTH]
    return f"{legal[:24].rstrip('_')}_{digest}"


def _without(prefix: str, name: str) -> str:
    head, joint, rest = name[: len(prefix)], name[len(prefix) : len(prefix) + 1], name[len(prefix) + 1 :]
    return rest if head.lower() == prefix.lower() and joint and joint in _SEPARATORS and rest else name


DECLARED: Final = "__mcp_toolset_tool__"  # The attribute of a class with `@tool_input` that has its tool.


def declared_tool(model: object) -> Any:
    return vars(model).get(DECLARED) if isinstance(model, type) else None


def default_id(name: str, function: object) -> str:
    """The default id of a tool, whatever its prefix: `module:function` for a function, else `tool:name`."""
    path = _path_of(function)
    if path is None:
        return f"tool:{name}"
    return path if path.rsplit(":", 1)[-1].split(".")[-1] == name else f"{path}#{name}"


def handler_name(handler: object) -> str | None:
    if handler is None or isinstance(handler, str):
        return handler
    path = _path_of(handler)
    if path is None or "<" in path or path.startswith("__main__:"):
        return None
    module, _, steps = path.partition(":")
    found: Any = sys.modules.get(module)
    for step in steps.split("."):
        found = getattr(found, step, None)
    return path if found is handler or getattr(found, "function", None) is handler else None


def _path_of(function: object) -> str | None:
    inner: Any = inspect.unwrap(cast("Callable[..., Any]", function)) if callable(function) else function
    while isinstance(inner, partial):
        inner = inner.func  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    module, name = getattr(inner, "__module__", None), getattr(inner, "__qualname__", None)
    return f"{module}:{name}" if isinstance(module, str) and isinstance(name, str) else None


FIXED_TOOLS: Final = ("search_tools", "resolve_tools", "call_tool", "call_read_only_tool")
"""In the order they are listed."""
