"""Whether a client is listed the tools behind search, decided for each client."""
