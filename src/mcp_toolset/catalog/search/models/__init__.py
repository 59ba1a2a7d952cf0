"""Sentence models that run without torch: weights from a folder, arithmetic by numpy."""

__all__ = []
