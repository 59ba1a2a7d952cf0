"""One module for each command; each loads the wire and the search only when it runs."""
