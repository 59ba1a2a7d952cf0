"""The choice, for each client, between a list of all tools and a search."""
