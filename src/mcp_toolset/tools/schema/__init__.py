"""JSON Schema: made from types, checked, repaired and reshaped.

`tools.declare`, `tools.view` and `calls` use it. It may import `tools.core` and `errors`.
"""
