"""`${…}` references in a configuration, and environment files.

| written | means |
|---|---|
| `${NAME}`, `${NAME:-default}`, `${env:NAME}` | an environment variable |
| `${workspaceFolder}`, `${workspaceFolderBasename}` | the folder that the file configures |
| `${userHome}` | the user's home folder |
| `${pathSeparator}`, `${/}` | the separator of paths: a slash, on Windows a backslash |
| `${keyring:NAME}` | what `mcp-toolset secret set NAME` has kept |
| `${file:PATH}` | the text of a file, such as a secret that a container is given |
| `${input:ID}` | the variable `MCP_INPUT_ID`, or the default of that entry in `inputs` |
| `${SCHEME:TEXT}` | what an extension looks up that has registered the scheme |

An input never falls back to a variable of the same name: `${input:path}` must not become `PATH`. Any other
text in braces, such as `${file%.*}`, belongs to a shell and is left unchanged.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import field
from pathlib import Path
from typing import Final

from mcp_toolset._index import reference
from mcp_toolset._records import dataclass
from mcp_toolset.config.jsonc import Place
from mcp_toolset.errors import SecretError
from mcp_toolset.security.vault import References

PLAIN_VARIABLES: Final = frozenset(
    "HOME USER LOGNAME USERNAME PATH PWD SHELL LANG LC_ALL TZ TERM TMPDIR TMP TEMP USERPROFILE APPDATA "
    "LOCALAPPDATA HOMEDRIVE HOMEPATH PYTHONPATH PYTHONUNBUFFERED NODE_ENV LOG_LEVEL "
    "CLAUDE_PROJECT_DIR VIRTUAL_ENV CONDA_PREFIX PYENV_ROOT".split()
)
"""Variables whose values are not secret: places, names and settings of the machine."""

_FORM: Final = r"""\$\{(?: SCHEME
          | keyring:(?P<secret>[\w./@~](?:(?!:-)[^}])*)
          # What follows another colon is a shell's substring of a variable of that name.
          | file:(?P<file>(?:[A-Za-z]:(?=[\\/]))?[\w./\\~][^}:]*)
          | (?:(?P<kind>[A-Za-z]\w*):(?=[\w./]))?(?P<name>/|[\w][\w.\ -]*)
        )(?::-(?P<default>[^}]*))?\}"""
_SCHEME: Final = (
    r"(?!(?:keyring|file|env|input):)(?P<scheme>[A-Za-z][\w-]*):(?P<said>[A-Za-z_./~@](?:(?!:-)[^{}])*)"
)
_EVERY: Final = re.compile(_FORM.replace("SCHEME", _SCHEME), re.VERBOSE)
_OWN: Final = re.compile(_FORM.replace("SCHEME", r"(?P<scheme>(?!))(?P<said>)"), re.VERBOSE)
"""References without those that extensions look up."""

_SLIP: Final = re.compile(r"\$\{\s*([A-Za-z][\w-]*):(?![-=+?\d])(?P<path>[A-Za-z/.~@_][^:}]*(?:\}|$))?")
"""The beginning of a reference; a colon before a digit or a sign, and a second one, are those of a shell."""

_UNREPLACED = re.compile(r"\$\w+|%\w+%|\{\{.*\}\}|<.*>|\$\(.*\)|\s+")
"""References of other programs, and placeholders for a secret in examples."""
_VARIABLE = re.compile(r"[A-Za-z_]\w*")
_ENV_LINE = re.compile(
    r"""^[ \t]*(?:export[ \t]+)?(?P<name>[A-Za-z_][\w.-]*)[ \t]*=[ \t]*
        (?:'(?P<single>[^']*)'|"(?P<double>(?:[^"\\]|\\.)*)"|(?P<bare>(?:(?![ \t]\#)[^\r\n])*))""",
    re.MULTILINE | re.VERBOSE | re.DOTALL,
)
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t"}


def replaced(text: str, value: Callable[[re.Match[str]], str]) -> str:
    """The text with each reference replaced. `value` takes a match with the groups of a reference.

    The group `scheme` is that of an extension, with `said` after it; `secret`, `file`, and `kind` with `name`
    are of our own references, and `default` is of all.
    """

    def one(found: re.Match[str]) -> str:
        if found["scheme"] is None or reference(found["scheme"]) is not None:
            return value(found)
        # A client's own, or a shell's: what is left of it may be a reference of ours.
        return _OWN.sub(value, found[0])

    return _EVERY.sub(one, text) if "${" in text else text


def without_references(text: str) -> str:
    return replaced(text, lambda _: "")


@dataclass(frozen=True, slots=True)
class Variables:
    """The values of the references in one file; a missing value is an error, never an empty string."""

    environ: Mapping[str, str] = field(repr=False)
    folder: Path
    inputs: Mapping[str, str | None] = field(repr=False)
    references: References = field(default_factory=References, repr=False, compare=False)

    @property
    def home(self) -> str:
        """The user's home: the environment's, else the system's."""
        return self.environ.get("HOME") or self.environ.get("USERPROFILE") or str(Path.home())

    def expand(self, text: str, place: Place, secret: Callable[[str], None]) -> str:
        """Replace every reference; references inside a variable's value are not expanded.

        Args:
            text: The text in the file.
            place: Its place, for errors.
            secret: Called with each value that came from a variable, an input, a keyring or a file.
        """

        def value(found: re.Match[str]) -> str:
            if found["secret"] or found["file"] or found["scheme"]:
                return self._kept(found, place, secret)
            predefined = self._predefined(found["name"]) if found["kind"] is None else None
            if predefined is not None:
                return predefined
            given = self._value(found, place)
            if given not in (found[0], found["default"]) and found["name"] not in PLAIN_VARIABLES:
                secret(given)
            return given

        for left in _SLIP.finditer(without_references(text) if "${" in text else ""):
            if left[1] in ("keyring", "file") or reference(left[1]) is not None:
                cause = f"${{{left[1]}:…}} is not written as a reference"
                raise place.error(cause, "write no blank or quote after the colon, and `}` at its end")
            if left["path"]:
                cause = f"${{{left[1]}:…}} is not a reference"
                raise place.error(cause, "write `${file:PATH}` or another kind of reference in small letters")
        return replaced(text, value)

    def path(self, expanded: str) -> str:
        """A path whose references are expanded, with `~` expanded too, in the configured folder."""
        if expanded == "~" or expanded.startswith(("~/", "~\\")):
            expanded = self.home + expanded[1:]
        return os.path.normpath(self.folder / expanded)

    def _kept(self, found: re.Match[str], place: Place, secret: Callable[[str], None]) -> str:
        try:
            given = self._looked_up(found)
        except SecretError as fault:
            if fault.absent and found["default"] is not None:
                return found["default"]
            raise place.error(fault.cause, fault.mend) from None
        secret(given)
        return given

    def _looked_up(self, found: re.Match[str]) -> str:
        if (scheme := found["scheme"]) is not None:
            look, whole = reference(scheme), found[0] == found.string
            words, where = found["said"], (self.folder, self.environ)
            return self.references.elsewhere(scheme, words, lambda: look(words, *where), whole=whole)
        if found["secret"]:
            return self.references.secret(found["secret"])
        return self.references.text_of(Path(self.path(found["file"])))

    def _value(self, found: re.Match[str], place: Place) -> str:
        kind, name, default = found["kind"], found["name"], found["default"]
        if kind == "input":
            return self._input(name, place)
        if kind not in (None, "env"):
            cause = f"${{{kind}:{name}}} means something only in its own client"
            raise place.error(cause, "write the value, or an environment variable as ${NAME}")
        return self._variable(name, default, place) if _VARIABLE.fullmatch(name) else found[0]

    def _variable(self, name: str, default: str | None, place: Place) -> str:
        value = self.environ.get(name)
        if value is None or (not value and default is not None):
            value = default
        if value is None:
            mend = f"set {name}, or give a default as ${{{name}:-…}}"
            raise place.error(f"environment variable {name} is not set", mend)
        return value

    def _input(self, name: str, place: Place) -> str:
        variable = "MCP_INPUT_" + re.sub(r"\W", "_", name).upper()
        value = self.environ.get(variable, self.inputs.get(name))
        if value is None:
            cause = f"${{input:{name}}} has no value, and no user can be asked for it here"
            raise place.error(cause, f"set the environment variable {variable}")
        return value

    def _predefined(self, name: str) -> str | None:
        match name:
            case "workspaceFolder":
                return str(self.folder)
            case "workspaceFolderBasename":
                return self.folder.name
            case "userHome":
                return self.home
            case "pathSeparator" | "/":
                return os.sep
            case _:
                return None


def is_unreplaced(secret: object) -> bool:
    """True if a secret is what another program would replace: everybody who reads the file knows it."""
    return isinstance(secret, str) and _UNREPLACED.fullmatch(secret) is not None


def parse_env_file(text: str) -> dict[str, str]:
    """`NAME=value` lines as shells and dotenv write them; other lines are ignored, as clients do."""
    return {line["name"]: _env_value(line) for line in _ENV_LINE.finditer(text)}


def _env_value(line: re.Match[str]) -> str:
    if line["double"] is not None:
        return re.sub(r"\\(.)", lambda m: _ESCAPES.get(m[1], m[1]), line["double"], flags=re.DOTALL)
    return line["single"] if line["single"] is not None else line["bare"].strip()
