"""Middleware that comes with the package: limits, caches, retries, permissions.

Applications call it. It may import `calls.pipeline`, `tools` and `errors`.
"""
