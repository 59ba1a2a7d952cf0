"""Which caller may run which deferred tool: the ledger, its stores, and the host's own rules.

`server` and `catalog.deferred` call it. It may import `tools` and `errors`.
"""
