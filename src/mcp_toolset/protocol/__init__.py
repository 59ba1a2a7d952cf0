"""Messages and rules of MCP and JSON-RPC, without I/O: framing, codec, methods, both sides' machines, errors.

Every room above calls it. It may import `tools` and `errors`, but no event loop, no web framework, no SDK.
"""
