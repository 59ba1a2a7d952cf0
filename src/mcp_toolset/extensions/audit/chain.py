"""The chain of an audit log: lines with a number, their own digest and that of the line before, and a head.

A line is one JSON object. Its first members are always `seq`, `prev` and `event`, its last one is `digest`:
a reader can follow the chain on bytes alone. `digest` is the SHA-256 of the line's bytes up to there, an
HMAC if the log has a key; `prev` is the `digest` of the line before. The head seals the end of the log.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, cast

from mcp_toolset._records import dataclass
from mcp_toolset.errors import DefinitionError

FIRST: Final = "0" * 64
"""What the first line of a log has as the digest of the line before it."""

HEAD_SIZE: Final = 512
"""Bytes of the file of a head: it is overwritten in place, with one small write."""

LONGEST_LINE: Final = 65_536
"""Bytes of the longest line."""

_SHORTEST_KEY: Final = 16
"""Characters of the key of a log."""

OWN: Final = frozenset({"seq", "prev", "event", "time", "digest"})
"""Members that the chain itself gives to a line."""

_DIGEST: Final = b',"digest":"'
_ENDING: Final = len(_DIGEST) + len(FIRST) + len(b'"}')


@dataclass(frozen=True, slots=True)
class Seal:
    """The digests of a log: SHA-256, or HMAC-SHA-256 with keys that are derived from the log's key."""

    key: bytes | None = None

    def digest(self, data: bytes) -> str:
        if self.key is None:
            return hashlib.sha256(data).hexdigest()
        return hmac.digest(self.key, data, "sha256").hex()

    def digest_of(self, line: bytes) -> str:
        """The digest that a line, without its line feed, ends with; empty if the line is not its writer's."""
        said, ending = line[:-_ENDING], line[-_ENDING:]
        digest = self.digest(said)
        return digest if hmac.compare_digest(ending, b'%s%s"}' % (_DIGEST, digest.encode())) else ""

    def head(self, head: Head) -> str:
        """The digest of what a head says: one who has no key cannot make the head of a shorter log."""
        said = f"head {head.seq} {head.digest} {head.size} {head.salt}".encode(errors="replace")
        return self.digest(said)

    @property
    def is_keyed(self) -> bool:
        """Whether a key is needed to make or to check these digests."""
        return self.key is not None


@dataclass(frozen=True, slots=True)
class Head:
    """Where a log ends, in a small file beside it: without it, a cut end could not be seen.

    Attributes:
        seq: The number of the last line.
        digest: The digest of the last line.
        size: The size of the newest file, which ends with that line.
        salt: What the digests of arguments are keyed with, so that small values cannot be guessed.
    """

    seq: int = 0
    digest: str = FIRST
    size: int = 0
    salt: str = ""

    def encoded(self, seal: Seal) -> bytes:
        salt, keyed = json.dumps(self.salt), "true" if seal.is_keyed else "false"
        said = f'"seq": {self.seq}, "digest": "{self.digest}", "size": {self.size}, "salt": {salt}'
        text = f'{{{said}, "keyed": {keyed}, "seal": "{seal.head(self)}"}}'
        return text.ljust(HEAD_SIZE - 1).encode() + b"\n"

    @staticmethod
    def path_of(log: Path) -> Path:
        return log.with_name(f"{log.name}.head")


@dataclass(frozen=True, slots=True)
class ReadHead:
    """A head as it was read from its file.

    Attributes:
        head: What it says.
        keyed: Whether the log has a key.
        seal: The digest by which it can be checked.
    """

    head: Head
    keyed: bool
    seal: str

    @classmethod
    def of(cls, data: bytes) -> ReadHead | None:
        """The head in the content of a file; `None` if it is none."""
        try:
            found = cast("dict[str, Any]", json.loads(data))
            head = Head(int(found["seq"]), str(found["digest"]), int(found["size"]), str(found["salt"]))
            return cls(head, bool(found["keyed"]), str(found["seal"]))
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
            return None

    def is_sealed(self, seal: Seal) -> bool:
        """Whether the log's own writer wrote it."""
        return self.keyed == seal.is_keyed and hmac.compare_digest(
            self.seal.encode(errors="replace"), seal.head(self.head).encode()
        )


class Chain:
    """Numbers the lines of a log and chains them.

    Attributes:
        seq: The number of the last line.
        digest: The digest of the last line.
    """

    def __init__(self, seal: Seal, seq: int = 0, digest: str = FIRST) -> None:
        self._seal = seal
        self.seq = seq
        self.digest = digest

    def expected(self) -> bytes:
        """What the next line begins with."""
        return b'{"seq":%d,"prev":"%s","event":' % (self.seq + 1, self.digest.encode())

    def line(self, event: str, time: str, fields: Mapping[str, Any]) -> bytes:
        """The next line, without its line feed."""
        said = {"event": event, "time": time, **{k: v for k, v in fields.items() if k not in OWN}}
        return self.line_of(_encode(said)[len('{"event":') :])

    def line_of(self, rest: str) -> bytes:
        """The next line, of the JSON text that follows `"event":`, up to the brace that ends the line."""
        said = f'{{"seq":{self.seq + 1},"prev":"{self.digest}","event":{rest[:-1]}'.encode()
        if len(said) + _ENDING > LONGEST_LINE:
            raise ValueError(f"a line of {len(said)} bytes; at most {LONGEST_LINE} are kept")
        self.seq += 1
        self.digest = self._seal.digest(said)
        return b'%s%s%s"}' % (said, _DIGEST, self.digest.encode())

    def follow(self, line: bytes) -> bool:
        """Go on after a line, if it is the next one and has its own digest."""
        if not line.startswith(self.expected()) or not (digest := self._seal.digest_of(line)):
            return False
        self.seq, self.digest = self.seq + 1, digest
        return True


_encode: Final = json.JSONEncoder(separators=(",", ":"), allow_nan=False, check_circular=True).encode


def seal_of(key: str | bytes | None) -> Seal:
    """The digests that belong to a key."""
    if key is None:
        return Seal()
    data = key.encode() if isinstance(key, str) else key
    if len(data) < _SHORTEST_KEY:
        raise DefinitionError(f"the key of an audit log has at least {_SHORTEST_KEY} characters")
    return Seal(hashlib.sha256(b"mcp-toolset audit log\n" + data).digest())
