"""The audit log: a chained line per call, decision, grant and login, written beside the calls; and its check.

`server`, `hub`, `upstream` and `cli` use it. It may import `tools`, `concurrency` and `errors`.
"""
