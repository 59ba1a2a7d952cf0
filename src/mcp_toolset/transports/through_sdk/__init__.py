"""Requests that pass the SDK on their way: servers of the SDK in this process, and the SDK's dispatcher.

`transports` and `server` call it. It may import `sdk` and the rooms that `transports` may.
"""
