"""How messages move: pipes, streams, memory, and the dispatchers that correlate requests with their answers.

`server` and `upstream` call it. It may import `context` and the rooms below.
"""
