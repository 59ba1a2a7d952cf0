"""`ConfiguredAuthentication`: the `Authenticator` that the section `auth` of a configuration describes."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from mcp_toolset.config.jsonc import Place
from mcp_toolset.config.models import stated_callers
from mcp_toolset.errors import ConfigError, DefinitionError

if TYPE_CHECKING:
    from mcp_toolset.config import HubConfig
    from mcp_toolset.config.auth import AuthConfig, AuthRules
    from mcp_toolset.security.authentication.authenticator import Authenticator

_log = logging.getLogger("mcp_toolset.auth")


class ConfiguredAuthentication:
    """The authenticator of a configuration that may be reloaded: it stays, and takes over other rules."""

    def __init__(self) -> None:
        self._of: AuthConfig | None = None
        self._rules: AuthRules | None = None
        self._made: Authenticator | None = None

    @property
    def is_used(self) -> bool:
        """Whether a server authenticates callers by it."""
        return self._made is not None

    def of(self, config: AuthConfig | None) -> Authenticator | None:
        """Who may call; a section that was removed holds until the server starts again."""
        if config is self._of:
            return self._made
        if config is not None:
            rules = config.rules()
            if rules != self._rules:
                made = authenticator_of(rules, config)
                if self._made is None:
                    self._made = made
                else:
                    self._made.become(made)
                self._rules = rules
        elif self._made is not None:
            _log.warning("the section `auth` was removed; it stays in force until the server is restarted")
        self._of = config
        return self._made


def check_callers(config: HubConfig) -> None:
    """Refuse rules for some callers where nobody says who calls.

    Raises:
        ConfigError: `config` has such rules, and no `auth`.
    """
    if config.auth is not None:
        return
    root = Place(str(config.path))
    for _, place in stated_callers(config.rules, config.extensions, config.servers, root):
        raise Place(root.source, place.steps[:-1]).error(
            "is for some callers, and nothing says who calls",
            "add `toolset.auth`, or serve over HTTP with --issuer or --auth-token-env",
        )


def authenticator_of(rules: AuthRules, config: AuthConfig) -> Authenticator:
    """The authenticator that a section describes."""
    from mcp_toolset.security.authentication.authenticator import Authenticator
    from mcp_toolset.security.authentication.jwt import JWT
    from mcp_toolset.security.authentication.static_tokens import StaticToken, StaticTokens

    tokens = {one.name: StaticToken(one.token, one.roles, one.scopes) for one in rules.tokens}
    place = config.place.at("tokens")
    try:
        verifiers: list[StaticTokens | JWT] = [StaticTokens(tokens)] if tokens else []
        for index, one in enumerate(rules.jwt):
            place = config.place.at("jwt", index)
            verifiers.append(
                JWT(
                    issuer=one.issuer,
                    audience=one.audience,
                    jwks_url=one.jwks_url,
                    algorithms=one.algorithms,
                    secret=one.secret,
                    roles_claim=one.roles_claim,
                    leeway=one.leeway,
                )
            )
    except DefinitionError as fault:
        raise ConfigError(f"{place.source}: {place.path}: {fault}", steps=place.steps) from None
    return Authenticator(verifiers, resource=rules.resource, required_scopes=rules.required_scopes)
