"""Rounds of tools in workflows that resume after a crash; see docs/durable-loops.md."""
