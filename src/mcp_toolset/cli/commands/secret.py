"""`mcp-toolset secret`: keep secrets for configurations, list their names, remove them."""

from __future__ import annotations

import difflib
import sys
from typing import TYPE_CHECKING, Final

import click

from mcp_toolset.cli.options import Commands, dry_run_option, examples, json_option
from mcp_toolset.cli.output import Column, answering
from mcp_toolset.errors import SecretError

if TYPE_CHECKING:
    from mcp_toolset.security.named_secrets import NamedSecrets

MOST: Final = 64 * 1024  # bytes of the longest secret


@click.group(
    "secret",
    cls=Commands,
    epilog=examples(
        "mcp-toolset secret set github",
        "mcp-toolset secret set deploy-key --stdin < key.pem",
        "mcp-toolset secret list",
    ),
)
def secret_command() -> None:
    """Store secrets that configurations refer to as ${keyring:NAME}.

    A secret is stored in the system's keyring, or in an encrypted file if there is no keyring.
    """


@secret_command.command("set", context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
@click.argument("name")
@click.option("--stdin", "from_stdin", is_flag=True, help="Read standard input, even if it is a terminal.")
@dry_run_option
@click.pass_context
def set_command(ctx: click.Context, name: str, from_stdin: bool, dry_run: bool) -> None:
    """Store a secret under NAME. On a terminal it is asked for, else read from standard input."""
    if ctx.args:
        # What is too much may be the secret, so it is not repeated.
        raise click.UsageError(
            "a secret is no argument, as other users can read command lines; leave it out to be asked", ctx
        )
    secrets = _secrets(ctx, name)
    if dry_run:
        with answering() as output:
            there = secrets.places().get(name)
            output.say(
                f"{name} would be " + (f"replaced in {there}" if there else "kept; it is not there yet")
            )
        return
    asks = sys.stdin.isatty() and not from_stdin
    secret = click.prompt(f"Secret {name}", hide_input=True, err=True) if asks else _read()

    with answering() as output:
        place, *key = secrets.set(name, secret)
        output.say(f"{name} is kept in {place}; refer to it as ${{keyring:{name}}}")
        for where in key:
            output.say(f"its key is in {where}")


@secret_command.command("list")
@json_option
def list_command(as_json: bool) -> None:
    """List the names of the secrets.

    It says where each secret is stored: in the keyring or in a file.
    """
    from mcp_toolset.security.named_secrets import NamedSecrets
    from mcp_toolset.security.vault import Vault

    with answering(as_json=as_json) as output:
        places = NamedSecrets(Vault()).places()
        if as_json:
            output.json([{"name": name, "kept_in": place} for name, place in places.items()])
        elif places:
            columns = [Column("name"), Column("kept in", prose=True)]
            output.table(columns, [[*pair] for pair in places.items()])
        else:
            output.say("no secret is kept; keep one with `mcp-toolset secret set NAME`")


@secret_command.command("remove")
@click.argument("name")
@click.pass_context
def remove_command(ctx: click.Context, name: str) -> None:
    """Remove the secret NAME."""
    secrets = _secrets(ctx, name)
    with answering() as output:
        if not secrets.remove(name):
            close = difflib.get_close_matches(name, secrets.places(), n=1)
            mend = f"did you mean {close[0]}?" if close else "see `mcp-toolset secret list`"
            raise SecretError(f"no secret {name!r} is kept", mend)
        output.say(f"{name} is removed")


def _secrets(ctx: click.Context, name: str) -> NamedSecrets:
    from mcp_toolset.security.named_secrets import NAMES, NamedSecrets, is_name
    from mcp_toolset.security.vault import Vault

    if not is_name(name):
        raise click.UsageError(f"{name!r} is no name of a secret; use {NAMES}", ctx)
    return NamedSecrets(Vault())


def _read() -> str:
    data = sys.stdin.buffer.read(MOST + 1)
    try:
        text = data.decode("utf-8").removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        raise SecretError("standard input is not UTF-8 text", "encode it, such as in base64") from None
    if not text or len(data) > MOST:
        what = f"more than {MOST} bytes" if text else "nothing"
        raise SecretError(f"there is {what} on standard input", "write the secret there, and no more")
    return text
