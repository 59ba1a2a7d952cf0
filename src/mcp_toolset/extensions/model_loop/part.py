"""The exports to model providers, for the core."""

from __future__ import annotations

from typing import Final

from mcp_toolset.extensions.model_loop.forms import offering

PART: Final = offering
