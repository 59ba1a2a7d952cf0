"""`${netrc:HOST}` in a configuration: the password of a host in the file `.netrc` of the user."""

from collections.abc import Mapping
from netrc import NetrcParseError, netrc
from pathlib import Path

from mcp_toolset.errors import SecretError


def password(host: str, folder: Path, environ: Mapping[str, str]) -> str:
    file = Path(environ["HOME"]) / ".netrc"
    try:
        found = netrc(file).authenticators(host)
    except FileNotFoundError:
        raise SecretError(f"there is no file {file}", "write the password into it", absent=True) from None
    except NetrcParseError as fault:
        raise SecretError(f"{file} cannot be read (line {fault.lineno})", "correct it") from None
    if found is None or not found[2]:
        raise SecretError(f"{file} has no password of {host}", "add one", absent=True)
    return found[2]
