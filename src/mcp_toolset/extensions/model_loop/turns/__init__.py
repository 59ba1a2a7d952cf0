"""The replies of model providers, and the answers to their calls."""
