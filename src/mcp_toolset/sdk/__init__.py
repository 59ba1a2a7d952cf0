"""The MCP SDK: its types, and what is private or provisional in it. No other room imports `mcp`.

`tests/sdk/test_seams.py` fails if one of its seams moves.

Every room above calls it. It may import `protocol` and the rooms below.
"""
