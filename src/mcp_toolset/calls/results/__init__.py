"""Large results: kept whole at the server, shown in part, read and handed on by reference.

The server uses it. It may import `calls.middleware`, `tools` and `errors`.
"""
