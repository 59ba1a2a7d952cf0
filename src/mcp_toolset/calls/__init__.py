"""The course of a call: decisions, hooks, middleware and dispatch. It imports neither catalog nor wire."""
