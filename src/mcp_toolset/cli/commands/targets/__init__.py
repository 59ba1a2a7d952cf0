"""Commands about what a target offers: serve it, list it, search it, call it."""
