"""A flat, frozen table from public name to tool, what is available of it, and the names it knows.

`tools.toolsets`, `calls`, `catalog` and `server` call it. It may import `tools.export`, `tools.binding`,
`tools.schema`, `tools.core` and `errors`.
"""

from mcp_toolset._moved import moved

__getattr__ = moved(__name__, "mcp_toolset", "ToolBinding")
