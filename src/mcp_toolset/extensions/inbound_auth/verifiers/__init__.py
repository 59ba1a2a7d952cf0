"""The verifiers: each module is a key of `auth` in a file, by the `VerifierKind` that it has as `KIND`."""
