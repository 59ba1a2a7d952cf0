"""Code mode of a server: its two tools, the sandbox of the extra `code`, and runs that wait for answers.

`monty_sandbox` and `monty_sessions` alone import `pydantic_monty`, at the first run.
"""
