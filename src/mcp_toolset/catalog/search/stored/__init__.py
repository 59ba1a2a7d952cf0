"""A file of a search's index: its sections, and the index that they hold."""

from __future__ import annotations
