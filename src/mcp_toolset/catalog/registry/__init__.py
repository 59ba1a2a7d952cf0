"""Which tools there are, under which names, which of them are switched on, and the files that keep it.

`server` calls it. It may import `tools` and `errors`.
"""
