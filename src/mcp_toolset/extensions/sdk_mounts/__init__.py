"""Servers of the SDK in this process, as mounted servers."""
