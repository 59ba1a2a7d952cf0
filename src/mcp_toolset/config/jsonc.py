"""JSON with comments and trailing commas, as editors write it.

Both are replaced by spaces: the text keeps its length and its lines, so that positions in the plain JSON are
positions in the file.

`Place` says where in which file a problem is, so that every error says it in the same form.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from mcp_toolset._records import dataclass
from mcp_toolset.errors import ConfigError

__all__ = ["Place", "blank_comments", "decode", "plain_json", "read_text"]

_PLAIN_KEY = re.compile(r"[\w-]+")


@dataclass(frozen=True, slots=True)
class Place:
    """A value inside a JSON file: `mcpServers.git.args[1]` in `source`."""

    source: str
    steps: tuple[str | int, ...] = ()

    def at(self, *steps: str | int) -> Place:
        """The place of a member or item below this one."""
        return Place(self.source, self.steps + steps)

    @property
    def path(self) -> str:
        """The path as a reader writes it; empty for the whole file."""
        return "".join(_written(step) for step in self.steps).removeprefix(".")

    def error(self, cause: str, mend: str) -> ConfigError:
        """An error of one line: file, place, cause, remedy. The caller keeps values out of it."""
        where = f"{self.source}: {self.path}" if self.steps else self.source
        return ConfigError(" ".join(f"{where}: {cause}; {mend}".splitlines()))


def _written(step: str | int) -> str:
    if isinstance(step, int):
        return f"[{step}]"
    return f".{step}" if _PLAIN_KEY.fullmatch(step) else f"[{json.dumps(step)}]"


# An unclosed string ends with its line, so that one forgotten quote does not hide the rest of the file.
_STRING = r'"(?:[^"\\\r\n]+|\\[^\r\n])*"?'
_COMMENT = re.compile(rf"{_STRING}|(?P<drop>//[^\r\n]*|/\*.*?\*/)", re.DOTALL)
# The middle branch matches commas that follow no value: those stay, and remain an error.
_TRAILING_COMMA = re.compile(rf"{_STRING}|[\[{{,:][ \t\r\n]*,|(?P<drop>,)(?=[ \t\r\n]*[}}\]])")
_NOT_A_BREAK = re.compile(r"[^\r\n]")


def blank_comments(text: str) -> str:
    """The text with every `//` and `/* */` comment outside strings replaced by spaces."""
    return _COMMENT.sub(_blanked, text)


def plain_json(text: str) -> str:
    """Strict JSON of the same length: comments and trailing commas are spaces."""
    return _TRAILING_COMMA.sub(_blanked, blank_comments(text))


def _blanked(match: re.Match[str]) -> str:
    return match[0] if match["drop"] is None else _NOT_A_BREAK.sub(" ", match[0])


def decode(text: str, source: str) -> object:
    """Decode JSON or JSONC.

    Raises:
        ConfigError: The text is neither; names line and column.
    """
    try:
        return json.loads(plain_json(text))
    except json.JSONDecodeError as error:
        where, cause = f"line {error.lineno} column {error.colno}: ", error.msg
    except RecursionError:
        where, cause = "", "nested too deeply"
    except ValueError:
        where, cause = "", "a number has too many digits"
    raise ConfigError(f"{source}: {where}not valid JSON: {cause}; correct the file there")


def read_text(path: Path, source: str) -> str:
    """The text of a file, unchanged, with a byte order mark if the file has one.

    Raises:
        FileNotFoundError: The file does not exist; callers decide what that means.
        ConfigError: The file cannot be read, or is not UTF-8.
    """
    place = Place(source)
    try:
        return path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        raise
    except OSError as error:
        problem = place.error(f"cannot be read ({error.strerror})", "check the path and its permissions")
    except UnicodeDecodeError as error:
        problem = place.error(f"not UTF-8 text (byte {error.start})", "save the file as UTF-8")
    raise problem
