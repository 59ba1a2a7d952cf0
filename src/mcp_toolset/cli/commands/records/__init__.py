"""Commands about what has happened: the audit log."""
