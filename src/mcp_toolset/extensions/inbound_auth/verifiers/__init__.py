"""The verifiers: each module is a key of `auth` in a file, by the `VerifierKind` that it has as `KIND`."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, ClassVar, Final, Self, cast

from mcp_toolset.config.extensions import NamedCaller
from mcp_toolset.config.jsonc import Place
from mcp_toolset.config.tables import LIST_OF_TEXTS, TEXTS, Schema, Table, prepared
from mcp_toolset.errors import ConfigError, DefinitionError
from mcp_toolset.security.authenticator import RememberedVerifier

Expand = Callable[..., str]
"""Expands the references in a text; takes the steps to the text too."""


def listed(value: object) -> Any:
    return cast("Any", value) if isinstance(value, list) else [value]


def _worded(value: object) -> object:
    return value.split() if isinstance(value, str) else value


WORDS: Final[Schema] = prepared(_worded, TEXTS)
"""A list of texts, or one text of words."""

WORDS_FORM: Final = LIST_OF_TEXTS
ONE_OR_MORE: Final = {
    "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]
}


class VerifierKind:
    """Settings of the verifiers of one kind, below one key of `auth`. Subclasses are comparable.

    Attributes:
        key: The key.
        parts: The tables below it for the reference; see `Settings`.
        knows_all: True if a file names all callers that it lets in; such verifiers are asked first.
        callers: The callers that a file names.
        issuers: The authorization servers whose callers it lets in.
    """

    key: ClassVar[str]
    parts: ClassVar[Mapping[str, tuple[str, type[Table]]]] = {}
    knows_all: ClassVar[bool] = False

    @staticmethod
    def field_of_auth() -> Any:
        """The check of its value, its default, and its meaning; see `config.tables.key`."""
        raise NotImplementedError

    @classmethod
    def read(cls, said: Any, place: Place) -> Self:
        """Check the value of the key.

        Raises:
            ConfigError: it cannot be used.
        """
        raise NotImplementedError

    @property
    def callers(self) -> Mapping[str, NamedCaller]:
        return {}

    @property
    def issuers(self) -> Sequence[str]:
        return ()

    def expanded(self, text: Expand) -> Self:
        """The same with its references expanded."""
        raise NotImplementedError

    def verifiers(self, place: Place) -> list[RememberedVerifier]:
        """The verifiers of what is expanded; `place` is that of the key.

        Raises:
            ConfigError: one cannot be made.
        """
        raise NotImplementedError


@contextmanager
def told_at(place: Place) -> Generator[None]:
    """Name the place of what is refused in a block."""
    try:
        yield
    except DefinitionError as fault:
        raise ConfigError(f"{place.source}: {place.path}: {fault}", steps=place.steps) from None


@cache
def kinds() -> Sequence[type[VerifierKind]]:
    every = [import_module(f"{__name__}.{each.name}").KIND for each in iter_modules(__path__)]
    return sorted(every, key=lambda one: not one.knows_all)
