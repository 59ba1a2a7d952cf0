"""Learning: search learns from use; see docs/search.md."""
