"""`RegistryAddress`: the key `registry_url` of a file. Nothing of a server changes by it."""

from __future__ import annotations

from typing import ClassVar, Final

from mcp_toolset.extending.extension import Extension


class RegistryAddress(Extension):
    """The registry from which servers are added to a file; see `mcp-toolset add`."""

    key: ClassVar = "registry_url"

    def __init__(self, url: str = "") -> None:
        self.url = url


EXTENSION: Final = RegistryAddress
