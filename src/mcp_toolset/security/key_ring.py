"""`KeyRing`: seals what leaves the process and comes back, such as request states, with keys that rotate.

A seal encrypts and authenticates (AES-256-GCM). The first key seals and all keys open, so that a new key can
be put first while states of the old one are still under way. Each purpose has a key derived from these (HKDF,
RFC 5869), so a token of one purpose does not open for another.
"""

from __future__ import annotations

import base64
import binascii
import secrets
from collections.abc import Iterable
from typing import Final

from mcp_toolset.errors import SecretError

KEY_BYTES: Final = 32
"""Bytes of a key."""

_MEND: Final = "make one with `openssl rand -base64 32`"
_NONCE: Final = 12
_NAME: Final = 4


class KeyRing:
    """Keys for what is sealed; the first one is current."""

    def __init__(self, keys: Iterable[bytes]) -> None:
        """Use these keys, each of at least 32 random bytes.

        Raises:
            SecretError: there is none, or one is too short.
        """
        self._keys = tuple(keys)
        if not self._keys:
            raise SecretError("the key ring has no key", _MEND)
        if any(len(key) < KEY_BYTES for key in self._keys):
            raise SecretError(f"a key of the ring has fewer than {KEY_BYTES} bytes", _MEND)
        self._derived: dict[tuple[int, str], tuple[bytes, bytes]] = {}
        self._label = ""

    def within(self, label: str) -> KeyRing:
        """The ring of a part of the program: neither opens what the other one has sealed."""
        ring = KeyRing(self._keys)
        ring._label = f"{self._label}{label}\0"
        return ring

    @classmethod
    def fresh(cls) -> KeyRing:
        """A ring with one new key, which no other process has."""
        return cls((secrets.token_bytes(KEY_BYTES),))

    @classmethod
    def of_text(cls, text: str) -> KeyRing:
        """The ring of keys in base64, separated by commas or spaces, the current one first.

        Raises:
            SecretError: one is no base64, or too short; no key is in the message.
        """
        keys: list[bytes] = []
        for number, word in enumerate(text.replace(",", " ").split(), 1):
            try:
                keys.append(base64.b64decode(word.translate(_FROM_URL), validate=True))
            except binascii.Error:
                raise SecretError(f"key {number} of the ring is not base64", _MEND) from None
        return cls(keys)

    def seal(self, purpose: str, data: bytes, *, bound: str = "") -> str:
        """Seal data.

        Args:
            purpose: Its purpose; it opens for the same purpose alone.
            data: The data to seal.
            bound: A text that opening needs, such as the caller; it is not in the token.

        Returns:
            Letters, digits, `-` and `_`.
        """
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        name, key = self._key(0, purpose)
        nonce = secrets.token_bytes(_NONCE)
        return _encoded(name + nonce + AESGCM(key).encrypt(nonce, data, bound.encode()))

    def open(self, purpose: str, token: str, *, bound: str = "") -> bytes | None:
        """The data that was sealed.

        `None` if it was altered, or sealed by other keys, for another purpose or bound to another text.
        """
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        raw = _decoded(token)
        if _encoded(raw) != token:
            return None
        name, nonce, sealed = raw[:_NAME], raw[_NAME : _NAME + _NONCE], raw[_NAME + _NONCE :]
        for place in range(len(self._keys)):
            known, key = self._key(place, purpose)
            if known != name:
                continue
            try:
                return AESGCM(key).decrypt(nonce, sealed, bound.encode())
            except (InvalidTag, ValueError):
                continue
        return None

    def marks(self, purpose: str) -> tuple[str, ...]:
        """The marks of this ring: one text for each key, the current one first."""
        return tuple(self._key(place, purpose)[0].hex() for place in range(len(self._keys)))

    def _key(self, place: int, purpose: str) -> tuple[bytes, bytes]:
        derived = self._derived.get((place, purpose))
        if derived is None:
            from cryptography.hazmat.primitives.hashes import SHA256
            from cryptography.hazmat.primitives.kdf.hkdf import HKDF

            info = b"mcp-toolset:" + f"{self._label}{purpose}".encode()
            made = HKDF(SHA256(), KEY_BYTES + _NAME, salt=None, info=info).derive(self._keys[place])
            derived = self._derived[place, purpose] = made[KEY_BYTES:], made[:KEY_BYTES]
        return derived


_FROM_URL: Final = str.maketrans("-_", "+/")


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _decoded(text: str) -> bytes:
    try:
        return base64.urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))
    except (binascii.Error, UnicodeEncodeError):
        return b""
