"""`reach_of`: how a mounted server is reached for each caller, by what its entry says."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import cast

from mcp_toolset._records import dataclass
from mcp_toolset.errors import DefinitionError
from mcp_toolset.extensions.upstream_access.callers.exchange import Exchange
from mcp_toolset.extensions.upstream_access.callers.logins import CallerLogins
from mcp_toolset.extensions.upstream_access.callers.reach import HeaderMapping, Reach
from mcp_toolset.extensions.upstream_access.server_auth import OAuth, TokenExchange
from mcp_toolset.tools.core.call import ToolContext
from mcp_toolset.upstream.target import Link


@dataclass(frozen=True)
class _Both:
    """Two ways at once."""

    one: Reach
    other: Reach

    def key(self, context: ToolContext) -> str:
        keys = [self.one.key(context), self.other.key(context)]
        return json.dumps(keys) if any(keys) else ""

    def link(self, link: Link, context: ToolContext) -> Link:
        return self.other.link(self.one.link(link, context), context)


def logins_of(auth: object) -> CallerLogins | None:
    """The logins of callers, if each caller logs in."""
    return CallerLogins(auth) if isinstance(auth, OAuth) and auth.per_user else None


def reach_of(
    link: Link, forward: Mapping[str, str] | None, auth: object, logins: CallerLogins | None
) -> Reach:
    """How a server is reached for each caller, by `forward`, by `auth` or by both."""
    own = Exchange(auth) if isinstance(auth, TokenExchange) else logins
    mapping = _mapping(link, forward) if forward else None
    if not link.url:
        raise DefinitionError(f"mount {link.name!r}: headers are sent over HTTP, not by {link.transport}")
    if mapping is None:
        return cast("Reach", own)
    return _Both(mapping, own) if own is not None else mapping


def _mapping(link: Link, forward: Mapping[str, str]) -> HeaderMapping:
    given = {name.lower() for name in link.headers}
    if twice := [name for name in forward if name.lower() in given]:
        raise DefinitionError(
            f"mount {link.name!r}: `headers` and `forward` both have {twice[0]}; remove one of them"
        )
    return HeaderMapping(forward)
