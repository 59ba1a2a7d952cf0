"""Where tools come from and which are seen: search, grants and deferred catalogs."""
