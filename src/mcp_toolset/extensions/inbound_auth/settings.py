"""The section `auth` of `toolset`: who may call over HTTP. Its references are expanded when it is used.

A server on stdio needs no tokens, so a variable that is not set there is no error there.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, make_dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self, cast

from mcp_toolset._records import dataclass, replace
from mcp_toolset.config.entries import validated
from mcp_toolset.config.extensions import Callers, NamedCaller, Settings, as_object
from mcp_toolset.config.jsonc import Place
from mcp_toolset.config.sections import exact_names
from mcp_toolset.config.tables import TEXT, Meaning, Table, key
from mcp_toolset.config.variables import Variables
from mcp_toolset.extending.extension import Extension
from mcp_toolset.extensions.inbound_auth.verifiers import ONE_OR_MORE, WORDS, WORDS_FORM, VerifierKind, kinds
from mcp_toolset.security import patterns
from mcp_toolset.security.authenticator import Authenticator
from mcp_toolset.tools.call import Identity

if TYPE_CHECKING:
    from mcp_toolset.errors import ConfigError
    from mcp_toolset.extending.host import Host


class InboundAuth(Extension):
    """No part of a server: `Settings.callers` says who may call."""

    key: ClassVar = "auth"

    @classmethod
    def of(cls, said: Any, stated: Settings | None, host: Host) -> None:
        """Make no extension: these settings only make an authenticator."""

    @classmethod
    def at_restart(cls, before: Settings | None, now: Settings | None) -> bool:
        return before is not None and now is None


EXTENSION = InboundAuth


@dataclass(frozen=True, slots=True)
class AuthRules:
    """The section, expanded."""

    verifiers: tuple[VerifierKind, ...] = field(repr=False)
    resource: str | None
    required_scopes: tuple[str, ...]
    place: Place = field(compare=False)

    def authenticator(self) -> Authenticator:
        """Make the authenticator."""
        made = [each for one in self.verifiers for each in one.verifiers(self.place.at(one.key))]
        return Authenticator(made, resource=self.resource, required_scopes=self.required_scopes)


class _Auth(Settings, Callers):
    """The section, checked and not yet expanded; see `Settings` and `Callers`."""

    says: ClassVar = Meaning(
        "[Who may call](authentication.md) over HTTP.", {"tokens": {"ci": {"token": "${CI_TOKEN}"}}}
    )
    protects: ClassVar = True
    object_only: ClassVar = "an object with `tokens` or `jwt`"
    parts: ClassVar[Mapping[str, tuple[str, type[Table]]]] = {
        name: part for kind in kinds() for name, part in kind.parts.items()
    }

    below: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "": (*(kind.key for kind in kinds()), "resource", "required_scopes"),
        "jwt": ("issuer", "audience", "jwks_url", "algorithms", "roles_claim", "leeway"),
    }

    resource: str | None
    required_scopes: list[str]
    verifiers: tuple[VerifierKind, ...]
    place: Place
    variables: Variables

    @classmethod
    def read(cls, said: object, place: Place, variables: Variables, servers: Mapping[str, str]) -> Self:
        table = as_object(said, place, cls.object_only)
        made = validated(cls, table, place)
        stated = [(kind, getattr(made, kind.key)) for kind in kinds()]
        if not any(value for _, value in stated):
            keys = " or ".join(f"`{kind.key}`" for kind in kinds())
            raise place.error("accepts no caller", f"add {keys}, or remove the section")
        verifiers = tuple(kind.read(value, place.at(kind.key)) for kind, value in stated if value)
        if "required_scopes" in table and not made.required_scopes:
            raise place.at("required_scopes").error(
                "is empty, so no scope is required", "name one, or remove it"
            )
        exact_names(made.required_scopes, place.at("required_scopes"))
        return replace(cast("Any", made), verifiers=verifiers, place=place, variables=variables)

    def callers(self) -> Self:
        return self

    @property
    def named(self) -> Mapping[str, NamedCaller]:
        return {name: one for kind in self.verifiers for name, one in kind.callers.items()}

    @property
    def issuers(self) -> Sequence[str]:
        return [one for kind in self.verifiers for one in kind.issuers]

    def check(
        self,
        stated: Iterable[tuple[Any, Place]],
        others: Iterable[tuple[patterns.Section, Place]],
        warn: Callable[[str], None],
    ) -> None:
        """Refuse a name that is nearly one of a token here; warn of one that no token has.

        `others` are the sections that are for every caller, and are asked after `stated`.
        What authorization servers tell of callers is not known, so with one of them any name may be right.
        """
        if all(one.knows_all for one in self.verifiers):
            callers = [
                Identity.of(
                    name,
                    roles=map(patterns.plain_name, one.roles),
                    scopes=map(patterns.plain_name, one.scopes),
                )
                for name, one in self.named.items()
            ]
            roles = {role for one in callers for role in one.roles}
            scopes = {scope for one in callers for scope in one.scopes}
            stated, told = [*stated], list[str]()
            known = {"principals": {*self.named}, "roles": roles, "scopes": scopes}
            check_known(known, stated, told.append)
            if not told:
                sections = [one for one in stated if isinstance(one[0], patterns.Section)]
                limits = [one for one in stated if not isinstance(one[0], patterns.Section)]
                told += map(str, _unreached_sections(sections, callers))
                told += map(str, _unreached_limits(limits, callers))
                told += map(str, _hidden_rules(sections, callers, others))
            for line in told:
                warn(line)

    def rules(self) -> AuthRules:
        """The section with its references expanded."""

        def text(value: str, *steps: str | int) -> str:
            # No message shows what this section holds, so that nothing has to be blanked.
            return self.variables.expand(value, self.place.at(*steps), lambda _: None)

        return AuthRules(
            tuple(one.expanded(text) for one in self.verifiers),
            None if self.resource is None else text(self.resource, "resource"),
            tuple(map(patterns.plain_name, self.required_scopes)),
            self.place,
        )


SETTINGS: Final = cast(
    "type[_Auth]",
    make_dataclass(
        "AuthSettings",
        [
            *((kind.key, Any, kind.field_of_auth()) for kind in kinds()),
            (
                "resource",
                str | None,
                key(
                    TEXT,
                    "the URL of this server, as clients write it",
                    meaning="The URL of this server, as clients write it.",
                    example="https://tools.example.com/mcp",
                ),
            ),
            (
                "required_scopes",
                list[str],
                key(
                    WORDS,
                    WORDS_FORM,
                    [],
                    meaning="Scopes without which no call is allowed.",
                    example=["tools:call"],
                    published=ONE_OR_MORE,
                ),
            ),
            ("verifiers", Any, field(default=(), repr=False)),
            ("place", Any, field(default=None, repr=False, compare=False)),
            ("variables", Any, field(default=None, repr=False, compare=False)),
        ],
        bases=(_Auth,),
        namespace={"__module__": __name__, "unknown": "forbid"},
        frozen=True,
        kw_only=True,
    ),
)
"""The keys of the section: one for each kind of verifiers, and what holds for all."""


def check_known(
    known: Mapping[str, Collection[str]], stated: Iterable[tuple[Any, Place]], warn: Callable[[str], None]
) -> None:
    """Refuse a caller that is nearly a known one, and warn of one that nobody is."""
    for section, place in stated:
        for kind, names in known.items():
            for number, one in enumerate(getattr(section, kind, None) or ()):
                at, folded = place.at(kind, number), {name.lower(): name for name in names}
                if any(patterns.is_caller(one, name, _key_of(name)) for name in names):
                    continue
                if close := get_close_matches(one.lower(), folded, n=1, cutoff=0.8):
                    raise at.error("no token has it", f"did you mean `{folded[close[0]]}`?")
                if not isinstance(section, patterns.Section) or section.restricts:
                    warn(str(at.error("no token has it, so this applies to nobody", "correct the name")))


def _key_of(name: str) -> str:
    return json.dumps([name, None, None])


_Stated = Sequence[tuple[Any, Place]]
"""Parts of a file that are for some callers, each with its place."""

_NOBODY: Final = (
    "no token has all that it names, so it applies to nobody",
    "write a section for each kind of caller",
)


def _unreached_sections(stated: _Stated, callers: Sequence[Identity]) -> Iterator[ConfigError]:
    """Sections that are for none of the callers, and rules that never apply to those that they are for."""
    places = {id(one): at for one, at in stated}
    for section, before in patterns.asked_before([one for one, _ in stated], callers):
        place = places[id(section)]
        if not before and section.restricts:
            yield place.error(*_NOBODY)
        for wider in patterns.of_all(before):
            if (found := patterns.hidden_rule(section, wider)) is not None:
                told = f"never applies, as `for[{places[id(wider)].steps[-1]}].allow` is asked before it"
                told += f" and has `{found.wide}`: every token of these callers is meant there"
                yield place.at(found.kind, found.number).error(told, "put it first")


def _unreached_limits(stated: _Stated, callers: Sequence[Identity]) -> Iterator[ConfigError]:
    """The same of limits; those of one list are asked in its order."""
    places = {id(one): at for one, at in stated}
    for limits, before in patterns.asked_before([one for one, _ in stated], callers):
        place = places[id(limits)]
        if not before:
            yield place.error(*_NOBODY)
        for wider in patterns.of_all(before):
            at, both = places[id(wider)], {*dict(wider.given())} & {*dict(limits.given())}
            if at.steps[:-1] == place.steps[:-1] and both:
                told = f"never applies, as `for[{at.steps[-1]}]` is asked before it and has one"
                told += ": every token of these callers is meant there"
                yield place.at(min(both)).error(told, "put the narrower one first")


def _hidden_rules(
    sections: _Stated, callers: Iterable[Identity], others: Iterable[tuple[patterns.Section, Place]]
) -> Iterator[ConfigError]:
    """Rules for everybody that apply to nobody, as a section for each caller allows their tools."""
    before = [[one for one, _ in sections if patterns.is_for(one, caller)] for caller in callers]
    for section, place in others:
        if (found := patterns.rule_hidden_by_callers(section, before)) is not None:
            told = "never applies, as a section in `for` is asked before it for every token and has"
            mend = "write it into these sections too"
            yield place.at(found.kind, found.number).error(f"{told} `{found.wide}`", mend)
