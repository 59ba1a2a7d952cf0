"""`published_schema`: the JSON Schema of configuration files, as the package has it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from mcp_toolset._index import others

FILE: Final = Path(__file__).with_name("mcp-toolset.schema.json")


def published_schema() -> str:
    """The text of the schema; `schema` makes it from the models, and anew with extensions of others."""
    if others():
        from mcp_toolset.config.reference.schema import schema_text

        return schema_text()
    return FILE.read_text(encoding="utf-8")
