"""What the two protocol eras do differently in messages: `_meta`, and results.

*Legacy* means revisions up to 2025-11-25 (a handshake and sessions); *modern* means 2026-07-28 (every
request carries its own envelope in `_meta`). It may import the modules of `protocol`.
"""
