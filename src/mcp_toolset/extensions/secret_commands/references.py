"""`${command:PROGRAM ARGUMENT…}`: the output of a program, such as that of a password manager.

The program runs without a shell. Its arguments and its output are in no log and no error.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from mcp_toolset.errors import SecretError
from mcp_toolset.security.vault import MOST_BYTES, LookUp

SECONDS: Final = 30.0
"""The deadline of a program: it may ask its user to unlock something."""

_IN_A_SHELL: Final = "run the same command in a shell to see why"
_OF_AN_EDITOR: Final = re.compile(r"[A-Za-z][\w-]*(?:\.[\w-]+)+")
"""The prefixes of VS Code's own commands, which its files name as `${command:…}`."""


def look_up(text: str, folder: Path, environ: Mapping[str, str], *, seconds: float = SECONDS) -> str:
    """The output of a program without the line break at its end.

    Raises:
        SecretError: there is no such program, it failed, or its output is no secret.
    """
    from mcp_toolset.transports.program_output import output_of

    words = _words(text)
    name = os.path.basename(words[0])
    try:
        code, output = output_of(words, environ=environ, folder=folder, seconds=seconds, most=MOST_BYTES)
    except FileNotFoundError:
        raise _absent(words, folder) from None
    except TimeoutError:
        mend = "unlock what it waits for, or give it its credentials in the environment"
        raise SecretError(f"the program {name} did not end in {seconds:g} s", mend) from None
    except OSError as fault:
        raise SecretError(f"the program {name} cannot be started ({fault.strerror})", _IN_A_SHELL) from None
    except OverflowError:
        raise SecretError(
            f"the program {name} wrote more than {MOST_BYTES} bytes, too many for a secret", _IN_A_SHELL
        ) from None
    if code:
        cause = f"exit code {code}" if code > 0 else f"signal {-code}"
        raise SecretError(f"the program {name} ended with {cause}", _IN_A_SHELL)
    try:
        value = output.decode("utf-8").removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        raise SecretError(f"the program {name} wrote no UTF-8 text", _IN_A_SHELL) from None
    if not value:
        raise SecretError(f"the program {name} wrote nothing", _IN_A_SHELL)
    return value


def _words(text: str) -> list[str]:
    try:
        words = shlex.split(text)
    except ValueError:
        raise SecretError("${command:…} has a quote that is not closed", "close it, or remove it") from None
    if any("\0" in word for word in words) or not words or not words[0]:
        raise SecretError("${command:…} names no program", "write ${command:PROGRAM ARGUMENT}")
    return words


def _absent(words: list[str], folder: Path) -> SecretError:
    if not folder.is_dir():
        return SecretError(f"there is no folder {folder}", "correct the path of the configuration")
    name = os.path.basename(words[0])
    mend = "install it, or write its full path"
    if len(words) == 1 and _OF_AN_EDITOR.fullmatch(words[0]):
        mend += "; as a command of VS Code it means something only there"
    return SecretError(f"there is no program {name}", mend, absent=True)


REFERENCES: Final[Mapping[str, LookUp]] = {"command": look_up}
