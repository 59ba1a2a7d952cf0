"""Secrets that are kept for the user: the system's keyring, an encrypted file, and references to both.

`config`, `upstream` and `cli` use it. It may import `concurrency` and `errors`, and no tools.
"""
