"""Policies: which tools exist for a caller, which need approval.

`calls`, `catalog`, `server` and `cli` use it. It may import `tools` and `errors`.
"""
