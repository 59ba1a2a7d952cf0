"""Calls that wait for an answer, as values that another process can go on with."""

from __future__ import annotations
