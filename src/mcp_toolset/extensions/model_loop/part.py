"""What the core asks for where a view of tools is exported to a model provider."""

from __future__ import annotations

from typing import Final

from mcp_toolset.extensions.model_loop.forms import offering

PART: Final = offering
