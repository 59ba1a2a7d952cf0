"""The reference of the configuration file: what each key means, and the JSON Schema for editors."""
