"""A mounted server as each caller reaches it."""
