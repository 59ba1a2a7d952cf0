"""Large results: only the beginning of a long result is shown; see docs/large-results.md."""
