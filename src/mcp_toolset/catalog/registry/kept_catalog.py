"""`KeptCatalog`: the last lists of a mounted server as plain data, to be served at the next start.

As JSON it is an object with `format`, `version`, `server`, `instructions`, `capabilities`, `tools` and
`offers`. It is a cache: if it cannot be read it is ignored, and the next listing replaces it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from mcp_toolset.errors import InvalidStateError

FORMAT: Final = "mcp-toolset/catalog"
VERSION: Final = 1

Wire = Mapping[str, Any]


def _nothing() -> Wire:
    return {}


@dataclass(frozen=True, slots=True)
class KeptCatalog:
    """One server's lists and its description of itself, without the secrets of its mount.

    Attributes:
        tools: The usable tools in wire form, before pins and policies apply.
        server: Its description of itself (`serverInfo`).
        instructions: Its text for the model.
        capabilities: Its declared capabilities.
        offers: The entries of its other lists, by the method that lists them.
    """

    tools: Sequence[Wire] = ()
    server: Wire = field(default_factory=_nothing)
    instructions: str = ""
    capabilities: Wire = field(default_factory=_nothing)
    offers: Mapping[str, Sequence[Wire]] = field(default_factory=dict[str, Sequence[Wire]])

    def to_json(self) -> str:
        """The catalog as JSON."""
        head = {"format": FORMAT, "version": VERSION, "server": self.server}
        rest = {
            "instructions": self.instructions,
            "capabilities": self.capabilities,
            "tools": self.tools,
            "offers": self.offers,
        }
        return json.dumps({**head, **rest}, ensure_ascii=True)

    @classmethod
    def from_json(cls, text: str | bytes) -> KeptCatalog:
        """The catalog that `to_json` wrote.

        Raises:
            InvalidStateError: it is not JSON, or of another format or version.
        """
        try:
            data: Any = json.loads(text)
        except (ValueError, RecursionError):
            raise InvalidStateError("it is no JSON") from None
        try:
            read = _CatalogData.model_validate(data)
        except ValidationError as fault:
            first = fault.errors(include_url=False, include_context=False, include_input=False)[0]
            raise InvalidStateError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None
        if (read.format, read.version) != (FORMAT, VERSION):
            raise InvalidStateError(f"it is of the format {read.format!r}, version {read.version}")
        return cls(read.tools, read.server, read.instructions, read.capabilities, read.offers)


class _CatalogData(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True, defer_build=True)

    format: str
    version: int
    server: dict[str, Any] = Field(default_factory=dict)
    instructions: str = ""
    capabilities: dict[str, Any] = Field(default_factory=dict)
    tools: list[dict[str, Any]] = Field(default_factory=list[dict[str, Any]])
    offers: dict[str, list[dict[str, Any]]] = Field(default_factory=dict[str, list[dict[str, Any]]])
