"""A server card: a document that says how to connect to a server (SEP-2127); see docs/server-card.md."""
