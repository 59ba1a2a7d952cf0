"""The journal of calls: what was begun and what it came to, so that no call has its effect twice.

`JournalGuard` applies it to calls; a `Journal` is where it is written. It may import the rest of `calls`,
`security` and `concurrency`, and knows nothing of the wire.
"""
