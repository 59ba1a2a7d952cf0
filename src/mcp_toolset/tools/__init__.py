"""Tools: definitions, toolsets, names and the flat view. No I/O in this room.

Every room above calls it. It may import `errors`.
"""
