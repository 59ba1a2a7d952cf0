"""Numbers of all tools added at once: what makes a query quick in the standard library alone."""
