"""Reusing the results of calls for a while."""
