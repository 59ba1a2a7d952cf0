"""The section `auth` of `toolset`: who may call over HTTP. Its references are expanded when it is used.

A server on stdio needs no tokens, so a variable that is not set there is no error there.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import field
from difflib import get_close_matches
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, cast

from pydantic import BeforeValidator, ConfigDict, Field

from mcp_toolset._records import dataclass
from mcp_toolset.config.entries import validated
from mcp_toolset.config.jsonc import Place
from mcp_toolset.config.sections import Entry, exact_names
from mcp_toolset.config.variables import Variables, is_unreplaced
from mcp_toolset.security.policy.patterns import (
    ForCallers,
    fault_of_name,
    hidden_rule,
    is_caller,
    is_for,
    plain_name,
)
from mcp_toolset.security.policy.sections import Section

if TYPE_CHECKING:
    pass

__all__ = [
    "AuthConfig",
    "AuthRules",
    "AuthSection",
    "JwtEntry",
    "JwtRule",
    "TokenEntry",
    "TokenRule",
    "check_known",
]

_TEXTS = "a list of strings"


def _listed(value: object) -> Any:
    return cast("Any", value) if isinstance(value, list) else [value]


def _worded(value: object) -> object:
    return value.split() if isinstance(value, str) else value


_Words = Annotated[list[str], BeforeValidator(_worded)]


class _Strict(Entry):
    model_config = ConfigDict(extra="forbid")


class AuthSection(_Strict):
    """The section itself."""

    tokens: dict[str, Any] = Field(
        {}, description='an object such as {"ci": {"token": "${CI_TOKEN}", "roles": ["robot"]}}'
    )
    jwt: Annotated[list[Any], BeforeValidator(_listed)] = Field(
        [], description='a list of objects such as {"issuer": "https://…", "audience": "https://…/mcp"}'
    )
    resource: str | None = Field(None, description="the URL of this server, as clients write it")
    required_scopes: _Words = Field([], description=_TEXTS)


class TokenEntry(_Strict):
    """A token that the operator has given to a program or a person."""

    token: str = Field(description='a string; better a reference such as "${CI_TOKEN}"')
    roles: _Words = Field([], description=_TEXTS)
    scopes: _Words = Field([], description=_TEXTS)


class JwtEntry(_Strict):
    """An authorization server whose tokens are accepted."""

    issuer: str = Field(min_length=1, description="the issuer's URL, as the claim `iss` has it")
    audience: Annotated[list[str], BeforeValidator(_listed), Field(min_length=1)] = Field(
        description="a string, or a list of strings: what the claim `aud` has for this server"
    )
    jwks_url: str | None = Field(None, description="an https URL")
    algorithms: list[str] = Field([], description='a list such as ["RS256", "ES256"]')
    secret: str | None = Field(None, description='a string; better a reference such as "${JWT_SECRET}"')
    roles_claim: str = Field(
        "roles", min_length=1, description="a claim, or a path such as `realm_access.roles`"
    )
    leeway: Annotated[float, Field(ge=0, le=600, strict=True)] = Field(
        30.0, description="a number of seconds up to 600"
    )


@dataclass(frozen=True, slots=True)
class TokenRule:
    """One token of the section, expanded."""

    name: str
    token: str = field(repr=False)
    roles: tuple[str, ...] = ()
    scopes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class JwtRule:
    """One authorization server of the section, expanded."""

    issuer: str
    audience: tuple[str, ...]
    jwks_url: str | None
    algorithms: tuple[str, ...]
    secret: str | None = field(repr=False)
    roles_claim: str
    leeway: float


@dataclass(frozen=True, slots=True)
class AuthRules:
    """The section, expanded."""

    tokens: tuple[TokenRule, ...]
    jwt: tuple[JwtRule, ...]
    resource: str | None
    required_scopes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AuthConfig:
    """The section, checked and not yet expanded.

    Attributes:
        place: Where it is in the file.
        section: What it says.
        tokens: Its tokens by name.
        jwt: Its authorization servers.
        variables: The values of references.
    """

    place: Place
    section: AuthSection = field(repr=False)
    tokens: Mapping[str, TokenEntry] = field(repr=False)
    jwt: tuple[JwtEntry, ...] = field(repr=False)
    variables: Variables = field(repr=False)

    @classmethod
    def read(cls, data: object, place: Place, variables: Variables) -> AuthConfig | None:
        """The section in a file; `None` if there is none."""
        if data is None:
            return None
        section = validated(AuthSection, data, place)
        if not section.tokens and not section.jwt:
            raise place.error("accepts no caller", "add `tokens` or `jwt`, or remove the section")
        tokens = {
            name: validated(TokenEntry, _token(entry), place.at("tokens", name))
            for name, entry in section.tokens.items()
        }
        issuers = tuple(
            validated(JwtEntry, entry, place.at("jwt", index)) for index, entry in enumerate(section.jwt)
        )
        for index, each in enumerate(issuers):
            _check_issuer(each, place.at("jwt", index))
        for name, one in tokens.items():
            if fault := fault_of_name(name):
                raise place.at("tokens", name).error(*fault)
            if is_unreplaced(one.token):
                raise place.at("tokens", name, "token").error(
                    "is the token itself, not a reference", "write a reference as `${NAME}`"
                )
            exact_names(one.roles, place.at("tokens", name, "roles"))
            exact_names(one.scopes, place.at("tokens", name, "scopes"))
        if "required_scopes" in section.model_fields_set and not section.required_scopes:
            raise place.at("required_scopes").error(
                "is empty, so no scope is required", "name one, or remove it"
            )
        exact_names(section.required_scopes, place.at("required_scopes"))
        return cls(place, section, tokens, issuers, variables)

    def check_callers(self, stated: Iterable[tuple[Any, Place]], warn: Callable[[str], None]) -> None:
        """Refuse a name that is nearly one of a token here; warn of one that no token has.

        What authorization servers tell of callers is not known, so with one of them any name may be right.
        """
        if not self.jwt:
            callers = [
                _Caller(
                    name,
                    _key_of(name),
                    frozenset(map(plain_name, one.roles)),
                    frozenset(map(plain_name, one.scopes)),
                )
                for name, one in self.tokens.items()
            ]
            roles = {role for one in callers for role in one.roles}
            scopes = {scope for one in callers for scope in one.scopes}
            stated, told = [*stated], list[str]()
            check_known({"principals": {*self.tokens}, "roles": roles, "scopes": scopes}, stated, told.append)
            for line in told:
                warn(line)
            if not told:
                _tell_unreached(stated, callers, warn)

    def rules(self) -> AuthRules:
        """The section with its references expanded."""
        tokens = tuple(
            TokenRule(
                name,
                self._text(one.token, "tokens", name, "token"),
                tuple(map(plain_name, one.roles)),
                tuple(map(plain_name, one.scopes)),
            )
            for name, one in self.tokens.items()
        )
        jwt = tuple(self._rule(one, index) for index, one in enumerate(self.jwt))
        section = self.section
        resource = None if section.resource is None else self._text(section.resource, "resource")
        return AuthRules(tokens, jwt, resource, tuple(map(plain_name, section.required_scopes)))

    def _rule(self, one: JwtEntry, index: int) -> JwtRule:
        def text(value: str | None, key: str) -> str | None:
            return None if value is None else self._text(value, "jwt", index, key)

        return JwtRule(
            issuer=self._text(one.issuer, "jwt", index, "issuer"),
            audience=tuple(self._text(each, "jwt", index, "audience") for each in one.audience),
            jwks_url=text(one.jwks_url, "jwks_url"),
            algorithms=tuple(one.algorithms),
            secret=text(one.secret, "secret"),
            roles_claim=one.roles_claim,
            leeway=one.leeway,
        )

    def _text(self, value: str, *steps: str | int) -> str:
        return self.variables.expand(value, self.place.at(*steps), _unheeded)


def _check_issuer(issuer: JwtEntry, place: Place) -> None:
    """Refuse what everybody could sign, and what would take no roles or every usual algorithm."""
    if fault := fault_of_name(issuer.roles_claim):
        raise place.at("roles_claim").error(*fault)
    if is_unreplaced(issuer.secret):
        raise place.at("secret").error(
            "is the secret itself, not a reference", "write a reference as `${NAME}`"
        )
    if "algorithms" in issuer.model_fields_set and not issuer.algorithms:
        raise place.at("algorithms").error(
            "is empty, so the usual ones would be accepted", "name one, or remove it"
        )


def check_known(
    known: Mapping[str, Collection[str]],
    stated: Iterable[tuple[Any, Place]],
    warn: Callable[[str], None],
) -> None:
    """Refuse a caller that is nearly a known one, and warn of one that nobody is.

    Raises:
        ConfigError: with the place of the first such name.
    """
    for section, place in stated:
        for key, names in known.items():
            for number, one in enumerate(getattr(section, key, None) or ()):
                at, folded = place.at(key, number), {name.lower(): name for name in names}
                if any(is_caller(one, name, _key_of(name)) for name in names):
                    continue
                if close := get_close_matches(one.lower(), folded, n=1, cutoff=0.8):
                    raise at.error("no token has it", f"did you mean `{folded[close[0]]}`?")
                if _restricts(section):
                    warn(str(at.error("no token has it, so this applies to nobody", "correct the name")))


def _key_of(name: str) -> str:
    """The key of the caller who has the token of this name."""
    return json.dumps([name, None, None])


def _restricts(section: ForCallers) -> bool:
    """Whether somebody could call more without it: an `allow` of all tools alone takes nothing away."""
    return (
        not isinstance(section, Section)
        or bool(section.ask or section.deny)
        or "*" not in (section.allow or ())
    )


def _tell_unreached(
    stated: Iterable[tuple[ForCallers, Place]], callers: Sequence[_Caller], warn: Callable[[str], None]
) -> None:
    """Warn of what is for none of the callers, and of rules that never apply to those that they are for."""
    before: list[tuple[Section, Place]] = []
    for section, place in stated:
        meant = [caller for caller in callers if is_for(section, caller)]
        if not meant and _restricts(section):
            mend = "write a section for each kind of caller"
            warn(str(place.error("no token has all that it names, so it applies to nobody", mend)))
        if not meant or not isinstance(section, Section):
            continue
        for wider, at in before:
            found = hidden_rule(section, wider) if all(is_for(wider, caller) for caller in meant) else None
            if found is not None:
                told = (
                    f"never applies, as `for[{at.steps[-1]}].allow` is asked before it and has `{found.wide}`"
                )
                rule = place.at(found.kind, found.number)
                warn(str(rule.error(f"{told}: every token of these callers is meant there", "put it first")))
        before.append((section, place))


class _Caller(NamedTuple):
    """Who has a token of the section."""

    name: str
    key: str
    roles: frozenset[str]
    scopes: frozenset[str]


def _token(entry: object) -> object:
    """An entry of `tokens`, which may be the token alone."""
    return {"token": entry} if isinstance(entry, str) else entry


def _unheeded(secret: str) -> None:
    """No message shows what this section holds, so that nothing has to be blanked."""
