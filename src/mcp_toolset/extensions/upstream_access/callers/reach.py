"""`Reach`: how a mounted server is reached for each caller; `HeaderMapping`: by headers about the caller."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Final, Protocol

from mcp_toolset._records import dataclass, replace
from mcp_toolset.context.request import RequestCaller
from mcp_toolset.errors import CallError, DefinitionError
from mcp_toolset.tools.core.call import Identity, ToolContext
from mcp_toolset.upstream.target import Link


class Reach(Protocol):
    """What a mounted server is sent for a caller.

    Callers with equal keys share one connection, and with it sessions, lists and tokens; no others do.
    """

    def key(self, context: ToolContext) -> str:
        """What tells the connection of a caller from others; empty for the one without a caller."""
        ...

    def link(self, link: Link, context: ToolContext) -> Link:
        """How the server is reached for a caller; without one, for a request that has none."""
        ...


_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9a-z-]+")
_OWN: Final = frozenset(
    "accept accept-encoding authorization connection content-encoding content-length content-type cookie "
    "date expect host http2-settings keep-alive last-event-id proxy-authorization proxy-connection te "
    "trailer transfer-encoding upgrade".split()
)
"""Headers that the bridge and HTTP itself use."""

_CREDENTIALS: Final = frozenset(("authorization", "cookie", "proxy-authorization"))
_PASS_THROUGH: Final = (
    '; the Authorization of callers is passed through by `"auth": {"type": "forward"}` alone, see docs'
)

_FACTS: Final[Mapping[str, Callable[[Identity], str | None]]] = {
    "identity.name": lambda one: one.name,
    "identity.subject": lambda one: one.subject,
    "identity.client": lambda one: one.client,
    "identity.issuer": lambda one: one.issuer,
    "identity.roles": lambda one: _joined("role", one.roles),
    "identity.scopes": lambda one: _joined("scope", one.scopes),
}


@dataclass(frozen=True)
class HeaderMapping:
    """Headers that a mounted server is sent, by what is known of the caller of each request.

    A value is a fact of the caller's identity, such as `identity.name`, or `header.NAME`: a header that the
    client has sent. What a caller does not have is not sent.

    Attributes:
        headers: The header of the server, by name, and where its value is from.
    """

    headers: Mapping[str, str]
    _sources: Mapping[str, str] = field(default_factory=dict[str, str], init=False)

    def __post_init__(self) -> None:
        sources = {name.lower(): source for name, source in self.headers.items()}
        if len(sources) < len(self.headers):
            raise DefinitionError("`forward` names a header twice; remove one")
        for name, source in sources.items():
            _check(name, source)
        object.__setattr__(self, "_sources", sources)

    def key(self, context: ToolContext) -> str:
        """A digest of the values that are sent; see `Reach`."""
        values = self._values(context)
        return hashlib.sha256(json.dumps(sorted(values.items())).encode()).hexdigest() if values else ""

    def link(self, link: Link, context: ToolContext) -> Link:
        return replace(link, about_caller=self._values(context))

    def _values(self, context: ToolContext) -> dict[str, str]:
        found = {name: _value(source, context) for name, source in self._sources.items()}
        return {name: value for name, value in found.items() if value is not None}


def _check(name: str, source: str) -> None:
    place = f"`forward`: the header {name!r}"
    if not _NAME.fullmatch(name):
        raise DefinitionError(f"{place} is no name of a header; correct it")
    if name in _OWN or name.startswith(("mcp-", "sec-")):
        more = _PASS_THROUGH if name == "authorization" else ""
        raise DefinitionError(f"{place} is one of HTTP or of the protocol; use another name{more}")
    kind, _, read = source.partition(".")
    if kind == "header" and _NAME.fullmatch(read.lower()):
        if read.lower() in _CREDENTIALS:
            raise DefinitionError(f"{place} would send a credential of the caller{_PASS_THROUGH}")
    elif source not in _FACTS:
        known = ", ".join([*_FACTS, "header.NAME"])
        raise DefinitionError(f"{place} is from {source!r}, which is none of {known}")


def _value(source: str, context: ToolContext) -> str | None:
    """The value of a header for a caller."""
    fact = _FACTS.get(source)
    if fact is not None:
        value = None if context.identity is None else fact(context.identity)
    else:
        sent = context.sent(source.partition(".")[2].lower()) if isinstance(context, RequestCaller) else ()
        if len(sent) > 1:
            raise CallError(f"the request has more than one header {source.partition('.')[2]}; send one")
        value = sent[0] if sent else None
    # Spaces at the ends are lost on the way: two callers could become one.
    if value is not None and (not value.isascii() or not value.isprintable() or value != value.strip()):
        raise CallError(f"the value of {source} of this caller cannot be sent in a header; nothing was sent")
    return value or None


def _joined(kind: str, values: frozenset[str]) -> str:
    if any("," in value or " " in value for value in values):
        raise CallError(f"a {kind} of this caller has a comma or a space in it; nothing was sent")
    return ",".join(sorted(values)) if kind == "role" else " ".join(sorted(values))
