"""The fields of a line: of a call from its report, of other events as recorded; cleared of secrets."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import Any, Final, cast

from mcp_toolset.calls.pipeline.observers import CallFacts
from mcp_toolset.security.facts import without_credentials
from mcp_toolset.tools.core.call import Identity

LONGEST: Final = 300
"""Characters of a text that a line keeps: a caller chooses some of them, such as the name of a tool."""

MOST: Final = 50
"""Items of a list or an object that a line keeps."""

DEEPEST: Final = 4
"""How deep lists and objects are kept."""

_REPEATED: Final = ("key", "client", "protocol", "session", "tool", "server", "called", "reason", "rule")


def own_text(call: CallFacts, quoted: Callable[[str], str]) -> str:
    """The fields of a call's line that other lines do not have as JSON text, each after a comma.

    Args:
        call: The call.
        quoted: The JSON of a text, cleared of secrets; it remembers the texts.
    """
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
    """The fields of a call's line that many others have as well, as JSON text, each after a comma.

    Args:
        call: The call.
        repeated: `repeated_text` that remembers its texts.
    """
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
    """What makes the text of those fields that a call has in common with many others.

    Args:
        quoted: The JSON of a text, cleared of secrets.
        digest: The digest of the id of a session, which itself would let others use the session.
    """

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
