"""Commands that look for mistakes: check."""
