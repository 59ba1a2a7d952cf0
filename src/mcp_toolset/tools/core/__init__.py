"""The data of a tool and of a call: definition, call, result, names, capabilities.

Every shelf of `tools` calls it. It may import `tools.text` and `errors`.
"""
