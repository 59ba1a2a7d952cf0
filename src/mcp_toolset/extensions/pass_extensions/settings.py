"""Settings of what is passed on: by default for all servers, and in the entry of one server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Final

from mcp_toolset._records import dataclass
from mcp_toolset.config.extensions import ServerSettings, Settings
from mcp_toolset.config.tables import BOOL, TEXTS, Meaning, any_of, key

_EXAMPLE: Final = ["com.example/lamps"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PassExtensionsSettings(Settings):
    """Which extensions of mounted servers are passed on."""

    says: ClassVar = Meaning(
        "Which [extensions of the protocol](passing-extensions.md) that the bridge does not know are passed "
        "on between clients and servers that both declare them: `false` for none, `true` for all, a list of "
        "identifiers or patterns of them, or an object. By default all are if there is no policy, and none "
        "if there is one.",
        _EXAMPLE,
    )
    short: ClassVar = "names"

    names: Sequence[str] = key(
        TEXTS,
        "a list of identifiers or patterns of them",
        ("*",),
        meaning="The identifiers, or patterns of them such as `com.example/*`.",
        example=_EXAMPLE,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PassExtensionsOfServer(ServerSettings):
    """Which extensions of one server are passed on."""

    pass_extensions: Any = key(
        any_of(BOOL, TEXTS),
        "true, false or a list of identifiers",
        meaning="Which [extensions of the protocol](passing-extensions.md) that the bridge does not know are "
        "passed on to this server and from it, in place of what `toolset` says.",
        example=_EXAMPLE,
    )


SETTINGS: Final = PassExtensionsSettings
SERVER_SETTINGS: Final = PassExtensionsOfServer
