"""Additions to anyio: threads, events, deadlines, drains, signals, locks, files replaced in one step."""
