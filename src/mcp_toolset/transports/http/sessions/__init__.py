"""Legacy sessions over HTTP: their requests, their table, and how replicas share them."""
