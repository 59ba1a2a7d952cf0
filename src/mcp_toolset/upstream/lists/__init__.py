"""What a mounted server lists: tools, resources and prompts, to all clients or to some.

`upstream` calls it. It may import `upstream.sessions`, `transports` and the rooms below.
"""
