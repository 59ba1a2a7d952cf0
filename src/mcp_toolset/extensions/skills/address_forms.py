"""The forms of an address under which a server may know a file: decoded, and with its dots resolved."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final
from urllib.parse import unquote

from mcp_toolset._records import dataclass
from mcp_toolset.extensions.skills.frontmatter import SCHEME

MAX_DECODED: Final = 8  # times that an address is decoded
MAX_DEPTH: Final = 256  # parts of the folder of a skill

_ENDING: Final = re.compile(r"\{[/?#;&][^{}]*\}")  # expressions of templates that end a part of the path
_SEPARATOR: Final = re.compile(r"[/\\?#]")
_DROPPED: Final = str.maketrans("", "", "\t\r\n")  # characters that parsers of addresses leave out


@dataclass(frozen=True, slots=True)
class AddressForm:
    """An address in parts, which servers may compare."""

    scheme: str
    parts: tuple[str, ...]

    @property
    def is_of_skills(self) -> bool:
        """True for the scheme of skills, also of those that a further bridge has."""
        return self.scheme.rpartition("+")[2] == SCHEME

    def folders(self) -> Iterator[AddressForm]:
        """The address itself, and the folders that it is in, as far as folders of skills are deep."""
        for count in range(min(len(self.parts), MAX_DEPTH), 0, -1):
            yield AddressForm(self.scheme, self.parts[:count])


def forms_of(uri: str) -> list[AddressForm]:
    """The forms of an address or a template after each decoding of `%…`, until nothing is left to decode."""
    forms: list[AddressForm] = []
    for _ in range(MAX_DECODED):
        forms += _forms(uri)
        decoded = unquote(uri)
        if decoded == uri:
            break
        uri = decoded
    return list(dict.fromkeys(forms))


def _forms(uri: str) -> list[AddressForm]:
    """The forms of an address without a decoding: as it stands, and with its dots resolved in two ways."""
    scheme, _, rest = _ENDING.sub("/", uri.translate(_DROPPED).strip()).partition(":")
    parts = [part for part in _SEPARATOR.split(rest) if part]
    if parts:
        parts[0] = parts[0].lower()  # the host
    # To a parser of addresses, the first part is the host, which `..` keeps.
    is_plain = "." not in parts and ".." not in parts
    ways = [parts] if is_plain else [parts, _resolved(parts, 0), _resolved(parts, 1)]
    return [AddressForm(scheme.lower(), tuple(way)) for way in ways]


def _resolved(parts: Sequence[str], kept: int) -> Sequence[str]:
    made = list(parts[:kept])
    for part in parts[kept:]:
        if part == "..":
            del made[max(kept, len(made) - 1) :]
        elif part != ".":
            made.append(part)
    if made:
        made[0] = made[0].lower()
    return made
