"""Commands about what has happened: the log."""
