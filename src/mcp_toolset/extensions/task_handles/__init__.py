"""Handles: slow calls of clients that take no tasks go on as tasks, for two fixed tools."""

from __future__ import annotations
