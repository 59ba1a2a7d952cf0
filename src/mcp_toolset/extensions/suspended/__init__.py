"""Calls that wait for an answer outlive the server: a file has them, and the keys that seal them."""

from __future__ import annotations
