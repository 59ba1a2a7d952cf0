"""The journal of calls: what was begun and what it came to, so that no call has its effect twice.

`JournalGuard` applies it to calls; a `JournalStore` is where it is written.
"""

MENDS = {"effect": "a journal that records the tool: ToolsetServer(…, journal=True)"}
