"""What is passed on and kept of a mounted server: plain data without the secrets of its mount."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, cast

from mcp_toolset.catalog.pins.policy import scrubbed
from mcp_toolset.catalog.registry.kept_catalog import KeptCatalog
from mcp_toolset.catalog.snapshot import CatalogSnapshot
from mcp_toolset.tools.text.hidden_text import cleaned_metadata
from mcp_toolset.upstream.server_info import ServerInfo
from mcp_toolset.upstream.target import Link

LONGEST_ICON: Final = 2048
"""Characters of an icon's address; a longer one is an image of its own, and is left out."""

Wire = Mapping[str, Any]


def keep_key(link: Link, *settings: str | bool | Collection[str]) -> str | None:
    """What the lists of a mount are kept under: a digest of its name, its address and how it is spoken to.

    Credentials in headers and environment are no part of it. A server of this process has none.
    """
    if link.facts.in_process:
        return None
    how = [one if isinstance(one, str | bool) else sorted(one) for one in settings]
    return hashlib.sha256(json.dumps([link.name, link.identity, *how]).encode()).hexdigest()[:32]


def catalog_of(
    link: Link,
    listed: CatalogSnapshot,
    *,
    server: ServerInfo | None,
    instructions: str,
    capabilities: Wire,
    offers: Mapping[str, Sequence[Wire]],
) -> KeptCatalog:
    """What is to be kept of a server that is ready."""
    tools = [tool.definition.to_wire() for tool in listed.tools.values()]
    about = {} if server is None else dict(server.wire)
    plain = {method: [dict(entry) for entry in entries] for method, entries in offers.items()}
    catalog = KeptCatalog(tools, about, instructions, capabilities, plain)
    if not link.secrets:
        return catalog
    return KeptCatalog(
        [tool for tool in _clean(link, tools) if tool.get("name") in listed.tools],
        _clean(link, about),
        link.scrubbed(instructions),
        _clean(link, capabilities),
        _clean(link, plain),
    )


def introduction(server: ServerInfo | None, link: Link) -> dict[str, Any]:
    """What a server says about itself, in wire form: without secrets, hidden text and big icons."""
    if server is None:
        return {}
    wire = dict(server.wire)
    icons = [icon for icon in wire.pop("icons", ()) if len(str(icon.get("src", ""))) <= LONGEST_ICON]
    if icons:
        wire["icons"] = icons
    return cast("dict[str, Any]", cleaned_metadata(link.cleaned(wire)))


def _clean(link: Link, value: Any) -> Any:
    return scrubbed(value, link.scrubbed)
