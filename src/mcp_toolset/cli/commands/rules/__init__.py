"""Commands about the rules for tools: pins, permissions."""
