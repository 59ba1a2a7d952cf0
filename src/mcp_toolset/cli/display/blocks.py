"""Content blocks of results as text for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["block_text"]


def block_text(block: Mapping[str, Any]) -> str:
    """A text block's text; for any other block its kind and how to get it."""
    match block.get("type"):
        case "text":
            return str(block.get("text", ""))
        case "resource_link":
            return f"[{block.get('name', 'resource')}: {block.get('uri', '')}]"
        case "resource":
            resource: Mapping[str, Any] = block.get("resource") or {}
            return str(resource.get("text") or f"[resource {resource.get('uri', '')}; see --json]")
        case kind:
            return f"[{kind} {block.get('mimeType', '')}; see --json]"
