"""`ToolBinding`: one tool under its public name; and selectors, which refer to tools."""
