"""Logins to mounted servers, and their tokens."""
