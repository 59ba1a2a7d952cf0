"""Middleware that comes with the package: checks and permissions."""
