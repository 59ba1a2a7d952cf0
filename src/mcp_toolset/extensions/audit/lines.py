"""`LineTexts`: the texts of the lines of an audit log, with secrets blanked, and the digests of values."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Final, cast

from pydantic_core import to_json

from mcp_toolset.calls.pipeline.observers import CallFacts, Common, common_of
from mcp_toolset.extensions.audit.log_files import Chain, stamp
from mcp_toolset.security.facts import without_credentials
from mcp_toolset.tools.core.call import Identity

LONGEST: Final = 300
"""Characters of a text that a line keeps: a caller chooses some of them, such as the name of a tool."""

MOST: Final = 50  # items of a list or an object that a line keeps
DEEPEST: Final = 4  # how deep lists and objects are kept
_REPEATED: Final = ("key", "client", "protocol", "session", "tool", "server", "called", "reason", "rule")


def own_text(call: CallFacts, quoted: Callable[[str], str]) -> str:
    """The fields of a call's line that other lines do not have, as JSON text, each after a comma."""
    text = ""
    if call.trace or call.round or call.id:
        texts = (("trace", call.trace), ("round", call.round), ("id", call.id))
        text += "".join([f',"{name}":{quoted(value)}' for name, value in texts if value])
    if call.decisions:
        text += f',"decisions":[{",".join(map(quoted, call.decisions))}]'
    if call.usage:
        tokens = ",".join(f"{quoted(kind)}:{count:d}" for kind, count in call.usage)
        text += f',"usage":{{{tokens}}}'
    if call.arguments:
        text += f',"arguments":"{call.arguments}"'
    ran = "true" if call.ran else "false"
    return f'{text},"outcome":"{call.outcome}","ran":{ran},"duration":{call.duration:.6f}'


def repeated_of(call: CallFacts, repeated: Callable[..., str]) -> str:
    """The fields of a call's line that many others have as well, as JSON text, each after a comma."""
    called = "" if call.called == call.tool else call.called
    return repeated(
        call.identity,
        call.principal,
        call.client,
        call.protocol_version,
        call.session,
        call.tool,
        call.server,
        called,
        call.reason,
        call.rule,
    )


def repeated_text(quoted: Callable[[str], str], digest: Callable[[str], str]) -> Callable[..., str]:
    """Make the text of these fields; `digest` hides the id of a session, which would let others use it."""

    def text_of(who: Identity | None, principal: str | None, *values: str | None) -> str:
        client, protocol, session, *others = values
        text, key = "", principal
        if who is not None:
            key = who.key
            text = f',"who":{quoted(who.name)},"roles":[{",".join(map(quoted, sorted(who.roles)))}]'
        found = (key, client, protocol, session and digest(session), *others)
        texts = zip(_REPEATED, found, strict=True)
        return text + "".join([f',"{name}":{quoted(value)}' for name, value in texts if value])

    return text_of


def cleaned_fields(fields: Mapping[str, Any], shown: Callable[[str], str]) -> dict[str, Any]:
    """The fields that say something, as plain data, every text passed through `shown`."""
    kept = {name: _plain(value, shown, DEEPEST) for name, value in fields.items()}
    return {name: value for name, value in kept.items() if value is not None and value != "" and value != []}


def shown_text(text: str) -> str:
    """A text of a line: short, and without what looks like a credential."""
    clear = without_credentials(text[: 4 * LONGEST])
    return clear if len(clear) <= LONGEST else f"{clear[:LONGEST]}…"


def _plain(value: object, shown: Callable[[str], str], depth: int) -> Any:
    match value:
        case str():
            return shown(value)
        case None | bool() | int():
            return value
        case float():
            return round(value, 6) if math.isfinite(value) else str(value)
        case Mapping() if depth:
            items = list(cast("Mapping[object, object]", value).items())[:MOST]
            return {shown(str(key)): _plain(item, shown, depth - 1) for key, item in items}
        case list() | tuple() | set() | frozenset() if depth:
            found = cast("Iterable[object]", value)
            items = sorted(found, key=str) if isinstance(value, AbstractSet) else list(found)
            return [_plain(item, shown, depth - 1) for item in items[:MOST]]
        case _:
            # Never its text: an object of an application may show a secret.
            return type(value).__name__


_TEXTS: Final = 4096  # texts of lines that are remembered
_CANONICAL: Final = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode
"""The text of nested arguments, whatever the order of their keys."""

_FLAT: Final = frozenset({str, int, bool, type(None)})
"""Types of the values whose text needs no order of keys; `to_json` makes it in a fraction of the time."""


class LineTexts:
    """The texts of lines. Those of earlier lines are remembered, as most lines repeat them."""

    known: dict[Common, tuple[str, Identity | None]]

    def __init__(self) -> None:
        self._salt = b""
        self._keyed = blake2b(digest_size=16)
        self._scrubbing: dict[int, Callable[[str], str]] = {}
        self._remember(self._scrubbed)

    def use_key(self, salt: bytes) -> None:
        self._salt = salt
        self._keyed = blake2b(key=salt, digest_size=16)
        self._remember(self._scrubbed)

    def redact(self, owner: object, scrubbed: Callable[[str], str]) -> None:
        self._scrubbing[id(owner)] = scrubbed
        self._remember(self._scrubbed)

    def digest(self, arguments: Mapping[str, Any]) -> str:
        try:
            text = _canonical(arguments)
        except (TypeError, ValueError, RecursionError):
            return ""
        # A copy costs half of what a new one with the key does.
        keyed = self._keyed.copy()
        keyed.update(text)
        return keyed.hexdigest()

    def short_digest(self, text: str) -> str:
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
