"""Tasks: a call goes on while its client asks for its state, in both revisions that have such calls."""

from __future__ import annotations
