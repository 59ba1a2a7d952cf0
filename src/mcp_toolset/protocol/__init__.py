"""Messages and rules of MCP and JSON-RPC, without I/O: framing, codec, eras, cache hints, errors.

Every room above calls it. It may import `tools` and `errors`, and no event loop and no web
framework.
"""
