"""Preflight: what an agent needs is there or not, by an exit code; see docs/preflight.md."""
