"""Sessions with a mounted server: which request takes which session, handshake, health, calls in flight.

`upstream` calls it. It may import `transports` and the rooms below.
"""
