"""Who may call over HTTP, as a file or the command line says it: tokens, and what issuers sign."""

MENDS = {"verifiers": "a StaticTokens, a JWT, or "}
