"""Settings of profiles: by name, what each has of the tools of its file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Any, ClassVar, Final, Literal, Self, cast

from mcp_toolset._index import marked
from mcp_toolset._records import dataclass, replace
from mcp_toolset.config.entries import validated
from mcp_toolset.config.extensions import Settings, read_settings
from mcp_toolset.config.jsonc import Place
from mcp_toolset.config.rule_patterns import check_patterns
from mcp_toolset.config.tables import ANY, LIST_OF_TEXTS, TABLE, TEXT, TEXT_TABLE, Meaning, Table, key, one_of
from mcp_toolset.config.variables import Variables
from mcp_toolset.errors import DefinitionError
from mcp_toolset.extending.host import ViewOptions
from mcp_toolset.security.patterns import TAG, Permissions, Section, check_pattern, split_hint
from mcp_toolset.tools.definition import check_public_name

NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
"""The name of a profile, which is a part of its address."""

_FEW: Final = 'an object such as {"reading": {"tools": ["readOnly:*"]}}'
_EXAMPLE: Final = {"reading": {"tools": ["readOnly:*"]}}
_NO_LIMITS: Final[Mapping[str, Settings]] = MappingProxyType({})

Surface = Literal["list", "search", "code"]
"""The way of clients to tools: all on the list, behind search, or behind search with code that calls them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileEntry(Table):
    """One profile in a file; `Profile` is what it becomes."""

    unknown: ClassVar = "forbid"

    tools: list[str] | None = key(
        {"type": "list", "items_schema": {**TEXT, "coerce_numbers_to_str": False}, "min_length": 1},
        LIST_OF_TEXTS + " such as `github/*` or `readOnly:*`",
        meaning="Patterns of its tools; other tools do not exist in it. Unless given, it has all.",
        example=["github/*", "readOnly:*"],
    )
    names: Mapping[str, str] = key(
        TEXT_TABLE,
        "an object of names by names",
        {},
        meaning="Other names for its tools, by the names that `mcp-toolset list` shows.",
        example={"github_search_code": "find_code"},
    )
    permissions: Any = key(
        ANY,
        "an object with `allow`, `ask` or `deny`",
        meaning="[Permissions](policies.md) besides those of the file; the strictest verdict counts.",
        example={"ask": ["destructive:*"]},
        published={"$ref": "#/$defs/permissions"},
    )
    limits: Any = key(
        ANY,
        "an object of limits by pattern",
        meaning="[Limits](limits.md) besides those of the file, which all profiles count together.",
        example={"*": {"rate": "30/min"}},
        published={"type": "object"},
    )
    instructions: str | None = key(
        TEXT, "a string", meaning="Text for the model about this profile.", example="Tools for triage."
    )
    surface: Surface | None = key(
        one_of("list", "search", "code"),
        "list, search or code",
        meaning="All tools on the list, all behind [search](catalog.md), or behind search with "
        "[code](code-mode.md); unless given, as the file says.",
        example="search",
    )
    auth: Any = key(
        ANY,
        "true, or an object with `principals`, `roles` or `scopes`",
        meaning="Who may use it, by the [login](authentication.md) of the file: every caller with one, or "
        "some callers. It does not exist for others.",
        example={"roles": ["oncall"]},
        published={"type": ["boolean", "object"]},
    )


@dataclass(frozen=True, slots=True)
class Profile:
    """A profile as it holds.

    Attributes:
        options: Its part of the server.
        callers: The callers that may use it; `None` for every client.
    """

    options: ViewOptions
    callers: Section | None = None

    @property
    def name(self) -> str:
        return self.options.name


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfilesSettings(Settings):
    """The profiles of a file, by name."""

    says: ClassVar = Meaning(
        "[Profiles](profiles.md) by name: views of the servers, each with an address.", _EXAMPLE
    )
    by_pattern: ClassVar = "profiles"
    below_pattern: ClassVar = ProfileEntry
    protects: ClassVar = True

    profiles: Mapping[str, Any] = key(TABLE, _FEW, {}, live=True)

    @classmethod
    def read(cls, said: object, place: Place, variables: Variables, servers: Mapping[str, str]) -> Self:
        if not isinstance(said, dict):
            raise place.error(f"must be {_FEW}", f"write `profiles` as {_FEW}")
        named = cast("dict[str, object]", said)
        found = {name: _profile(name, one, place.at(name), variables, servers) for name, one in named.items()}
        return replace(cls(), profiles=MappingProxyType(found))

    def for_callers(self, place: Place) -> Iterator[tuple[Any, Place]]:
        for name, one in cast("Mapping[str, Profile]", self.profiles).items():
            if one.callers is not None:
                yield one.callers, place.at(name, "auth")
            for number, some in enumerate(one.options.permissions.callers if one.options.permissions else ()):
                yield some, place.at(name, "permissions", "for", number)
            for stated in one.options.settings.values():
                yield from stated.for_callers(place.at(name, "limits"))


def _profile(
    name: str, said: object, place: Place, variables: Variables, servers: Mapping[str, str]
) -> Profile:
    if not NAME.fullmatch(name):
        raise place.error(
            "is no name of a profile, which is a part of an address",
            "use small letters, digits, `-` and `_`, at most 64",
        )
    entry = validated(ProfileEntry, said, place)
    tools = ("*",) if entry.tools is None else tuple(entry.tools)
    _check_tools(tools, place.at("tools"), servers)
    _check_names(entry.names, place.at("names"))
    options = ViewOptions(
        name,
        place=place.path,
        tools=tools,
        names=MappingProxyType(dict(entry.names)),
        permissions=_permissions(entry.permissions, place.at("permissions"), servers),
        settings=_besides(entry.limits, place, variables, servers),
        instructions=entry.instructions,
        defers=None if entry.surface is None else entry.surface != "list",
        extensions=_extensions(entry.surface),
    )
    for where, rules in _rules_of(options, entry.limits):
        _check_renamed(rules, entry.names, place.at(where))
    return Profile(options, _callers(entry.auth, place.at("auth")))


def _check_tools(tools: tuple[str, ...], place: Place, servers: Mapping[str, str]) -> None:
    for number, pattern in enumerate(tools):
        try:
            check_pattern(pattern, "tools")
        except DefinitionError as fault:
            raise place.at(number).error(str(fault).removeprefix("tools: "), "correct the pattern") from None
    check_patterns(((one, place.at(number)) for number, one in enumerate(tools)), servers)


def _check_names(names: Mapping[str, str], place: Place) -> None:
    if not names:
        return
    from mcp_toolset.catalog.deferred.catalog import SCHEMAS

    owners: dict[str, str] = {}
    for before, after in names.items():
        try:
            check_public_name(after, before)
        except DefinitionError as fault:
            raise place.at(before).error(str(fault).partition(": ")[2], "choose another name") from None
        if after in SCHEMAS:
            raise place.at(before).error(
                f"is called `{after}`, which is a name of the bridge's own tools", "choose another name"
            )
        if owners.setdefault(after, before) != before:
            raise place.at(before).error(
                f"is called `{after}`, as `{owners[after]}` is", "choose another name"
            )


def _rules_of(options: ViewOptions, limits: object) -> Iterator[tuple[str, Iterable[tuple[str, bool]]]]:
    """The patterns by key, each with whether it fits by the name that a tool has on its own server, too."""
    yield "tools", ((one, False) for one in options.tools)
    if (stated := options.permissions) is not None:
        every = (each for section in stated.sections() for each in section.patterns())
        yield "permissions", ((pattern, kind != "allow") for kind, pattern in every)
    yield "limits", ((one, False) for one in cast("dict[str, Any]", limits or {}))


def _check_renamed(rules: Iterable[tuple[str, bool]], names: Mapping[str, str], place: Place) -> None:
    """Refuse a rule that fits a tool by its new name alone, as rules are for the names at the hub."""
    for pattern, by_own in rules:
        hint, name = split_hint(pattern)
        if hint == TAG or "/" in name or name in names:
            continue
        for before, after in names.items():
            known = [before]
            if by_own:
                known += (before[at + 1 :] for at, letter in enumerate(before) if letter == "_")
            if fnmatchcase(after, name) and not any(fnmatchcase(one, name) for one in known):
                raise place.error(
                    f"`{pattern}` fits the new name `{after}`, and patterns are for the names at the hub",
                    f"write `{before}` for it; for other tools write `server/tool`",
                )


def _permissions(said: object, place: Place, servers: Mapping[str, str]) -> Permissions | None:
    if said is None:
        return None
    from mcp_toolset.config.rule_patterns import check_permissions
    from mcp_toolset.config.sections import permissions_at

    check_permissions(Place(place.source, place.steps[:-1]), servers, said)
    return permissions_at(said, place)


def _besides(
    limits: object, place: Place, variables: Variables, servers: Mapping[str, str]
) -> Mapping[str, Settings]:
    if limits is None:
        return _NO_LIMITS
    if "limits" not in marked("adds"):
        raise place.at("limits").error("cannot be given: limits are not installed", "remove it")
    found = read_settings({"limits": limits}, place, variables, servers)
    return MappingProxyType({name: one for name, one in found.items() if one is not None})


def _extensions(surface: Surface | None) -> Mapping[str, bool]:
    """The extensions to turn on or off beside search, such as code."""
    if surface is None:
        return MappingProxyType({})
    return MappingProxyType({name: name == surface for name in marked("deferred")})


def _callers(said: object, place: Place) -> Section | None:
    if said is None or said is False:
        return None
    if said is True:
        return Section(place.path)
    from mcp_toolset.config.sections import CallersEntry

    principals, roles, scopes = validated(CallersEntry, said, place).who(place)
    return Section(place.path, principals=principals, roles=roles, scopes=scopes)


SETTINGS: Final = ProfilesSettings
