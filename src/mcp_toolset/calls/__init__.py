"""What happens to a call: decisions, hooks, middleware, dispatch and rounds."""
