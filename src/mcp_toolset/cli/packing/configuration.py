"""`PortableConfig`: a configuration as it can be given to others, without secrets and paths of this machine.

| in the file | in the bundle |
|---|---|
| a reference, such as `${TOKEN}` or `${keyring:token}` | a variable that the user is asked for |
| a value of `env`, `envFile` and `headers`, a secret in `args` or in the address | the same |
| a path in `args` and `cwd` | a file of the configuration's folder is copied; any other is asked for |
| `toolset.auth`, servers that are disabled, keys that only other clients read | left out |
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast

from mcp_toolset._index import homes
from mcp_toolset.cli.packing.bundle import Kind, Question
from mcp_toolset.config.entries import ServerEntry, known_keys, server_keys, validated
from mcp_toolset.config.jsonc import Place, read_text
from mcp_toolset.config.variables import PLAIN_VARIABLES, REFERENCE, parse_env_file
from mcp_toolset.errors import ConfigError
from mcp_toolset.upstream.secrets import Secrets, secret_arguments, secrets_of_url

_FOLDER: Final = "${workspaceFolder}"
_PREDEFINED: Final = frozenset(
    ("workspaceFolder", "workspaceFolderBasename", "userHome", "pathSeparator", "/")
)
_SECRET_KEY: Final = re.compile(r"(?i)key|token|secret|passw|pwd|credential|cookie")
_WITH_SECRETS: Final = ("auth", "oauth")
_URLS: Final = ("url", "serverUrl", "httpUrl")
_LONGEST_SCHEME: Final = 8
"""Characters beside a reference, as of `Bearer ${TOKEN}`, from which on they may be a secret themselves."""


class PortableConfig:
    """The servers of a file, rewritten, with the `questions`, `files` and `secrets` that were in them."""

    def __init__(
        self,
        table: Mapping[str, Any],
        path: Path,
        folder: Path,
        asked: Mapping[str, Question],
        keep: Sequence[str],
    ) -> None:
        self.questions: dict[str, Question] = {}
        self.files: list[Path] = []
        self.secrets: list[str] = []
        self._asked, self._keep, self._folder = asked, frozenset(keep), folder
        self._given: dict[str, str] = {}
        inputs = cast("list[dict[str, Any]]", table.get("inputs") or [])
        self._inputs = {one["id"]: one for one in inputs}
        section = table.get("mcpServers") or table.get("servers") or table.get("mcp", {}).get("servers", {})
        place = Place(str(path)).at("mcpServers")
        self.servers = {
            name: self._server(name, entry, place.at(name))
            for name, entry in section.items()
            if entry.get("disabled") is not True and entry.get("enabled") is not False
        }
        if not self.servers:
            raise place.error("no server is enabled", "enable one with `mcp-toolset enable`")
        said: dict[str, Any] = table.get("toolset", {})
        self.section = {
            key: self._deep("toolset", key, value, key)
            for key, value in said.items()
            if key not in ("auth", "lock")
        }

    def _server(self, name: str, entry: dict[str, Any], place: Place) -> dict[str, Any]:
        server_keys(entry, place)
        validated(ServerEntry, entry, place)
        made: dict[str, Any] = {}
        env: dict[str, str | None] = dict(entry.get("env") or {})
        if file := entry.get("envFile"):
            env = {**_env_file(self._folder, file, place), **env}
        for key in (key for key in known_keys(ServerEntry) if key in entry):
            value = entry[key]
            match key:
                case "env" | "envFile":
                    pass
                case "headers":
                    made[key] = {header: self._given_as(name, header, text) for header, text in value.items()}
                case "args":
                    made[key] = self._arguments(name, value)
                case "cwd":
                    made[key] = self._path(name, "folder", value)
                case "command":
                    made[key] = _program(value, place)
                case _ if key in _URLS:
                    made[key] = self._address(name, value)
                case _:
                    made[key] = self._deep(name, key, value, key)
        if env:
            made["env"] = {key: self._given_as(name, key, text, own=True) for key, text in env.items()}
        return made

    def _deep(self, name: str, key: str, value: Any, within: str) -> Any:
        """Any other value; in the sections that have secrets, what is under the name of one is asked for."""
        if isinstance(value, dict):
            table = cast("dict[str, Any]", value)
            return {inner: self._deep(name, inner, each, within) for inner, each in table.items()}
        if isinstance(value, list):
            return [self._deep(name, key, each, within) for each in cast("list[Any]", value)]
        if not isinstance(value, str):
            return value
        is_secret = within in (*_WITH_SECRETS, *homes("key")) and _SECRET_KEY.search(key)
        return self._given_as(name, key, value) if is_secret else self._text(name, value)

    def _given_as(self, server: str, name: str, value: str | None, *, own: bool = False) -> str | None:
        """A value of `env` or `headers`, or under the name of a secret: what is written out is asked for."""
        if value is None or (
            len(REFERENCE.sub("", value).strip()) <= _LONGEST_SCHEME and REFERENCE.search(value)
        ):
            return None if value is None else self._text(server, value)
        path = Path(value)
        if path.is_absolute() and path.exists():
            return self._path(server, name, value)
        if not Secrets.of([value]) or (name in PLAIN_VARIABLES and not path.is_absolute()):
            return value
        variable = name if own and name not in PLAIN_VARIABLES else f"{server}_{name}"
        return self._ask(variable, value, "secret", f"{name} of the server {server}")

    def _arguments(self, server: str, words: Sequence[str]) -> list[str]:
        made: list[str] = []
        secrets = sorted(
            {value for value in secret_arguments(words) if Secrets.of([value])}, key=len, reverse=True
        )
        flag = ""
        for word in words:
            assigned = re.match(r"-*([\w-]+)=", word)
            name = assigned[1] if assigned else flag.strip("-")
            for secret in secrets:
                if secret in word and not REFERENCE.search(word):
                    about = f"{name or 'A secret'} of the server {server}"
                    word = word.replace(
                        secret, self._ask(f"{server}_{name or 'secret'}", secret, "secret", about)
                    )
            made.append(self._path(server, name or "folder", word))
            flag = word if word.startswith("-") and "=" not in word else ""
        return made

    def _address(self, server: str, url: str) -> str:
        if REFERENCE.search(url):
            return self._text(server, url)
        if not Secrets.of(secrets_of_url(url)):
            return url
        return self._ask(f"{server}_url", url, "secret", f"The address of the server {server}")

    def _path(self, server: str, name: str, word: str) -> str:
        """A word that may be a path, also after `--option=`."""
        written_as = word
        if word.startswith(_FOLDER):
            word = f"{self._folder}{word.removeprefix(_FOLDER)}"
        if REFERENCE.search(word):
            return self._text(server, written_as)
        before, sign, tail = word.rpartition("=") if word.startswith("-") else ("", "", word)
        path = self._folder / tail
        written = (
            tail in (".", "..") or tail.startswith(("./", "../", ".\\", "..\\")) or Path(tail).is_absolute()
        )
        is_here = path.exists() or (word == written_as and Path(tail).is_relative_to(Path.home()))
        if not tail or not is_here or not (written or path.is_file()):
            return written_as
        inside = path.resolve().is_relative_to(self._folder.resolve())
        if path.is_file() and inside:
            self.files.append(path.resolve())
            return f"{before}{sign}{_FOLDER}/{path.resolve().relative_to(self._folder.resolve()).as_posix()}"
        kind: Kind = "folder" if path.is_dir() else "file"
        asked = self._ask(f"{server}_{name}", tail, kind, f"A {kind} for the server {server}")
        return f"{before}{sign}{asked}"

    def _text(self, server: str, text: str) -> str:
        return REFERENCE.sub(lambda found: self._reference(server, found), text)

    def _reference(self, server: str, found: re.Match[str]) -> str:
        kind, name, default = found["kind"], found["name"], found["default"]
        about = f"For the server {server}" if server != "toolset" else ""
        if kept := found["secret"] or found["file"]:
            return self._ask(re.split(r"[/\\]", kept)[-1], None, "secret", about)
        if kind == "input":
            return self._input(name)
        if kind not in (None, "env") or name in _PREDEFINED | PLAIN_VARIABLES:
            return found[0]
        if default is not None and default.startswith((".", "~", "/")):
            home = default.startswith("~")
            return self._ask(
                name, None, "folder", about, default.replace("~", "${HOME}", 1) if home else None
            )
        return self._ask(name, None, "secret" if default is None else "text", about, default)

    def _input(self, name: str) -> str:
        said = self._inputs.get(name, {})
        default = None if said.get("password") else said.get("default")
        about = str(said.get("description") or "")
        return self._ask(f"MCP_INPUT_{name}", None, "secret" if default is None else "text", about, default)

    def _ask(self, name: str, value: str | None, kind: Kind, about: str, default: str | None = None) -> str:
        """The reference to a variable that the user is asked for, or the value if it is to be kept."""
        variable = first = re.sub(r"\W", "_", name).upper()
        if value is not None:
            number = 1
            while self._given.setdefault(variable, value) != value:
                number += 1
                variable = f"{first}_{number}"
            if variable in self._keep:
                return value
            if kind == "secret":
                self.secrets.append(value)
        self.questions[variable] = self._asked.get(variable) or Question(variable, kind, default, about)
        return f"${{{variable}}}"


def _program(command: str, place: Place) -> str:
    if "/" in command or "\\" in command:
        raise place.at("command").error(
            "names a program by a path of this machine",
            "write a program that the users have, such as uvx or npx, or the script that a package of "
            "--requires installs",
        )
    return command


def _env_file(folder: Path, file: str, place: Place) -> dict[str, str | None]:
    path = folder / file.replace(_FOLDER, str(folder))
    try:
        return {**parse_env_file(read_text(path, str(path)))}
    except (OSError, ConfigError):
        raise place.at("envFile").error(
            "cannot be read", "correct its path, or ask with --ask NAME"
        ) from None
