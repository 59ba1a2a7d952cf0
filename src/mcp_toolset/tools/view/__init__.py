"""`ToolView`: a flat, frozen table from public name to tool; availability; and what is exported of it."""
