"""Middleware that comes with the package: limits, caches, retries, permissions.

Applications use it. It may import `calls.pipeline`, `tools` and `errors`.
"""
