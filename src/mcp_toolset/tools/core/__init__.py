"""The data of a tool and of a call: definition, call, result, names; imports `tools.text` and `errors`."""
