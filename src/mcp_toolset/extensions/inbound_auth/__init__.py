"""Authentication of callers over HTTP, from a file or the command line: tokens, and what issuers sign."""

MENDS = {"verifiers": "a StaticTokens, a JWT, or "}
