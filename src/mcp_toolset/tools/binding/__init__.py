"""`ToolBinding`: one tool under its public name; and selectors, which refer to tools.

`tools.view`, `tools.export` and every room above use it. It may import `tools.schema`, `tools.text`,
`tools.core` and `errors`.
"""
