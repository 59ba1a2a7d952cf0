"""The registry: which tools exist, their public names, which of them are members, and its files.

`server` uses it. It may import `tools` and `errors`.
"""
