"""The data of a tool and of a call: definition, call, result, names, capabilities.

Every folder of `tools` uses it. It may import `tools.text` and `errors`.
"""
