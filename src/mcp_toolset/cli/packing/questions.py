"""`Question`: a value that the client asks the user for when a bundle is installed, its `user_config`.

The client keeps the answer and gives it to the server as an environment variable.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final, Literal, TypeAlias, cast

import click

from mcp_toolset._records import dataclass

__all__ = ["Kind", "Question", "parse_questions"]

Kind: TypeAlias = Literal["secret", "text", "folder", "file"]

_TYPES: Final = {"secret": "string", "text": "string", "folder": "directory", "file": "file"}
_WRITTEN: Final = re.compile(r"(?P<name>[A-Za-z_]\w*)(?::(?P<kind>[a-z]+))?(?:=(?P<default>.*))?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Question:
    """A value that the user is asked for.

    Attributes:
        variable: The environment variable in which the server gets it.
        kind: What it is; a secret is hidden while it is typed, and kept by the client as a secret.
        default: Taken without an answer; without a default an answer is required.
        about: What the server needs it for, as the client shows it.
    """

    variable: str
    kind: Kind = "secret"
    default: str | None = None
    about: str = ""

    def option(self) -> dict[str, Any]:
        """The entry of `user_config`."""
        said: dict[str, Any] = {
            "type": _TYPES[self.kind],
            "title": self.variable.replace("_", " ").strip().capitalize() or self.variable,
            "description": self.about or f"The variable {self.variable} of the server",
            "required": self.default is None,
        }
        if self.kind == "secret":
            said["sensitive"] = True
        return said if self.default is None else {**said, "default": self.default}


def parse_questions(written: Iterable[str]) -> dict[str, Question]:
    """The questions of `--ask NAME[:KIND][=DEFAULT]`, by variable.

    Raises:
        UsageError: one is not written so.
    """
    found = (_question(text) for text in written)
    return {question.variable: question for question in found}


def _question(text: str) -> Question:
    parts = _WRITTEN.fullmatch(text)
    kind = (parts["kind"] or "secret") if parts else ""
    # The text is not repeated: it may be a secret that was written after the sign of equality.
    if parts is None or kind not in _TYPES:
        kinds = ", ".join(_TYPES)
        name = f" {parts['name']}" if parts else ""
        raise click.UsageError(f"--ask{name}: cannot be read; write NAME or NAME:KIND with one of {kinds}")
    if kind == "secret" and parts["default"] is not None:
        raise click.UsageError(
            f"--ask {parts['name']}: the default of a secret would be in the bundle; leave it out, or write "
            f"{parts['name']}:text=… if it is no secret"
        )
    return Question(parts["name"], cast("Kind", kind), parts["default"])
