"""The smallest picture and the smallest sound that are whole."""

from __future__ import annotations

import base64
import struct
import zlib
from typing import Final


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def _red_pixel() -> bytes:
    """A PNG of one red pixel."""
    header = struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)
    row = zlib.compress(b"\x00\xff\x00\x00")
    return b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", header) + _chunk(b"IDAT", row) + _chunk(b"IEND", b"")


def _silence() -> bytes:
    """A WAV of two samples of silence at 8 kHz."""
    form = struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, 1, 8000, 16000, 2, 16)
    body = b"WAVE" + form + struct.pack("<4sI", b"data", 4) + bytes(4)
    return struct.pack("<4sI", b"RIFF", len(body)) + body


PNG: Final = base64.b64encode(_red_pixel()).decode()
WAV: Final = base64.b64encode(_silence()).decode()
