"""Commands that begin a project: new."""
