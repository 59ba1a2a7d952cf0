"""The keys of a server's entry that say how it is reached for whom: logins, and what is sent of callers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

from mcp_toolset._records import dataclass, replace
from mcp_toolset.config.extensions import ServerSettings
from mcp_toolset.config.jsonc import Place
from mcp_toolset.config.tables import ANY, BOOL, TEXT_TABLE, key
from mcp_toolset.extensions.upstream_access.entries import LOGINS, server_auth

if TYPE_CHECKING:
    from mcp_toolset.config.models import ServerConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessOfServer(ServerSettings):
    """How the bridge, or each caller, is let in by a server; `auth` is an object from `of_entry` on."""

    reaches: ClassVar = "access"
    protects: ClassVar = False
    common: ClassVar = ("auth", "oauth")

    auth: Any = key(
        ANY,
        '"oauth" or an object such as {"type": "oauth"}',
        meaning="How to [log in to the server](upstream-login.md), once or "
        "[for each caller](upstream-login.md#say-who-calls).",
        example="oauth",
        published={
            "anyOf": [{"enum": [*LOGINS]}, *({"$ref": f"#/$defs/login_{name}"} for name in LOGINS)],
        },
        secret=True,
    )
    oauth: Any = key(
        ANY,
        "an object, as other clients write it",
        meaning="`auth`, as other clients write it: `clientId`, `clientSecret`, `scopes` and `callbackPort` "
        "are read.",
        example={"clientId": "desktop"},
        published={"type": "object"},
        secret=True,
    )
    forward_authorization: bool = key(
        BOOL,
        "true or false",
        False,
        meaning="Sends each caller's own `Authorization` on to the server.",
        example=True,
    )
    forward: Mapping[str, str] = key(
        TEXT_TABLE,
        'an object such as {"X-User": "identity.name"}',
        {},
        meaning="Headers that tell the server [who calls](upstream-login.md#say-who-calls).",
        example={"X-User": "identity.name"},
    )

    def of_entry(self, entry: ServerConfig, place: Place, expanded: Callable[..., str]) -> Self:
        """See `ServerSettings`."""
        if entry.transport == "stdio" and self.auth is not None:
            raise place.at("auth").error("is for a server at a URL", "give a program its secrets in `env`")
        if entry.transport == "stdio" or entry.disabled:
            return replace(self, auth=None, oauth=None)
        return replace(self, auth=server_auth(self.auth, self.oauth, place, expanded), oauth=None)

    def keywords(self) -> Mapping[str, Any]:
        """See `ServerSettings`."""
        said = {"forward": self.forward, "forward_authorization": self.forward_authorization}
        return {"auth": self.auth, **said}

    @property
    def by_caller(self) -> bool:
        return bool(self.forward)

    @property
    def forwards(self) -> bool:
        return self.forward_authorization


SERVER_SETTINGS: Final = AccessOfServer
