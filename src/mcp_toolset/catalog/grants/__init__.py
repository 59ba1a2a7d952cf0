"""Grants: which caller may run which deferred tool; the ledger, its stores, and the host's access policy.

`server` and `catalog.deferred` use it. It may import `tools` and `errors`.
"""
