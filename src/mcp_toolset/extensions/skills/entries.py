"""Entries of `skills/list` of mounted servers: checked, and with the addresses that clients have."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, cast

from pydantic_core import to_json

from mcp_toolset.extensions.skills.frontmatter import SKILL_FILE, fault_of, files_fault
from mcp_toolset.tools.hidden_text import hidden_in

DYNAMIC: Final = "dynamic"
"""In place of the files of a skill whose content is generated, so that it has no digests."""

_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")

Entry = Mapping[str, Any]


def entry_fault(entry: object) -> str:
    """Why the entry of a server breaks the rules of SEP-2640; empty if it does not."""
    if not isinstance(entry, Mapping):
        return "it is no object"
    known = cast("Entry", entry)
    uri, frontmatter, files = known.get("uri"), known.get("frontmatter"), known.get("resources")
    if not isinstance(uri, str) or not uri.endswith(f"/{SKILL_FILE}") or "://" not in uri:
        return f"its address is {uri!r}, which is none of a {SKILL_FILE}"
    if not isinstance(frontmatter, Mapping):
        return "it has no frontmatter"
    folder = uri.removesuffix(f"/{SKILL_FILE}").rpartition("/")[2]
    if fault := fault_of(cast("Entry", frontmatter), folder):
        return fault
    # A host compares it with the file, so nothing can be taken out of it.
    if hidden := hidden_in(to_json(frontmatter).decode()):
        return f"its frontmatter has hidden text: {', '.join(hidden)}"
    if files == DYNAMIC:
        return ""
    if not isinstance(files, list):
        return "it lists no files"
    every: list[Any] = [file if isinstance(file, dict) else {} for file in cast("list[Any]", files)]
    return _files_fault(every, uri)


def _files_fault(files: Sequence[Entry], uri: str) -> str:
    root, paths = uri.removesuffix(SKILL_FILE), list[str]()
    for file in files:
        address, size, digest = file.get("uri"), file.get("size"), file.get("digest")
        if not isinstance(address, str) or not address.startswith(root) or "/../" in address:
            return f"it lists {address!r}, which is not in its folder"
        if type(size) is not int or size < 0:
            return f"the size of {address} is {size!r}"
        if not isinstance(digest, str) or _DIGEST.fullmatch(digest) is None:
            return f"the digest of {address} is {digest!r}"
        paths.append(address)
    twice = [address for address, count in Counter(paths).items() if count > 1]
    if twice:
        return f"it lists {twice[0]} twice"
    if uri not in paths:
        return f"it does not list its own {SKILL_FILE}"
    return files_fault([one["size"] for one in files])


def public(entry: Entry, address: Callable[[str], str]) -> dict[str, Any]:
    """The entry with the addresses that clients have; digests, sizes and all else stay."""
    files: Any = entry["resources"]
    if files != DYNAMIC:
        files = [{**file, "uri": address(file["uri"])} for file in files]
    return {**entry, "uri": address(entry["uri"]), "resources": files}
