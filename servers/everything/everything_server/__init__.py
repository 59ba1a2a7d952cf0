"""A server that has one of everything; see the README."""

from .server import everything_server

__all__ = ["everything_server"]
