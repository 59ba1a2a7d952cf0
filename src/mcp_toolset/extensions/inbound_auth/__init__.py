"""Who may call over HTTP, as a file or the command line says it: tokens, and what issuers sign."""
