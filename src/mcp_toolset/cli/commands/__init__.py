"""One module for each command; each imports the servers and the search only when it runs."""
