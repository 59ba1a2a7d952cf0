"""The index of a search as a file: what it holds, how it is mapped, written and kept from run to run."""

from __future__ import annotations
