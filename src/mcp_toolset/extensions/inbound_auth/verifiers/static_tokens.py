"""`StaticTokens`: verifies tokens against a list; `TokensByName`: that list in a configuration."""

from __future__ import annotations

import hmac
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from hashlib import sha256
from typing import Any, ClassVar, Final, cast

from mcp_toolset._records import dataclass, replace
from mcp_toolset.config.entries import validated
from mcp_toolset.config.jsonc import Place
from mcp_toolset.config.sections import exact_names
from mcp_toolset.config.tables import TABLE, TEXT, Table, key
from mcp_toolset.config.variables import is_unreplaced
from mcp_toolset.errors import DefinitionError
from mcp_toolset.extensions.inbound_auth.verifiers import WORDS, WORDS_FORM, Expand, VerifierKind, told_at
from mcp_toolset.security.authenticator import RememberedVerifier
from mcp_toolset.security.patterns import fault_of_name, plain_name
from mcp_toolset.tools.call import Identity, require_several

SHORTEST: Final = 16
"""The smallest number of characters of a token."""

_MEND: Final = 'make one with `python -c "import secrets; print(secrets.token_urlsafe(32))"`'


@dataclass(frozen=True, slots=True)
class StaticToken:
    """One token, with the roles and scopes of its holder."""

    token: str = field(repr=False)
    roles: Iterable[str] = ()
    scopes: Iterable[str] = ()

    def __post_init__(self) -> None:
        """Refuse one text in place of a list."""
        require_several(roles=self.roles, scopes=self.scopes)


class StaticTokens(RememberedVerifier):
    """Verifies tokens against a list, in constant time: only digests are kept and compared."""

    memory = math.inf

    def __init__(self, tokens: Mapping[str, str | StaticToken]) -> None:
        """Accept tokens, by the names of their holders.

        Raises:
            DefinitionError: no token is given, or a token is too short, has characters that a header cannot
                carry, or is given twice.
        """
        if not tokens:
            raise DefinitionError("StaticTokens: no token is given; give at least one, by a name")
        self._holders: dict[bytes, Identity] = {}
        for name, token in tokens.items():
            self._add(name, token if isinstance(token, StaticToken) else StaticToken(token))

    @classmethod
    def from_env(
        cls,
        *variables: str,
        roles: Iterable[str] = (),
        scopes: Iterable[str] = (),
        environ: Mapping[str, str] = os.environ,
    ) -> StaticTokens:
        """The tokens in environment variables, each written as `VARIABLE` or as `name=VARIABLE`.

        Args:
            variables: The variables. Without `name=`, the variable's name is the name of the holder.
            roles: The roles of all holders.
            scopes: The scopes of all these tokens.
            environ: The environment.

        Raises:
            DefinitionError: a variable is not set, or as for `StaticTokens`.
        """
        require_several(roles=roles, scopes=scopes)
        roles, scopes, tokens = tuple(roles), tuple(scopes), dict[str, StaticToken]()
        for written in variables:
            name, sign, variable = written.partition("=")
            token = environ.get(variable if sign else name, "").strip()
            if not token:
                raise DefinitionError(f"the environment variable {variable or name} is not set; {_MEND}")
            if name in tokens:
                raise DefinitionError(f"the token {name} is given twice; give each its own name")
            tokens[name] = StaticToken(token, roles, scopes)
        return cls(tokens)

    async def verify(self, token: str) -> Identity | None:
        """The holder of a token. Every entry is compared, so that timing reveals nothing about them."""
        digest, match = sha256(token.encode()).digest(), None
        for known, holder in self._holders.items():
            if hmac.compare_digest(known, digest):
                match = holder
        return match

    @property
    def holders(self) -> Sequence[Identity] | None:
        """The holders of the tokens; `None` for a subclass, which may accept further tokens."""
        return [*self._holders.values()] if type(self).verify is StaticTokens.verify else None

    def _add(self, name: str, entry: StaticToken) -> None:
        token = entry.token
        if not name.strip():
            raise DefinitionError("StaticTokens: a token has no name; name it after its holder")
        # The error does not quote the name: if both are swapped, the name is the token.
        if not isinstance(cast("object", token), str) or len(token) < SHORTEST <= len(name):
            raise DefinitionError(
                "StaticTokens takes each token under the name of its holder, {name: token}; an entry seems "
                f"to be the other way round, or its token has fewer than {SHORTEST} characters; {_MEND}"
            )
        if len(token) < SHORTEST:
            raise DefinitionError(
                f"the token {name} has fewer than {SHORTEST} characters, which can be guessed; {_MEND}"
            )
        if not (token.isascii() and token.isprintable()) or " " in token:
            raise DefinitionError(f"the token {name} has characters that no header takes; {_MEND}")
        digest = sha256(token.encode()).digest()
        if digest in self._holders:
            other = self._holders[digest].name
            raise DefinitionError(f"the tokens {other} and {name} are the same; {_MEND}")
        self._holders[digest] = Identity.of(name, scopes=entry.scopes, roles=entry.roles)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenEntry(Table):
    """The entry of a token in a configuration."""

    unknown = "forbid"

    token: str = key(
        TEXT,
        'a string; better a reference such as "${CI_TOKEN}"',
        required=True,
        secret=True,
        meaning="The token; write a reference instead of the token itself.",
        example="${CI_TOKEN}",
    )
    roles: list[str] = key(WORDS, WORDS_FORM, [], meaning="The caller's roles.", example=["robot"])
    scopes: list[str] = key(WORDS, WORDS_FORM, [], meaning="The caller's scopes.", example=["tools:call"])


@dataclass(frozen=True, slots=True)
class TokensByName(VerifierKind):
    """`tokens` of `auth`: tokens by the names of their holders."""

    key: ClassVar = "tokens"
    knows_all: ClassVar = True
    parts: ClassVar = {"token": ("A token of `auth`", TokenEntry)}

    entries: Mapping[str, TokenEntry] = field(repr=False)

    @staticmethod
    def field_of_auth() -> Any:
        return key(
            TABLE,
            'an object such as {"ci": {"token": "${CI_TOKEN}", "roles": ["robot"]}}',
            {},
            secret=True,
            meaning="Tokens that you have given to programs or people, by the caller's name.",
            example={"ci": {"token": "${CI_TOKEN}", "roles": ["robot"]}},
            published={
                "type": "object",
                "additionalProperties": {"anyOf": [{"type": "string"}, {"$ref": "#/$defs/token"}]},
            },
        )

    @classmethod
    def read(cls, said: Any, place: Place) -> TokensByName:
        """Check each entry: an object, or the token alone."""
        tokens = dict[str, TokenEntry]()
        for name, written in said.items():
            own = place.at(name)
            entry = validated(TokenEntry, {"token": written} if isinstance(written, str) else written, own)
            if fault := fault_of_name(name):
                raise own.error(*fault)
            if is_unreplaced(entry.token):
                raise own.at("token").error(
                    "is the token itself, not a reference", "write a reference as `${NAME}`"
                )
            exact_names(entry.roles, own.at("roles"))
            exact_names(entry.scopes, own.at("scopes"))
            tokens[name] = entry
        return cls(tokens)

    @property
    def callers(self) -> Mapping[str, TokenEntry]:
        return self.entries

    def expanded(self, text: Expand) -> TokensByName:
        return TokensByName(
            {
                name: replace(
                    entry,
                    token=text(entry.token, self.key, name, "token"),
                    roles=[*map(plain_name, entry.roles)],
                    scopes=[*map(plain_name, entry.scopes)],
                )
                for name, entry in self.entries.items()
            }
        )

    def verifiers(self, place: Place) -> list[RememberedVerifier]:
        with told_at(place):
            return [
                StaticTokens(
                    {
                        name: StaticToken(entry.token, entry.roles, entry.scopes)
                        for name, entry in self.entries.items()
                    }
                )
            ]


KIND: Final = TokensByName
