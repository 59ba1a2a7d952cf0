"""Code mode: a model writes a snippet that calls several tools, and a sandbox runs it.

`server` calls it. It may import `tools` and `errors`; the sandbox itself is given to it.
"""
