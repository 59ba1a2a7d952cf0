"""Stores for state: one contract, `Store`, over memory, SQLite, Redis or Valkey, and PostgreSQL."""

from __future__ import annotations
