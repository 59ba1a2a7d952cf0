"""Definitions that were accepted, what has changed since, and the quarantine of what must not run.

`upstream` and the command line call it. It may import `catalog.snapshot`, `tools` and `errors`.
"""
