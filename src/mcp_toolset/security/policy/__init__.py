"""Policies: which tools exist for a caller, which need approval, which limits apply.

`calls`, `catalog`, `server` and `cli` use it. It may import `tools` and `errors`.
"""
