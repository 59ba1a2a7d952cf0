"""Limits: how much each caller may use, by pattern of tools; see docs/limits.md."""
