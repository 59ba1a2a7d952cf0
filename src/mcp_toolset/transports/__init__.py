"""Carriers of messages: pipes, streams, memory, and dispatchers that correlate requests and answers.

`server` and `upstream` call it. It may import `context` and the rooms below.
"""
