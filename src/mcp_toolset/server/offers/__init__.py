"""Resources, prompts and completions that a server offers, its own and those of its mounted servers.

`server` calls it. It may import `context` and the rooms below.
"""
