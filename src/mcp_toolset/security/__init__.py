"""Who calls, what each caller may do, the record of it, and the credentials that are kept.

Every room above uses it. It may import `tools`, `concurrency` and `errors`; it knows neither the wire nor a
configuration file.
"""
