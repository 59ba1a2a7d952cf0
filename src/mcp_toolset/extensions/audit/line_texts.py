"""`LineTexts`: the texts of the lines of an audit log, with secrets blanked, and the digests of values."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Final, cast

from pydantic_core import to_json

from mcp_toolset.calls.pipeline.observers import CallFacts, Common, common_of
from mcp_toolset.extensions.audit.chain import Chain
from mcp_toolset.extensions.audit.fields import (
    cleaned_fields,
    own_text,
    repeated_of,
    repeated_text,
    shown_text,
)
from mcp_toolset.extensions.audit.log_files import stamp
from mcp_toolset.tools.core.call import Identity

_TEXTS: Final = 4096
"""Texts of lines that are remembered."""

_CANONICAL: Final = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode
"""The text of nested arguments, whatever the order of their keys."""

_FLAT: Final = frozenset({str, int, bool, type(None)})
"""Types of the values whose text needs no order of keys; `to_json` makes it in a fraction of the time."""


class LineTexts:
    """What lines say. Texts of earlier lines are remembered, as most lines repeat them.

    Attributes:
        known: The text of the fields that similar calls share, and the caller.
    """

    known: dict[Common, tuple[str, Identity | None]]

    def __init__(self) -> None:
        self._salt = b""
        self._keyed = blake2b(digest_size=16)
        self._scrubbing: dict[int, Callable[[str], str]] = {}
        self._remember(self._scrubbed)

    def use_key(self, salt: bytes) -> None:
        """Key the digests from now on."""
        self._salt = salt
        self._keyed = blake2b(key=salt, digest_size=16)
        self._remember(self._scrubbed)

    def redact(self, owner: object, scrubbed: Callable[[str], str]) -> None:
        """Pass every text through a function that blanks secrets; each owner has one function."""
        self._scrubbing[id(owner)] = scrubbed
        self._remember(self._scrubbed)

    def digest(self, arguments: Mapping[str, Any]) -> str:
        """The keyed digest of arguments; empty if they have no JSON form."""
        try:
            text = _canonical(arguments)
        except (TypeError, ValueError, RecursionError):
            return ""
        # A copy costs half of what a new one with the key does.
        keyed = self._keyed.copy()
        keyed.update(text)
        return keyed.hexdigest()

    def short_digest(self, text: str) -> str:
        """A short keyed digest of a secret value."""
        return blake2b(text.encode(), key=self._salt, digest_size=8).hexdigest()

    def line(self, chain: Chain, at: float, event: str, said: Any) -> bytes:
        """The chained line of an event, with its fields or the facts of a call."""
        told = stamp(at)
        try:
            if not isinstance(said, dict):
                call, known = cast("CallFacts", said), self.known
                text = repeated_of(call, self._repeated)
                if not call.reason and not call.rule:
                    # For `note_plain`.
                    if len(known) >= _TEXTS:
                        known.clear()
                    known[common_of(call)] = text, call.identity
                return chain.line_of(f'"call","time":"{told}"{text}{own_text(call, self._quoted)}}}')
            fields = cast("dict[str, Any]", said)
            if session := fields.get("session"):
                # The id of a session lets others use it.
                fields = {**fields, "session": self.short_digest(str(session))}
            return chain.line(self._shown(event), told, cleaned_fields(fields, self._shown))
        # A recorded object may be anything; the line says what kind of error hid it.
        except Exception as fault:
            return chain.line(shown_text(str(event)), told, {"unreadable": type(fault).__name__})

    def _remember(self, shown: Callable[[str], str]) -> None:
        """Remember what texts of lines become: most of them are those of other lines too."""

        def quoted(text: str) -> str:
            return json.dumps(shown(text))

        self._shown: Callable[[str], str] = lru_cache(_TEXTS)(shown)
        self._quoted: Callable[[str], str] = lru_cache(_TEXTS)(quoted)
        self._repeated: Callable[..., str] = lru_cache(_TEXTS)(repeated_text(quoted, self.short_digest))
        # Set last, as it is read first: what was learned with the functions of before is not kept.
        self.known: dict[Common, tuple[str, Identity | None]] = {}

    def _scrubbed(self, text: str) -> str:
        for scrubbed in list(self._scrubbing.values()):
            text = scrubbed(text)
        return shown_text(text)


def _canonical(arguments: Mapping[str, Any]) -> bytes:
    """The text of arguments, whatever the order of their keys."""
    for value in arguments.values():
        if type(value) not in _FLAT:
            break
    else:
        try:
            return to_json(dict(arguments if len(arguments) < 2 else sorted(arguments.items())))
        # A text with half of a surrogate pair is no UTF-8.
        except ValueError:
            pass
    return _CANONICAL(arguments).encode()
