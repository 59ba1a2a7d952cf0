"""`with_app_address`: a mounted tool names the page of its app by the public address of that page."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, cast

from mcp_toolset._records import replace
from mcp_toolset.server.offers.public_uris import app_uri
from mcp_toolset.tools.view.view import ToolBinding

_PAGE_KEYS: Final = ("ui/resourceUri", "openai/outputTemplate")
_PAGES: Final = ("ui", *_PAGE_KEYS)
"""Keys of a tool's `_meta` under which the page of its app stands; all but the first hold its address."""


def with_app_address(binding: ToolBinding, prefixes: Callable[[], Mapping[str, str]]) -> ToolBinding:
    """The binding of a tool under the public address of its page, if it has one.

    Args:
        binding: The tool.
        prefixes: Gives what stands before the pages of each mounted source's apps.
    """
    meta = binding.definition.meta
    if not binding.source or not meta or not any(key in meta for key in _PAGES):
        return binding
    apps = prefixes()

    def public(uri: Any) -> Any:
        return (app_uri(apps, binding.source, uri) if isinstance(uri, str) else None) or uri

    changed = {key: public(meta[key]) for key in _PAGE_KEYS if key in meta}
    ui = meta.get("ui")
    if isinstance(ui, Mapping) and "resourceUri" in ui:
        page = cast("Mapping[str, Any]", ui)
        changed["ui"] = {**page, "resourceUri": public(page["resourceUri"])}
    return replace(binding, definition=replace(binding.definition, meta={**meta, **changed}))
