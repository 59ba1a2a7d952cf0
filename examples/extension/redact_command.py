"""`mcp-toolset redact`: what the extension leaves of a text."""

import click
from redact import Redact


@click.command("redact")
@click.argument("text")
@click.option("--pattern", help="The regular expression of a secret.")
def redact_command(text: str, pattern: str | None) -> None:
    """Show what is left of TEXT without its secrets. Try a pattern before you write it into a file."""
    click.echo((Redact(pattern) if pattern else Redact()).blank(text))
