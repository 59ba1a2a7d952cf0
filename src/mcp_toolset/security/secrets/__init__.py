"""Secrets that are kept for the user: the system's keyring, an encrypted file, and references to both.

`config`, `upstream` and `cli` use it. It may import `concurrency` and `errors`, and no tools.
"""

from typing import Final

KEY_VARIABLE: Final = "MCP_TOOLSET_KEY"
"""The environment variable with the key of encrypted files, which are used instead of a keyring then."""
