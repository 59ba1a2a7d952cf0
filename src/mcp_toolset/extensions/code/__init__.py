"""Code mode: a model writes a snippet that calls several tools, and a sandbox runs it.

`monty_sandbox` alone imports `pydantic_monty`, at the first run.
"""
