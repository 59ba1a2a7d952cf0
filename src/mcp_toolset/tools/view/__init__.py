"""`ToolView`: a flat, frozen table from public name to tool; availability; and resolving names to tools.

`tools.toolsets`, `calls`, `catalog` and `server` use it. It may import `tools.export`, `tools.binding`,
`tools.schema`, `tools.core` and `errors`.
"""
