"""Text for models and people: hidden characters, lookalike names, lines for a screen.

Every room above uses it. It imports nothing of this package.
"""
