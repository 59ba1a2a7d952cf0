"""The command line: serve, list, search, call, inspect, install."""
