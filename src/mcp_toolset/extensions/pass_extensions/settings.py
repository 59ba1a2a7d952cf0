"""Settings of what is passed on: by default for all servers, and in the entry of one server."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final, Self, cast

from mcp_toolset._records import dataclass
from mcp_toolset.config.extensions import ServerSettings, Settings
from mcp_toolset.config.jsonc import Place
from mcp_toolset.config.tables import BOOL, TEXTS, Meaning, any_of, key

_EXAMPLE: Final = ["com.example/lamps"]
_NO_PART: Final = re.compile(r"""^[!~+-]|\[\^|[{}|\\^$()<>"'`,;%=&#+\s]|(?:^|(?<=[/_-]))\.[*+]""")
"""Characters of other notations of patterns, which identifiers do not have."""


def fault_of(pattern: str) -> tuple[str, str] | None:
    """The fault of a pattern that fits no identifier, or is of another notation; and the remedy."""
    if not pattern:
        return "is empty, and so fits nothing", "write an identifier such as `com.example/lamps`"
    if not pattern.isprintable():
        return "has hidden characters, and so fits nothing", "remove them"
    rest = re.sub(r"\[!?\]?[^\]]+\]", "", pattern)
    if (match := _NO_PART.search(pattern) or re.search(r"[][]", rest)) is not None:
        return (
            f"has `{match[0]}`, which a pattern does not have",
            "use `*`, `?` and `[abc]`, and an item for each alternative; what no item fits does not pass",
        )
    return None


def _check(patterns: Sequence[str], place: Place) -> None:
    for pattern in patterns:
        if fault := fault_of(pattern):
            raise place.error(f"{pattern!r} {fault[0]}", fault[1])


@dataclass(frozen=True, slots=True, kw_only=True)
class PassExtensionsSettings(Settings):
    """The extensions of mounted servers that are passed on."""

    says: ClassVar = Meaning(
        "Which [extensions of the protocol](passing-extensions.md) that the bridge does not know are passed "
        "on between clients and servers that both declare them: `false` for none, `true` for all, a list of "
        "identifiers or patterns of them, or an object. By default all are if there is no policy, and none "
        "if there is one.",
        _EXAMPLE,
    )
    short: ClassVar = "names"
    false_is_empty: ClassVar = True
    protects: ClassVar = True
    never_null: ClassVar = ("names",)

    names: Sequence[str] = key(
        TEXTS,
        "a list of identifiers or patterns of them",
        ("*",),
        meaning="The identifiers, or patterns of them such as `com.example/*`.",
        example=_EXAMPLE,
    )

    def checked(self, place: Place, servers: Mapping[str, str]) -> Self:
        _check(self.names, place)
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class PassExtensionsOfServer(ServerSettings):
    """The extensions of one server that are passed on."""

    pass_extensions: Any = key(
        any_of(BOOL, TEXTS),
        "true, false or a list of identifiers",
        meaning="Which [extensions of the protocol](passing-extensions.md) that the bridge does not know are "
        "passed on to this server and from it, in place of what `toolset` says.",
        example=_EXAMPLE,
    )

    def checked(self, place: Place, server: str) -> Self:
        patterns = self.pass_extensions
        if not isinstance(patterns, bool):
            _check(cast("Sequence[str]", patterns), place.at("pass_extensions"))
        return self


SETTINGS: Final = PassExtensionsSettings
SERVER_SETTINGS: Final = PassExtensionsOfServer
