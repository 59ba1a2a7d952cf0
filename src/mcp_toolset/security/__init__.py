"""Authentication of callers, policies, the audit log, and stored credentials.

Every room above uses it. It may import `tools`, `concurrency` and `errors`; it knows neither the wire nor a
configuration file.
"""
