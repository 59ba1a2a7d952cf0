"""The SDK's client of a server."""

from mcp import Client

__all__ = ["Client"]
