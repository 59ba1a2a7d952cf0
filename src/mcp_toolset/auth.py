"""Authentication: of clients over HTTP, and at mounted servers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcp_toolset._lazy import homes_of, lazily

if TYPE_CHECKING:
    from mcp_toolset.extensions.inbound_auth.verifiers.jwt import JWT
    from mcp_toolset.extensions.inbound_auth.verifiers.static_tokens import StaticToken, StaticTokens
    from mcp_toolset.extensions.upstream_access.server_auth import (
        ClientCredentials,
        EnterpriseLogin,
        Forward,
        OAuth,
        TokenExchange,
    )
    from mcp_toolset.security.authenticator import Authenticator

__all__ = [
    "Authenticator",
    "ClientCredentials",
    "EnterpriseLogin",
    "Forward",
    "JWT",
    "OAuth",
    "StaticToken",
    "StaticTokens",
    "TokenExchange",
]

if not TYPE_CHECKING:  # so that a type checker reports a name that is none
    __getattr__, __dir__ = lazily(__name__, homes_of(__all__))
