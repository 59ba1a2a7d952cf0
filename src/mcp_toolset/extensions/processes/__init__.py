"""Processes: work that outlives its call, and whose record outlives the program."""

MENDS = {"processes": "ToolsetServer(…, processes=True)"}
