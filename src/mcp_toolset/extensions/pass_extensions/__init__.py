"""Extensions of the protocol that the bridge does not know are passed on; see docs/passing-extensions.md."""
