"""The indexes of searches from one start to the next, and from one replica to the others."""
