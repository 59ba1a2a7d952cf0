"""Profiles: named views of one server, each with an address, an option and a login of its own."""
