"""`unit_of`: the unit of work that a call is, from a key that a repeat of it has too.

The key itself is recorded nowhere. The id of a record is a digest of it, and the outcome is encrypted with
another one: who has the journal alone can read no result, unless a key is easy to guess.
"""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
from typing import Any, Final
from uuid import UUID

from cryptography.fernet import Fernet, InvalidToken
from pydantic_core import from_json, to_json

from mcp_toolset._records import dataclass
from mcp_toolset.errors import InvalidArgumentsError
from mcp_toolset.tools.binding import ToolBinding
from mcp_toolset.tools.call import ToolCall, ToolContext, digest_of_json
from mcp_toolset.tools.result import REPLAY_META_KEY, encodable

LONGEST_KEY: Final = 400
"""Characters of a key that a client sends."""

GUESSABLE: Final = 16
"""Below so many characters, a key counts in its session alone, if its caller is not authenticated."""


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit of work."""

    id: str  # its name in the journal
    source: str  # where its key is from: `client`, `call id`, or `none` if no repeat can have it
    is_bound: bool  # whether it is of one session, as its key may be guessed in another
    _secret: bytes

    @property
    def is_repeatable(self) -> bool:
        """True if a repeat of the call can have the same key."""
        return self.source != "none"

    @property
    def uuid(self) -> str:
        """What mounted servers are told: the same for a repeat, and for no other caller or key."""
        return str(UUID(self.id[:32]))

    def part(self, key: str) -> Unit:
        """A step of this work, which has a record of its own."""
        told = self._secret + key.encode("utf-8", "surrogatepass")
        return Unit(_digest(b"step", told).hex(), "effect", False, _digest(b"outcome of a step", told))

    def sealed(self, value: Any) -> bytes:
        """A JSON value, encrypted."""
        return self._cipher().encrypt(to_json(value))

    def opened(self, sealed: bytes) -> Any:
        """The value again; `None` if it is damaged."""
        try:
            return from_json(self._cipher().decrypt(sealed))
        except (InvalidToken, ValueError):
            return None

    def _cipher(self) -> Fernet:
        return Fernet(base64.urlsafe_b64encode(self._secret))


def unit_of(call: ToolCall, context: ToolContext, served: str) -> Unit:
    """The unit of work of a call: by the client's replay key, the id of a round's call, or none.

    A call without either has a key that no other call has: a crash in it is seen, and no call is taken for a
    repeat of it. The grant of a deferred tool is no key, as it is used for many calls.
    """
    said: object = context.meta.get(REPLAY_META_KEY)
    caller, has_login = _caller(context)
    if said is not None:
        if not isinstance(said, str) or not 0 < len(said) <= LONGEST_KEY:
            raise InvalidArgumentsError(
                f"{call.name} did not run: {REPLAY_META_KEY} in _meta is a text of 1 to {LONGEST_KEY} "
                "characters"
            )
        guessable = not has_login and len(said) < GUESSABLE and context.protocol_version is not None
        return _unit("client", served, caller, encodable(said), guessable)
    if call.id:
        return _unit("call id", served, caller, encodable(call.id), False)
    return _unit("none", served, caller, secrets.token_hex(16), False)


def fingerprint_of(binding: ToolBinding, call: ToolCall) -> str:
    """A digest of a tool and the arguments as they were sent, and one of those that it runs with.

    A key stands for one call as it was sent: hooks may add to each run of it what no other run has.
    """
    return f"{digest_of_json([binding.source, binding.own_id, call.digest])}.{digest_of_json(call.arguments)}"


def same_call(one: str, other: str) -> bool:
    """True if two fingerprints are of the same call as it was sent."""
    return one.partition(".")[0] == other.partition(".")[0]


def session_of(context: ToolContext) -> str:
    """A digest of the caller's session; empty without one."""
    return hashlib.sha256(context.session.encode()).hexdigest()[:32] if context.session else ""


def _caller(context: ToolContext) -> tuple[str, bool]:
    """Whose keys these are: callers without a login are one caller together, and so is the program itself."""
    if context.principal:
        return f"principal:{context.principal}", True
    if context.protocol_version is None:
        return f"host:{context.session or ''}", True
    return "anonymous", False


def _unit(source: str, served: str, caller: str, key: str, is_bound: bool) -> Unit:
    told = json.dumps([source, served, caller, key]).encode()
    return Unit(_digest(b"id", told).hex(), source, is_bound, _digest(b"outcome", told))


def _digest(use: bytes, told: bytes) -> bytes:
    return hashlib.sha256(b"mcp-toolset journal " + use + b"\0" + told).digest()
