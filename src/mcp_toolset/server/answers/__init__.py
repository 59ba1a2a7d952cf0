"""What `MCPServer` answers by itself: handshakes, tools, subscriptions.

`server` calls it. It may import `context` and the rooms below.
"""
