"""Mounted servers that one replica alone may have at a time."""
