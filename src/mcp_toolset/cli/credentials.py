"""`--header` and `--token-env`: credentials for a server at a URL.

Every user of the machine can read a command line, and the shell's history keeps it. So a token is given by
the name of its environment variable, and a header may refer to one, or to a secret that is kept:
`--header 'X-Api-Key: ${keyring:api}'`.
Values are never shown.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, Final, TypeVar, cast

import click

__all__ = ["Headers", "credential_options", "header_option", "headers_of"]

Headers = tuple[tuple[str, str], ...]

_Function = TypeVar("_Function", bound=Callable[..., Any])
_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HOW: Final = "write NAME:VALUE, such as 'X-Api-Key: ${API_KEY}' in single quotes"


def credential_options(function: _Function) -> _Function:
    """`--header` and `--token-env`; the command receives both as `headers`."""

    @wraps(function)
    def told(*args: Any, header: Sequence[str], token_env: str | None, **kwargs: Any) -> Any:
        return function(*args, headers=headers_of(header, token_env), **kwargs)

    token = click.option(
        "--token-env", metavar="VAR", help="Send the bearer token in this environment variable to the URL."
    )
    return cast("_Function", header_option(token(told)))


header_option: Final = click.option(
    "--header",
    multiple=True,
    metavar="NAME:VALUE",
    help="Send a header to the URL; ${VAR}, ${keyring:NAME} and ${file:PATH} are replaced.",
)


def headers_of(written: Sequence[str], variable: str | None) -> Headers:
    """The headers that `--header` and `--token-env` say."""
    found = [_header(text) for text in written]
    if variable is not None:
        token = os.environ.get(variable, "").strip()
        if not token:
            raise click.UsageError(f"--token-env {variable}: the variable is not set; export it first")
        found.append(("Authorization", _checked(f"Bearer {token}", f"--token-env {variable}")))
    return tuple(found)


def _header(text: str) -> tuple[str, str]:
    name, sign, value = text.partition(":")
    if not sign or not _NAME.fullmatch(name):
        raise click.UsageError(f"--header: it has no name before a colon; {_HOW}")
    from mcp_toolset.cli.display.output import complain
    from mcp_toolset.config.jsonc import Place
    from mcp_toolset.config.variables import Variables

    place = f"--header {name}"
    variables = Variables(os.environ, Path.cwd(), {})
    # Every value of a header is secret, so no message shows one.
    expanded = variables.expand(value.strip(), Place(place), lambda _: None)
    for warning in variables.references.warnings:
        complain(warning)
    return name, _checked(expanded, place)


def _checked(value: str, place: str) -> str:
    if not value or not value.isprintable() or not value.isascii():
        raise click.UsageError(f"{place}: its value is empty or has characters that no header takes; {_HOW}")
    return value
