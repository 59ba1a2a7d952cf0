"""JSON Schema: checked, bounded and repaired. It imports `tools.core` and `errors`."""
