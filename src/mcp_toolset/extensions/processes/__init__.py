"""Processes: work that outlives its call, and whose record outlives the program."""

from __future__ import annotations
