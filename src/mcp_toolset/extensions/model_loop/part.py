"""The exports to model providers, for the core."""

from __future__ import annotations

from mcp_toolset.extensions.model_loop.forms import offering

NAME, PART = "forms", offering
