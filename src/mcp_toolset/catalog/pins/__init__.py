"""Pins: the accepted definitions of tools, what has changed since, and the quarantine of changed tools.

`upstream` and the command line use it. It may import `catalog.snapshot`, `tools` and `errors`.
"""
