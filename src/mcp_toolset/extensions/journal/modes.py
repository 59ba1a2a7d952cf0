"""`Mode`: whether calls of a tool are recorded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

Mode = Literal["off", "once", "repeat"]
"""`off`: not recorded. `once`: never run again. `repeat`: run again if its outcome is not known."""

Modes = Mapping[str, Mode]
"""Modes by pattern of tools."""
