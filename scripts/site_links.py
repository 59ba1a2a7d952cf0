"""Links of a page that leave `docs/` become plain text: the site has no such page."""

from __future__ import annotations

import posixpath
import re
from typing import Any

_LINK = re.compile(r"(?<!!)\[([^]]*)\]\((?!https?:|#)([^)#\s]+)(#[^)\s]*)?\)")


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Called by mkdocs with the text of each page."""
    folder = posixpath.dirname(page.file.src_uri)

    def written(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(folder, link[2]))
        inside = not target.startswith("..")
        return link[0] if inside else f"{link[1]} (`{target.lstrip('./')}`)"

    return _LINK.sub(written, markdown)
