"""Text for models and people. It imports nothing of this package."""
