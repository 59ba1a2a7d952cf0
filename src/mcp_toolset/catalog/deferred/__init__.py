"""A catalog behind search: four fixed tools in front of any number of others.

`server` calls it. It may import `catalog.search`, `catalog.grants`, `tools` and `errors`.
"""
