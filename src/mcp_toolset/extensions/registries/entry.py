"""`InstallOption`: a package or an address of a server in a registry, and its entry for a configuration."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, Final, TypeVar

from mcp_toolset._records import dataclass
from mcp_toolset.errors import TargetError
from mcp_toolset.extensions.registries.server_json import (
    RUNTIMES,
    Input,
    Package,
    ServerJson,
    Transport,
    check_package,
    check_remote,
    plain,
)

_Checked = TypeVar("_Checked")

_BRACES: Final = re.compile(r"\{([\w.-]+)\}")

Ask = Callable[[str, Input], str | None]
"""Asks the user for the value of an input; `None` without an answer."""


@dataclass(frozen=True, slots=True)
class InstallOption:
    """A package or an address of a server.

    Attributes:
        kind: The type of the package, or `http` or `sse`.
        refusal: The reason for which it cannot be installed; empty if it can.
    """

    kind: str
    refusal: str = ""
    package: Package | None = None
    remote: Transport | None = None


def install_options(server: ServerJson) -> list[InstallOption]:
    """The options in the order of the description; addresses first, as they start no process here."""
    options: list[InstallOption] = []
    for remote in server.remotes:
        kind = "sse" if remote.type == "sse" else "http"
        options.append(InstallOption(kind, _refusal(check_remote, remote), remote=remote))
    for package in server.packages:
        kind = package.registry_type if package.registry_type in (*RUNTIMES, "mcpb", "nuget") else "other"
        options.append(InstallOption(kind, _refusal(check_package, package), package=package))
    return options


def _refusal(check: Callable[[_Checked], None], checked: _Checked) -> str:
    try:
        check(checked)
    except TargetError as fault:
        return str(fault)
    return ""


@dataclass(slots=True)
class InputValues:
    """The values of the inputs of one server.

    Attributes:
        server: The name of the server in the file.
        given: The values on the command line, by the names of inputs.
        ask: Asks the user; `None` without a terminal.
        secrets: Secrets to be stored, by their names in the keyring.
        unset: Variables that the user has to set before the server can start, with their descriptions.
        asked: The inputs without a fixed value, by name.
    """

    server: str
    given: Mapping[str, Sequence[str]]
    ask: Ask | None = None
    secrets: dict[str, str] = field(default_factory=dict[str, str])
    unset: dict[str, str] = field(default_factory=dict[str, str])
    asked: dict[str, Input] = field(default_factory=dict[str, Input])

    def values(self, entry: Input, name: str) -> list[str]:
        """The values of an input for the file; empty if the input is left out."""
        if entry.value is not None:
            filled = self._filled(plain(entry.value, name), entry)
            return [] if filled is None else [filled]
        self.asked[name] = entry
        if (given := self.given.get(name)) is not None:
            if len(given) > 1 and not entry.is_repeated:
                raise TargetError(f"{name} has one value, and is given {len(given)}; give it once")
            return [self._checked(text, entry, name) for text in given]
        if self.ask is not None and (answer := self.ask(name, entry)):
            return [self._checked(answer, entry, name)]
        if entry.default is not None:
            return [plain(entry.default, name)]
        return [self._reference(name, entry)] if entry.is_required else []

    def text(self, template: str, variables: Mapping[str, Input], what: str) -> str:
        """A template with the values of its variables, which are all required."""
        required = {
            name: variable.model_copy(update={"is_required": True}) for name, variable in variables.items()
        }
        filled = self._filled(plain(template, what), Input(variables=required))
        return template if filled is None else filled

    def _filled(self, template: str, entry: Input) -> str | None:
        """A template with the values of an input's variables; `None` if one has no value."""
        missing = False

        def value(match: re.Match[str]) -> str:
            nonlocal missing
            variable = entry.variables.get(match[1])
            if variable is None:
                return match[0]
            if entry.is_required and not variable.is_required:
                variable = variable.model_copy(update={"is_required": True})
            values = self.values(variable, match[1])
            missing = missing or not values
            return values[0] if values else ""

        filled = _BRACES.sub(value, template)
        return None if missing else filled

    def _checked(self, text: str, entry: Input, name: str) -> str:
        """A given value for the file: a reference to the keyring if it is secret."""
        if entry.choices and text not in entry.choices:
            choices = ", ".join(plain(choice, name) for choice in entry.choices)
            raise TargetError(f"{name}: is one of {choices}")
        if not entry.is_secret or text.startswith("${"):
            return text
        secret = f"{self.server}/{name}"
        self.secrets[secret] = text
        return f"${{keyring:{secret}}}"

    def _reference(self, name: str, entry: Input) -> str:
        """A reference to a variable that the user has to set."""
        # The name begins with that of the server: a registry must not name an existing variable of the user.
        variable = re.sub(r"\W", "_", f"{self.server}_{name}", flags=re.ASCII).upper()
        variable = variable if variable[0].isalpha() else f"MCP_{variable}"
        self.unset[variable] = entry.description
        return f"${{{variable}}}"


def entry_of(option: InstallOption, inputs: InputValues) -> dict[str, Any]:
    """The entry of a configuration.

    Raises:
        TargetError: a text of the description is refused, or a value does not fit.
    """
    if option.remote is not None:
        return _remote(option.remote, inputs)
    assert option.package is not None
    return _package(option.package, inputs)


def _remote(remote: Transport, inputs: InputValues) -> dict[str, Any]:
    entry: dict[str, Any] = {"type": "sse"} if remote.type == "sse" else {"type": "http"}
    entry["url"] = inputs.text(remote.url, remote.variables, "the address")
    if headers := dict(_pairs(remote.headers, inputs)):
        entry["headers"] = headers
    return entry


def _package(package: Package, inputs: InputValues) -> dict[str, Any]:
    kind, env = package.registry_type, dict(_pairs(package.environment_variables, inputs))
    runtime_words = [*_words(package.runtime_arguments, inputs)]
    words = [*_words(package.package_arguments, inputs)]
    if kind == "oci":
        always = ("-i", "--interactive", "--rm")
        runtime_words = ["run", "-i", "--rm", *(word for word in runtime_words if word not in always)]
        for name in env:
            runtime_words += ["-e", name]
    elif kind == "npm":
        runtime_words = ["-y"]
    args = [*runtime_words, _package_name(package), *words]
    entry: dict[str, Any] = {"command": RUNTIMES[kind], "args": args}
    return {**entry, "env": env} if env else entry


def _package_name(package: Package) -> str:
    name, version, base = package.identifier, package.version, package.registry_base_url
    if package.registry_type != "oci":
        return f"{name}@{version}"
    host = base.partition("://")[2].strip("/")
    is_default = host.split(".")[-2:-1] == ["docker"]
    if host and not is_default and not name.startswith(f"{host}/"):
        name = f"{plain(host, 'registryBaseUrl')}/{name}"
    has_tag = "@" in name or ":" in name.rpartition("/")[2]
    return name if has_tag or not version else f"{name}:{version}"


def _pairs(entries: Iterable[Input], inputs: InputValues) -> Iterator[tuple[str, str]]:
    """The names and values of headers or environment variables."""
    for entry in entries:
        for value in inputs.values(entry, entry.name)[:1]:
            yield entry.name, value


def _words(entries: Iterable[Input], inputs: InputValues) -> Iterator[str]:
    """The words of arguments on a command line."""
    for number, entry in enumerate(entries, 1):
        name = entry.name.strip("-=") or entry.value_hint or f"argument-{number}"
        is_named = entry.type == "named"
        has_value = entry.value is not None or entry.default is not None or entry.is_required
        if not has_value and is_named and name not in inputs.given and inputs.ask is None:
            continue
        values = inputs.values(entry, name)
        yield from _named_words(entry, values) if is_named else values


def _named_words(entry: Input, values: Sequence[str]) -> Iterator[str]:
    for value in values:
        if entry.name.endswith("="):
            yield entry.name + value
        else:
            yield entry.name
            if value:
                yield value
