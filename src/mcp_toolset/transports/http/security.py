"""`AllowedNames`: the `Host` and `Origin` values that are accepted.

A page of another origin can make a browser send requests to a server on loopback, by a name of its own that
leads there (DNS rebinding). The browser says which name, and which page, it was.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Final, Self

_LOOPBACK: Final = ("127.0.0.1", "localhost", "[::1]")
_KNOWN: Final = 16
"""Values of one header whose check is remembered."""


@dataclass(frozen=True, slots=True)
class AllowedNames:
    """What `Host` and `Origin` may say; a name that ends in `:*` stands for any port.

    Attributes:
        hosts: Values of `Host`.
        origins: Values of `Origin`.
    """

    hosts: tuple[str, ...]
    origins: tuple[str, ...]

    @classmethod
    def with_loopback(cls, hosts: Sequence[str] = (), origins: Sequence[str] = ()) -> Self:
        """The names of loopback, with any port and without, pages from there, and what is given besides."""
        local = [name for host in _LOOPBACK for name in (host, f"{host}:*")]
        return cls((*local, *hosts), (*(f"http://{name}" for name in local), *origins))


class NameCheck:
    """Says whether a request may be taken, by its `Host` and `Origin`."""

    def __init__(self, names: AllowedNames) -> None:
        """Accept `names` alone."""
        # Nearly all requests have one and the same host, and origin.
        self._is_host = lru_cache(_KNOWN)(partial(_allowed, patterns=names.hosts))
        self._is_origin = lru_cache(_KNOWN)(partial(_allowed, patterns=names.origins))

    def refusal(self, fields: Mapping[bytes, bytes]) -> tuple[int, str] | None:
        """The status and the text that a request is refused with; `None` if it is accepted."""
        if not self._is_host(fields.get(b"host", b"")):
            return 421, "Invalid Host header"
        origin = fields.get(b"origin")
        if origin and not self._is_origin(origin):
            return 403, "Invalid Origin header"
        return None


def _allowed(raw: bytes, patterns: Sequence[str]) -> bool:
    value = raw.decode("latin-1")
    return any(
        value == pattern or (pattern.endswith(":*") and _has_port(value, pattern[:-1]))
        for pattern in patterns
    )


def _has_port(value: str, start: str) -> bool:
    return value.startswith(start) and value[len(start) :].isdigit()
