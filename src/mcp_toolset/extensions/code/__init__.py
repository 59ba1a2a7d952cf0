"""Code mode: a model writes a snippet that calls several tools, and a sandbox runs it.

`monty_sandbox` and `monty_sessions` alone import `pydantic_monty`, at the first run.
"""
