"""The way of one call: gate, arguments, middleware, hooks, handler, output."""
