"""Identity of callers towards mounted servers: logins and tokens, and connections for single callers.

`UpstreamAccess` makes either; what is not asked for is not imported.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Unpack

if TYPE_CHECKING:
    from mcp_toolset.catalog.pins.policy import Pins
    from mcp_toolset.config.tables import Table
    from mcp_toolset.extending.mounts import MountAuth
    from mcp_toolset.transports.carrier import TokenSource
    from mcp_toolset.upstream.connection import ConnectionOptions, UpstreamConnection
    from mcp_toolset.upstream.target import Link


MENDS = {"login": "mcp-toolset login"}


class UpstreamAccess:
    """Makes either; what is not asked for is not imported."""

    @staticmethod
    def login() -> MountAuth:
        """The login to a server of which nothing more is known."""
        from mcp_toolset.extensions.upstream_access.server_auth import OAuth

        return OAuth()

    @staticmethod
    def logins() -> Mapping[str, type[Table]]:
        """The kinds of login that an entry can have."""
        from mcp_toolset.extensions.upstream_access.settings import LOGINS

        return LOGINS

    @staticmethod
    def tokens(name: str, url: str, auth: Any, how: str) -> TokenSource:
        """The tokens for a server that all callers share; see `token_source`."""
        from mcp_toolset.extensions.upstream_access.token_source import token_source

        return token_source(name, url, auth, how)

    @staticmethod
    def connections(
        link: Link,
        auth: object,
        pins: Callable[[], Pins],
        *,
        lenient: bool,
        **options: Unpack[ConnectionOptions],
    ) -> UpstreamConnection:
        """The connections of single callers to a server; see `reach_of` and `CallerConnections`."""
        from mcp_toolset.extensions.upstream_access.caller_connections import CallerConnections
        from mcp_toolset.extensions.upstream_access.reach import logins_of, reach_of
        from mcp_toolset.extensions.upstream_access.settings import AccessOfServer

        access = options["stated"].get("access")
        forward = access.forward if isinstance(access, AccessOfServer) else None
        logins = logins_of(auth)
        reach = reach_of(link, forward, auth, logins)
        return CallerConnections(link, reach=reach, logins=logins, pins=pins, lenient=lenient, **options)


NAME, PART = "access", UpstreamAccess
