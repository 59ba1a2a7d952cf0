"""The options of `serve` that say who may call over HTTP: `--auth-token-env`, `--issuer` and the like."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import click

from mcp_toolset._records import dataclass, replace
from mcp_toolset.cli.options import gathered

if TYPE_CHECKING:
    from mcp_toolset.config.models import HubConfig
    from mcp_toolset.security.authenticator import Authenticator
    from mcp_toolset.serving.serve import TransportName


@dataclass(frozen=True, slots=True)
class Inbound:
    """The options that say who may call; in `variables`, the name of its holder may stand before each one."""

    variables: tuple[str, ...]
    issuer: str | None
    audience: tuple[str, ...]
    jwks_url: str | None
    required_scopes: tuple[str, ...]

    def with_variable(self, name: str) -> Inbound:
        """The same, with the token of another environment variable."""
        return replace(self, variables=(*self.variables, name))

    def authenticator(self, transport: TransportName) -> Authenticator | None:
        """The authenticator; `None` if these options describe no callers."""
        self._check(transport)
        if not self.variables and self.issuer is None:
            return None
        from mcp_toolset.extensions.inbound_auth.verifiers.jwt import JWT
        from mcp_toolset.extensions.inbound_auth.verifiers.static_tokens import StaticTokens
        from mcp_toolset.security.authenticator import Authenticator

        verifiers: list[StaticTokens | JWT] = []
        if self.variables:
            verifiers.append(StaticTokens.from_env(*self.variables, scopes=self.required_scopes))
        if self.issuer is not None:
            verifiers.append(JWT(issuer=self.issuer, audience=self.audience, jwks_url=self.jwks_url))
        return Authenticator(verifiers, required_scopes=self.required_scopes)

    def check_callers(self, config: HubConfig, warn: Callable[[str], None]) -> None:
        """Refuse, or warn of, rules of a file for callers whose tokens these options do not accept."""
        if self.issuer is not None or not self.variables:
            return
        from mcp_toolset.extensions.inbound_auth.settings import check_known

        names = [variable.partition("=")[0] for variable in self.variables]
        known = {"principals": names, "roles": (), "scopes": self.required_scopes}
        check_known(known, config.for_callers(), warn)

    def _check(self, transport: TransportName) -> None:
        given = self.variables or self.issuer or self.audience or self.jwks_url or self.required_scopes
        if given and transport == "stdio":
            raise click.UsageError(
                "options that say who may call are for HTTP: add --transport http; on stdio the program that "
                "starts the server is its only client"
            )
        if (self.audience or self.jwks_url) and self.issuer is None:
            raise click.UsageError("--audience and --jwks-url belong to --issuer; add it")
        if self.issuer is not None and not self.audience:
            raise click.UsageError(
                "--issuer needs --audience, or tokens for other servers would be accepted; give what the "
                "claim `aud` of the tokens for this server is"
            )
        if not all(map(str.strip, self.required_scopes)):
            raise click.UsageError("--required-scope is empty, so no scope would be required; name one")
        if self.required_scopes and not (self.variables or self.issuer):
            raise click.UsageError("--required-scope needs --issuer or --auth-token-env")


CALLER_OPTION: Final = gathered(
    "auth",
    Inbound,
    click.option(
        "--auth-token-env",
        "variables",
        multiple=True,
        metavar="[NAME=]VAR",
        help="Accept the bearer token in this environment variable, from a client that is called NAME.",
    ),
    click.option("--issuer", metavar="URL", help="Accept the tokens (JWT) of this authorization server."),
    click.option(
        "--audience", multiple=True, metavar="TEXT", help="The audience of those tokens: the claim aud."
    ),
    click.option(
        "--jwks-url", metavar="URL", help="Where the keys of the issuer are, if its metadata does not say it."
    ),
    click.option(
        "--required-scope",
        "required_scopes",
        multiple=True,
        metavar="SCOPE",
        help="A scope that each JWT needs.",
    ),
)
