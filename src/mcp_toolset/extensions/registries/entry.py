"""`InstallWay`: one way to have a server of a registry, and the entry of a configuration that it becomes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, Final

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

_BRACES: Final = re.compile(r"\{([\w.-]+)\}")

Ask = Callable[[str, Input], str | None]
"""Asks the user for the value of an input by its name; `None` if there is nobody to ask, or no answer."""


@dataclass(frozen=True, slots=True)
class InstallWay:
    """A package or an address of a server; `refusal` says why it cannot be had, empty if it can."""

    way: str
    refusal: str = ""
    package: Package | None = None
    remote: Transport | None = None


def offers(server: ServerJson) -> list[InstallWay]:
    """The ways in the order of the description, addresses first, as nothing is started here for them."""
    found: list[InstallWay] = []
    for remote in server.remotes:
        way = "sse" if remote.type == "sse" else "http"
        found.append(InstallWay(way, _refusal(lambda one=remote: check_remote(one)), remote=remote))
    for package in server.packages:
        way = package.registry_type if package.registry_type in (*RUNTIMES, "mcpb", "nuget") else "other"
        found.append(InstallWay(way, _refusal(lambda one=package: check_package(one)), package=package))
    return found


def _refusal(check: Callable[[], None]) -> str:
    try:
        check()
    except TargetError as fault:
        return str(fault)
    return ""


@dataclass(slots=True)
class InputValues:
    """The values of the inputs of one server.

    Attributes:
        server: The name that the server has in the file.
        given: What the command line says, by the names of inputs.
        ask: Asks a person, if there is one.
        secrets: Secrets to be kept, by their names in the keyring.
        unset: Variables that the user has to set before the server can be started, and what they are.
    """

    server: str
    given: Mapping[str, Sequence[str]]
    ask: Ask | None = None
    secrets: dict[str, str] = field(default_factory=dict[str, str])
    unset: dict[str, str] = field(default_factory=dict[str, str])
    asked: dict[str, Input] = field(default_factory=dict[str, Input])

    def values(self, one: Input, name: str) -> list[str]:
        """The texts of an input for the file; none if it is left out."""
        if one.value is not None:
            filled = self._filled(plain(one.value, name), one)
            return [] if filled is None else [filled]
        self.asked[name] = one
        if (said := self.given.get(name)) is not None:
            if len(said) > 1 and not one.is_repeated:
                raise TargetError(f"{name} has one value, and is given {len(said)}; give it once")
            return [self._checked(text, one, name) for text in said]
        if self.ask is not None and (answer := self.ask(name, one)):
            return [self._checked(answer, one, name)]
        if one.default is not None:
            return [plain(one.default, name)]
        return [self._left(name, one)] if one.is_required else []

    def text(self, template: str, variables: Mapping[str, Input], what: str) -> str:
        """A template with its variables; each is needed."""
        needed = {name: one.model_copy(update={"is_required": True}) for name, one in variables.items()}
        filled = self._filled(plain(template, what), Input(variables=needed))
        return template if filled is None else filled

    def _filled(self, template: str, one: Input) -> str | None:
        missing = False

        def value(found: re.Match[str]) -> str:
            nonlocal missing
            variable = one.variables.get(found[1])
            if variable is None:
                return found[0]
            if one.is_required and not variable.is_required:
                variable = variable.model_copy(update={"is_required": True})
            values = self.values(variable, found[1])
            missing = missing or not values
            return values[0] if values else ""

        filled = _BRACES.sub(value, template)
        return None if missing else filled

    def _checked(self, text: str, one: Input, name: str) -> str:
        if one.choices and text not in one.choices:
            raise TargetError(f"{name}: is one of {', '.join(plain(each, name) for each in one.choices)}")
        if not one.is_secret or text.startswith("${"):
            return text
        kept = f"{self.server}/{name}"
        self.secrets[kept] = text
        return f"${{keyring:{kept}}}"

    def _left(self, name: str, one: Input) -> str:
        # The name of the server stands before it: a stranger must not name a variable that the user has.
        variable = re.sub(r"\W", "_", f"{self.server}_{name}", flags=re.ASCII).upper()
        variable = variable if variable[0].isalpha() else f"MCP_{variable}"
        self.unset[variable] = one.description
        return f"${{{variable}}}"


def entry_of(offer: InstallWay, answers: InputValues) -> dict[str, Any]:
    """The entry of a configuration.

    Raises:
        TargetError: a text of the description is refused, or a value does not fit.
    """
    if offer.remote is not None:
        return _remote(offer.remote, answers)
    assert offer.package is not None
    return _package(offer.package, answers)


def _remote(remote: Transport, answers: InputValues) -> dict[str, Any]:
    entry: dict[str, Any] = {"type": "sse"} if remote.type == "sse" else {"type": "http"}
    entry["url"] = answers.text(remote.url, remote.variables, "the address")
    if headers := dict(_pairs(remote.headers, answers)):
        entry["headers"] = headers
    return entry


def _package(package: Package, answers: InputValues) -> dict[str, Any]:
    kind, env = package.registry_type, dict(_pairs(package.environment_variables, answers))
    before = [*_words(package.runtime_arguments, answers)]
    words = [*_words(package.package_arguments, answers)]
    if kind == "oci":
        passed = [word for name in env for word in ("-e", name)]
        before = [
            "run",
            "-i",
            "--rm",
            *(one for one in before if one not in ("-i", "--interactive", "--rm")),
            *passed,
        ]
    elif kind == "npm":
        before = ["-y"]
    entry: dict[str, Any] = {"command": RUNTIMES[kind], "args": [*before, _name_of(package), *words]}
    return {**entry, "env": env} if env else entry


def _name_of(package: Package) -> str:
    name, version, base = package.identifier, package.version, package.registry_base_url
    if package.registry_type != "oci":
        return f"{name}@{version}"
    host = base.partition("://")[2].strip("/")
    is_default = host.split(".")[-2:-1] == ["docker"]
    if host and not is_default and not name.startswith(f"{host}/"):
        name = f"{plain(host, 'registryBaseUrl')}/{name}"
    has_tag = "@" in name or ":" in name.rpartition("/")[2]
    return name if has_tag or not version else f"{name}:{version}"


def _pairs(inputs: Iterable[Input], answers: InputValues) -> Iterator[tuple[str, str]]:
    for one in inputs:
        for value in answers.values(one, one.name)[:1]:
            yield one.name, value


def _words(inputs: Iterable[Input], answers: InputValues) -> Iterator[str]:
    for number, one in enumerate(inputs, 1):
        name = one.name.strip("-=") or one.value_hint or f"argument-{number}"
        if one.type == "named" and one.value is None and one.default is None and not one.is_required:
            if name in answers.given or answers.ask is not None:
                yield from _named(one, answers.values(one, name))
            continue
        values = answers.values(one, name)
        yield from _named(one, values) if one.type == "named" else values


def _named(one: Input, values: Sequence[str]) -> Iterator[str]:
    for value in values:
        if one.name.endswith("="):
            yield one.name + value
        else:
            yield one.name
            if value:
                yield value
