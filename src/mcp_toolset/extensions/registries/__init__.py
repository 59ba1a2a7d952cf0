"""Registries: a server of a registry, or of a `server.json`, becomes an entry; see docs/registries.md."""
