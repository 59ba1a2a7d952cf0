"""`ToolBinding`: one tool under its public name; and the selectors that find it.

`tools.view`, `tools.export` and every room above call it. It may import `tools.schema`, `tools.text`,
`tools.core` and `errors`.
"""
