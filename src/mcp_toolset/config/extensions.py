"""`Settings`: what a file can say of an extension; how the file's words become settings.

One declaration gives the check with its remedy, the JSON Schema, the reference page, and whether a change
holds at once or from the next start on.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final, Protocol, Self, TypeVar, cast

from mcp_toolset._index import declaring, every_key, homes, loaded, others, owners
from mcp_toolset._records import replace
from mcp_toolset.config.entries import null_rule, validated
from mcp_toolset.config.jsonc import Place
from mcp_toolset.config.tables import Key, Meaning, SessionRule, Table, is_path, keys_of
from mcp_toolset.config.variables import Variables, is_unreplaced
from mcp_toolset.errors import ConfigError


class NamedCaller(Protocol):
    """A caller whom a file names."""

    @property
    def roles(self) -> Sequence[str]: ...

    @property
    def scopes(self) -> Sequence[str]: ...


class Callers(ABC):
    """The callers over HTTP that a file allows."""

    __slots__ = ()

    @property
    @abstractmethod
    def named(self) -> Mapping[str, NamedCaller]:
        """The callers that it names."""

    @property
    def issuers(self) -> Sequence[str]:
        """The authorization servers whose callers it lets in."""
        return ()

    @abstractmethod
    def check(
        self,
        stated: Iterable[tuple[Any, Place]],
        others: Iterable[tuple[Any, Place]],
        warn: Callable[[str], None],
    ) -> None:
        """Refuse, or warn of, what is for callers that there are not; `others` are for every caller."""

    @abstractmethod
    def rules(self) -> Any:
        """The same with its references expanded: a comparable object, whose `authenticator` makes the hook.

        Raises:
            ConfigError: a reference cannot be expanded.
        """


class Settings(Table):
    """Settings of an extension in a file, below its key in the section `toolset`.

    A subclass is a frozen dataclass whose fields are made by `key`. In a file, `true` stands for an object
    without keys, and `false` turns the extension off.

    Attributes:
        says: The meaning of the key itself.
        short: The field that a value of another kind stands for, such as a number; empty for none.
        words: Fields that a text turns on, such as `keys,names`; none where a text is a value.
        by_pattern: The field that the object itself is, where its keys are patterns; empty for none.
        below_pattern: The keys below each pattern, for the reference and the JSON Schema.
        false_is_empty: True if `false` stands for an empty `short`, and does not turn the extension off.
        object_only: The description of the object, if no `true`, `false` or other value stands for it.
        parts: Further tables for the reference, each with its heading, by their names in the JSON Schema.
        adds: True if the settings of several files that are served together are added up.
        protects: True if null, which is an absent key elsewhere, is refused for the key, a misspelt key is
            never ignored, and a program that asks for the extension is not served without it.
        tells: Keys that nothing else has: under a wrong key and in a wrong place they are told by these.
        below: Keys that are known elsewhere too, to say where they belong, by the step to their table.
        synonyms: Other words for its keys by key, and for the key itself by "", in lower case and plain.
        of_clients: True if clients have the key in their files as well, for something else.
        never_null: Fields that protect: null is refused, and what looks like a reference and is none.
    """

    __slots__ = ()

    unknown: ClassVar = "forbid"
    says: ClassVar[Meaning]
    short: ClassVar[str] = ""
    words: ClassVar[tuple[str, ...]] = ()
    by_pattern: ClassVar[str] = ""
    below_pattern: ClassVar[type[Table] | None] = None
    false_is_empty: ClassVar[bool] = False
    object_only: ClassVar[str] = ""
    parts: ClassVar[Mapping[str, tuple[str, type[Table]]]] = {}
    adds: ClassVar[bool] = False
    protects: ClassVar[bool] = False
    tells: ClassVar[tuple[str, ...]] = ()
    below: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    synonyms: ClassVar[Mapping[str, str]] = {}
    of_clients: ClassVar[bool] = False
    never_null: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def read(cls, said: object, place: Place, variables: Variables, servers: Mapping[str, str]) -> Self:
        """The settings that a value stands for, if it is not `false`; by default, references are expanded.

        The arguments are those of `checked`, with the value and the values of references.
        """
        return _read(cls, said, place, variables, servers)

    def checked(self, place: Place, servers: Mapping[str, str]) -> Self:
        """The settings as they hold, after what a check of single values cannot see.

        Args:
            place: The place of the settings, for errors.
            servers: The names of the servers in the file, each with the prefix of its tools, if it is known.

        Raises:
            ConfigError: they cannot hold.
        """
        return self

    def for_callers(self, place: Place) -> Iterable[tuple[Any, Place]]:
        """The parts that are for some callers only (`principals`, `roles`, `scopes`), each with its place."""
        return ()

    @property
    def defers(self) -> bool:
        """True if tools are behind search where the file does not say `deferred`."""
        return False

    def callers(self) -> Callers | None:
        """The callers over HTTP that these settings allow; rules for some callers then apply to somebody."""
        return None


class ServerSettings(Table):
    """Settings of an extension in the entry of one server: the fields are keys of the entry.

    Attributes:
        protects: True if null, which is an absent key elsewhere, is refused for its keys.
        reaches: A name if they decide how the server is reached: servers whose settings differ in one that
            does have no connection in common.
        common: Keys that other clients have as well, or that are common words: they are not missed where
            they stand elsewhere.
        parts: Keys whose values are tables, for the reference and the JSON Schema.
    """

    __slots__ = ()

    reaches: ClassVar[str] = ""
    protects: ClassVar[bool] = True
    common: ClassVar[tuple[str, ...]] = ()
    parts: ClassVar[Mapping[str, type[Table]]] = {}

    def checked(self, place: Place, server: str) -> Self:
        """The settings as `Settings.checked` returns them; `server` is the name of the entry."""
        return self

    def of_entry(self, entry: Any, place: Place, expanded: Callable[..., str]) -> Self:
        """The settings as they hold for a server, once the rest of its entry is read.

        Args:
            entry: The rest, a `ServerConfig`.
            place: The place of the entry.
            expanded: Expands the references in a text, unless the server is disabled; takes the steps to
                the text too.
        """
        return self

    def keywords(self) -> Mapping[str, Any]:
        """The keywords of `RemoteToolset` that say the same."""
        return {name: getattr(self, name) for name in keys_of(type(self)) if name in owners("keywords")}

    @property
    def mounts(self) -> str:
        """The key of these that says what is mounted, beside `command` and `url`; empty if none does."""
        return ""

    @property
    def address(self) -> str:
        """The address that logins are for, empty if there is none; asked if `mounts` says a key."""
        return ""

    def target(self) -> Any:
        """The `MountTarget` to mount; asked if `mounts` says a key."""
        return None

    @property
    def by_caller(self) -> bool:
        """True if each caller has a connection of its own."""
        return False

    @property
    def forwards(self) -> bool:
        """True if each caller's own `Authorization` is sent on."""
        return False

    def linked(self, link: Any, sessions: SessionRule, *, forwards: bool) -> Any:
        """Another `Link` to the server, if they ask for one, over which all callers share one session.

        Args:
            link: The link to the server without this extension.
            sessions: The sharing of sessions by callers.
            forwards: True if headers or credentials of callers are sent on.

        Raises:
            DefinitionError: that does not go together.
        """
        return None

    def idle(self, entry: Mapping[str, object]) -> str:
        """The key of the entry that has no effect unless `toolset` turns the extension on; empty for none."""
        return ""

    def for_callers(self, place: Place) -> Iterable[tuple[Any, Place]]:
        """The parts for some callers only, as in `Settings.for_callers`; `place` is that of the entry."""
        return ()


_Settings = TypeVar("_Settings", bound=Settings)

_NO_FILE: Final = re.compile(r"^(?:-|stdout|stderr|syslog|nul)$|^\$|://|%\w+%", re.IGNORECASE)
"""Texts that other programs write for output that goes elsewhere, or for a variable."""

_SWITCH: Final = "true or false"


def read_settings(
    said: Mapping[str, object], place: Place, variables: Variables, servers: Mapping[str, str]
) -> dict[str, Settings | None]:
    """The settings by key; `None` for an extension that is turned off."""
    found: dict[str, Settings | None] = {}
    for key, value in said.items():
        kind = settings_of(key)
        if value is None:
            if kind is not None and kind.protects:
                raise null_rule(place.at(key))
        elif kind is None:
            raise place.at(key).error("cannot be given in a file", "leave it out")
        elif value is False and not (kind.object_only or kind.false_is_empty):
            found[key] = None
        else:
            found[key] = kind.read(value, place.at(key), variables, servers)
    return found


def _read(
    kind: type[_Settings], said: object, at: Place, variables: Variables, servers: Mapping[str, str]
) -> _Settings:
    known, key = keys_of(kind), str(at.steps[-1])
    table = _as_table(kind, key, said, at, variables)
    is_short = not isinstance(said, dict) and {*table} == {kind.short}
    try:
        made = validated(kind, _expanded(kind, table, at, variables), at)
    except ConfigError:
        if is_short or said is True:
            raise _misshapen(kind, key, at) from None
        raise
    written = {name: getattr(made, name) for name, one in known.items() if is_path(one.schema)}
    for name, path in written.items():
        if path is not None and (path != path.strip() or _NO_FILE.search(path)):
            where = at if is_short else at.at(name)
            raise where.error("is no path of a file", "write a path, and a variable as `${NAME}`")
    paths = {name: Path(variables.path(path)) for name, path in written.items() if path is not None}
    return cast("_Settings", replace(cast("Any", made), **paths) if paths else made).checked(at, servers)


def _as_table(
    kind: type[Settings], key: str, said: object, at: Place, variables: Variables
) -> dict[str, object]:
    """The object that a value stands for."""
    if kind.words and isinstance(said, str):
        text = variables.expand(said, at, lambda _: None)
        return dict.fromkeys(map(str.strip, text.split(",")), True)
    if said is False and kind.false_is_empty:
        return {kind.short: []}
    if kind.short and not isinstance(said, dict | bool):
        return {kind.short: said}
    if said is True and not kind.by_pattern:
        return {}
    if not isinstance(said, dict) or (said and not keys_of(kind)):
        raise _misshapen(kind, key, at)
    named = cast("dict[str, object]", said)
    return {kind.by_pattern: named} if kind.by_pattern else named


def _expanded(
    kind: type[Settings], table: dict[str, object], place: Place, variables: Variables
) -> dict[str, object]:
    for name in kind.never_null:
        if name in table and table[name] is None:
            raise null_rule(place.at(name))
        if is_unreplaced(said := table.get(name)) and str(said).strip():
            raise place.at(name).error(
                f"is the {name} itself, not a reference", "write a reference as `${NAME}`"
            )
    return {
        key: variables.expand(value, place.at(key), lambda _: None) if isinstance(value, str) else value
        for key, value in table.items()
    }


def as_object(said: object, place: Place, form: str) -> dict[str, object]:
    if not isinstance(said, dict):
        raise place.error("should be a valid dictionary", f"write `{place.steps[-1]}` as {form}")
    return cast("dict[str, object]", said)


def _misshapen(kind: type[Settings], key: str, at: Place) -> ConfigError:
    return at.error(f"must be {_forms(kind)}", f"write `{key}` as {_forms(kind)}")


def _forms(kind: type[Settings]) -> str:
    """The forms of a value, for people."""
    known = keys_of(kind)
    if not known:
        return _SWITCH
    if kind.by_pattern:
        return known[kind.by_pattern].description
    name = kind.short or next(iter(known))
    example = f"an object such as {json.dumps({name: _example(known[name])})}"
    if kind.words:
        return f"a text such as {json.dumps(','.join(kind.words[:2]))}, or {example}"
    short = f", {known[kind.short].description}," if kind.short else ""
    switch = "false" if any(one.required for one in known.values()) else "true, false"
    return f"{switch}{short} or {example}"


def _example(one: Key) -> object:
    return None if one.meaning is None else one.meaning.example


def read_server_settings(said: Mapping[str, object], place: Place, server: str) -> dict[str, ServerSettings]:
    """The settings in an entry by the key of their extension, if the entry says anything of it."""
    found: dict[str, dict[str, object]] = {}
    for key, value in said.items():
        if (owner := owners("entry").get(key)) is None:
            continue
        if value is None and (kind := server_settings_of(owner)) is not None and kind.protects:
            raise null_rule(place.at(key))
        found.setdefault(owner, {})[key] = value
    return {
        owner: validated(kind, table, place).checked(place, server)
        for owner, table in found.items()
        if (kind := server_settings_of(owner)) is not None
    }


def settings_of(key: str) -> type[Settings] | None:
    """The settings of an extension in a file; `None` without any, or without such an extension."""
    if (home := homes("key").get(key)) is not None:
        return declaring(home, "settings").SETTINGS
    point = others().get(key)
    return None if point is None else getattr(loaded(point), "Settings", None)


def server_settings_of(key: str) -> type[ServerSettings] | None:
    """The settings of an extension in the entry of a server; `None` without any."""
    home = next((found for kind in ("key", "mount", "reach") if (found := homes(kind).get(key))), None)
    return None if home is None else declaring(home, "settings").SERVER_SETTINGS


def described() -> Iterator[tuple[str, type[Settings]]]:
    """Every extension that a file can name, by key, for the reference and the JSON Schema."""
    return ((key, kind) for key in every_key() if (kind := settings_of(key)) is not None)


def server_settings() -> Iterator[type[ServerSettings]]:
    """The settings of extensions in entries of servers, for the reference and the JSON Schema."""
    every = dict.fromkeys(owners("entry").values())
    return (kind for owner in every if (kind := server_settings_of(owner)) is not None)


def at_restart(before: Settings | None, now: Settings | None) -> bool:
    """True if a change in the file holds from the next start on: one of a key that is not live."""
    if before is None or now is None:
        return before is not now
    known = keys_of(type(before))
    return any(getattr(before, name) != getattr(now, name) and not one.live for name, one in known.items())
