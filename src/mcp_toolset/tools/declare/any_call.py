"""`AnyCall`: a decoded call of any tool, which `Toolset.decode` returns."""

from __future__ import annotations

from typing import Any

from mcp_toolset.tools.declare.function import FunctionCall
from mcp_toolset.tools.declare.input import DecodedCall

AnyCall = DecodedCall[Any, Any] | FunctionCall[..., Any]
"""A decoded call of any tool."""
