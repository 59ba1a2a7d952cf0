"""Notes in one SQLite file, with full-text search, tags, links, and an MCP resource for each note.

`database` opens and migrates the file, `store` is the only module that writes SQL about notes,
`query` turns what a person typed into a full-text expression, `tools` and `resources` are the two
faces that MCP sees. `notes.py`, beside this package, starts the server.
"""
