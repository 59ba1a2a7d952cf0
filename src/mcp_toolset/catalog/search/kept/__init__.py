"""Writing the index of a search to a file, and the folder of such files."""

from __future__ import annotations
