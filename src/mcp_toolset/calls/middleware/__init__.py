"""Middleware that comes with the package: checks and permissions.

Applications use it. It may import `calls.pipeline`, `tools` and `errors`.
"""
