"""The fields of a line: of a call from its report, of other events as recorded; cleared of secrets."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final, Protocol, cast

from mcp_toolset.tools.core.identity import Identity

LONGEST: Final = 300
"""Characters of a text that a line keeps: a caller chooses some of them, such as the name of a tool."""

MOST: Final = 50
"""Items of a list or an object that a line keeps."""

DEEPEST: Final = 4
"""How deep lists and objects are kept."""

BLANK: Final = "***"

_TOKEN: Final = re.compile(
    r"(?i)\b(bearer|basic|dpop)\s+(?=[\w~+/.=-]*[\d.~+/=]|\w{20})[\w~+/.=-]+"
    r"|\beyJ[\w-]{5,}(?:\.[\w-]*){1,4}|\b(?:gh[opsu]|sk|xox[abp])[-_][\w-]{16,}"
)
"""What has the form of a credential: `Bearer …`, a JSON Web Token, the keys of well-known services."""


class CallFacts(Protocol):
    """What a line says of a call; `CallReport` has it."""

    @property
    def called(self) -> str:
        """The name that the caller used."""
        ...

    @property
    def tool(self) -> str:
        """The public name of the tool; empty if it does not exist."""
        ...

    @property
    def server(self) -> str:
        """The mounted server; empty for local tools."""
        ...

    @property
    def outcome(self) -> str:
        """How the call ended."""
        ...

    @property
    def reason(self) -> str:
        """Why it was refused or failed."""
        ...

    @property
    def ran(self) -> bool:
        """Whether the tool ran."""
        ...

    @property
    def decisions(self) -> Sequence[str]:
        """What hooks decided."""
        ...

    @property
    def id(self) -> str:
        """The id of the call in a round."""
        ...

    @property
    def round(self) -> str:
        """The id of the round."""
        ...

    @property
    def session(self) -> str | None:
        """The caller's session."""
        ...

    @property
    def principal(self) -> str | None:
        """The key of the authenticated caller."""
        ...

    @property
    def identity(self) -> Identity | None:
        """The authenticated caller."""
        ...

    @property
    def client(self) -> str:
        """The client program."""
        ...

    @property
    def protocol_version(self) -> str | None:
        """The revision of the protocol."""
        ...

    @property
    def arguments(self) -> str:
        """The digest of the arguments."""
        ...

    @property
    def rule(self) -> str:
        """The rule of the policy that decided."""
        ...

    @property
    def trace(self) -> str:
        """The id of the trace."""
        ...

    @property
    def duration(self) -> float:
        """Seconds until the result."""
        ...


def who_fields(identity: Identity | None, principal: str | None = None) -> dict[str, Any]:
    """Who did it: the name and roles of the caller, and the key by which callers are told apart."""
    if identity is None:
        return {"key": principal}
    return {"who": identity.name, "roles": sorted(identity.roles), "key": identity.key}


def call_text(call: CallFacts, quoted: Callable[[str], str], digest: Callable[[str], str]) -> str:
    """The fields of a call's line as JSON text, each after a comma; most texts are those of other calls too.

    Args:
        call: The call.
        quoted: The JSON of a text, cleared of secrets; it remembers the texts.
        digest: The digest of the id of a session, which itself would let others use the session.
    """
    who, key = call.identity, call.principal
    parts: list[str] = []
    if who is not None:
        key = who.key
        parts.append(f',"who":{quoted(who.name)},"roles":[{",".join(map(quoted, sorted(who.roles)))}]')
    texts = (
        ("key", key),
        ("client", call.client),
        ("protocol", call.protocol_version),
        ("session", call.session and digest(call.session)),
        ("tool", call.tool),
        ("server", call.server),
        ("called", "" if call.called == call.tool else call.called),
        ("reason", call.reason),
        ("rule", call.rule),
        ("trace", call.trace),
        ("round", call.round),
        ("id", call.id),
    )
    parts += [f',"{name}":{quoted(text)}' for name, text in texts if text]
    if call.decisions:
        parts.append(f',"decisions":[{",".join(map(quoted, call.decisions))}]')
    if call.arguments:
        parts.append(f',"arguments":"{call.arguments}"')
    ran = "true" if call.ran else "false"
    return f'{"".join(parts)},"outcome":"{call.outcome}","ran":{ran},"duration":{call.duration:.6f}'


def cleaned_fields(fields: Mapping[str, Any], shown: Callable[[str], str]) -> dict[str, Any]:
    """The fields that say something, as plain data, every text passed through `shown`."""
    kept = {name: _plain(value, shown, DEEPEST) for name, value in fields.items()}
    return {name: value for name, value in kept.items() if value is not None and value != "" and value != []}


def shown_text(text: str) -> str:
    """A text of a line: short, and without what looks like a credential."""
    clear = _TOKEN.sub(lambda found: f"{found[1]} {BLANK}" if found[1] else BLANK, text[: 4 * LONGEST])
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
