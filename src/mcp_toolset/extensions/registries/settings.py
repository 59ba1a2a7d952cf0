"""The registry of a file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final

from mcp_toolset._records import dataclass
from mcp_toolset.config.extensions import Settings
from mcp_toolset.config.jsonc import Place
from mcp_toolset.config.tables import TEXT, Meaning, key
from mcp_toolset.security.egress import MEND_ADDRESS, is_web_address


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrySettings(Settings):
    """The registry in which `mcp-toolset add` and `registry` look for servers."""

    says: ClassVar = Meaning(
        "The [registry](registries.md) in which `mcp-toolset add` and `registry` look for servers.",
        "https://registry.example.com",
    )
    short: ClassVar = "url"

    url: str = key(
        TEXT,
        "the address of a registry",
        "",
        meaning="The address of a registry that speaks the API of the MCP registry.",
        example="https://registry.example.com",
    )

    def checked(self, place: Place, servers: Mapping[str, str]) -> RegistrySettings:
        if not is_web_address(self.url):
            raise place.error("is no address of a registry", MEND_ADDRESS)
        return self


SETTINGS: Final = RegistrySettings
