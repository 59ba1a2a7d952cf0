"""What the core asks for where a view of tools is exported to a model provider."""

from __future__ import annotations

from mcp_toolset.extensions.model_loop.forms import offering

NAME, PART = "forms", offering
