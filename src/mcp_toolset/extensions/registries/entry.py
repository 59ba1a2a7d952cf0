"""`InstallWay`: one way to have a server of a registry, and the entry of a configuration that it becomes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, Final, cast

from mcp_toolset._records import dataclass
from mcp_toolset.errors import TargetError
from mcp_toolset.extensions.registries import server_json

_BRACES: Final = re.compile(r"\{([\w.-]+)\}")
_OTHER: Final = re.compile(r"[^\w.-]", re.ASCII)
_REFERENCE: Final = re.compile(r"\$\{[^}]*\}")
_MARK: Final = re.compile("\0(\\d+)\0")
"""The place of a text of the user; a text of a description cannot have it."""

Ask = Callable[[str, server_json.Input], str | None]
"""Asks the user for the value of an input by its name; `None` if there is nobody to ask, or no answer."""


@dataclass(frozen=True, slots=True)
class InstallWay:
    """A package or an address of a server; `refusal` says why it cannot be had, empty if it can."""

    way: str
    refusal: str = ""
    package: server_json.Package | None = None
    remote: server_json.Transport | None = None


def offers(server: server_json.ServerJson) -> list[InstallWay]:
    """The ways in the order of the description, addresses first, as nothing is started here for them."""
    found: list[InstallWay] = []
    for remote in server.remotes:
        way = "sse" if remote.type == "sse" else "http"
        found.append(
            InstallWay(way, _refusal(lambda one=remote: server_json.check_remote(one)), remote=remote)
        )
    for package in server.packages:
        way = (
            package.registry_type
            if package.registry_type in (*server_json.RUNTIMES, "mcpb", "nuget")
            else "other"
        )
        found.append(
            InstallWay(way, _refusal(lambda one=package: server_json.check_package(one)), package=package)
        )
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

    Inputs of one name have one value, which is a secret if one of them is. A text of the user stands as a
    mark in values until `written`, so that it is told from what the description says.

    Attributes:
        server: The name that the server has in the file.
        given: What the command line says, by the names of inputs.
        ask: Asks a person, if there is one.
        secret_names: The names of the inputs that are secrets.
        secrets: Secrets to be kept, by their names in the keyring.
        unset: Variables that the user has to set before the server can be started, and what they are.
    """

    server: str
    given: Mapping[str, Sequence[str]]
    ask: Ask | None = None
    secret_names: frozenset[str] = frozenset()
    secrets: dict[str, str] = field(default_factory=dict[str, str])
    unset: dict[str, str] = field(default_factory=dict[str, str])
    asked: dict[str, server_json.Input] = field(default_factory=dict[str, server_json.Input])
    _answers: dict[str, str | None] = field(default_factory=dict[str, str | None])
    _texts: list[str] = field(default_factory=list[str])

    def values(self, one: server_json.Input, name: str) -> list[str]:
        """The texts of an input, with marks; none if it is left out."""
        if one.value is not None:
            filled = self._filled(server_json.plain(one.value, name), one)
            return [] if filled is None else [filled]
        if name in self.secret_names:
            one = one.model_copy(update={"is_secret": True})
        self.asked[name] = one
        default = None if one.default is None else server_json.plain(one.default, name)
        if (said := self.given.get(name)) is not None:
            if len(said) > 1 and not one.is_repeated:
                raise TargetError(f"{name} has one value, and is given {len(said)}; give it once")
            return [self._checked(text, one, name) for text in said]
        if self.ask is not None and name not in self._answers:
            self._answers[name] = self.ask(name, one)
        if answer := self._answers.get(name):
            return [self._checked(answer, one, name)]
        if default is not None:
            return [default]
        return [self._left(name, one)] if one.is_required else []

    def written(self, text: str, what: str) -> str:
        """A text for the file, with the texts of the user in place of marks.

        Raises:
            TargetError: it has a reference that the user has not written, or not in one piece.
        """
        server_json.plain(_MARK.sub("x", text), what)
        parts = [(part, number % 2 == 1) for number, part in enumerate(_MARK.split(text))]
        whole, own = "", list[tuple[int, int]]()
        for part, is_mark in parts:
            added = self._texts[int(part)] if is_mark else part
            if is_mark:
                own.append((len(whole), len(whole) + len(added)))
            whole += added
        for found in re.finditer(r"\$\{", whole):
            end = whole.find("}", found.start())
            if not any(start <= found.start() and end < stop for start, stop in own):
                raise TargetError(
                    f"{what} would become a reference, such as ${{NAME}}, with a text of the description; "
                    "the server was not added"
                )
        return whole

    def keyring_name(self, name: str) -> str:
        """The name in the keyring of a secret, in which nothing ends a reference."""
        return f"{self.server}/{_OTHER.sub('_', name)}"

    def text(self, template: str, variables: Mapping[str, server_json.Input], what: str) -> str:
        """A template with its variables; each is needed."""
        needed = {name: one.model_copy(update={"is_required": True}) for name, one in variables.items()}
        filled = self._filled(server_json.plain(template, what), server_json.Input(variables=needed))
        return template if filled is None else filled

    def _filled(self, template: str, one: server_json.Input) -> str | None:
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

    def _checked(self, text: str, one: server_json.Input, name: str) -> str:
        if one.choices and text not in one.choices:
            raise TargetError(
                f"{name}: is one of {', '.join(server_json.plain(each, name) for each in one.choices)}"
            )
        if not one.is_secret or is_reference(text):
            return self._mark(text)
        kept = self.keyring_name(name)
        self.secrets[kept] = text
        return self._mark(f"${{keyring:{kept}}}")

    def _left(self, name: str, one: server_json.Input) -> str:
        # A stranger that calls itself `aws` must not name a variable that the user has.
        variable = "MCP_INPUT_" + re.sub(r"\W", "_", f"{self.server}_{name}", flags=re.ASCII).upper()
        self.unset[variable] = one.description
        return self._mark(f"${{{variable}}}")

    def _mark(self, text: str) -> str:
        if "\0" in text:
            raise TargetError("a value has the character NUL, which no file can have; remove it")
        self._texts.append(text)
        return f"\0{len(self._texts) - 1}\0"


def is_reference(text: str) -> bool:
    """True if a value of the user is a reference, and nothing beside it."""
    return _REFERENCE.fullmatch(text) is not None


def entry_of(offer: InstallWay, answers: InputValues) -> dict[str, Any]:
    """The entry of a configuration.

    Raises:
        TargetError: a text of the description is refused, or a value does not fit.
    """
    answers.secret_names = frozenset(name for name, one in _inputs(offer) if one.is_secret)
    if offer.remote is not None:
        entry = _remote(offer.remote, answers)
    else:
        assert offer.package is not None
        entry = _package(offer.package, answers)
    return cast("dict[str, Any]", _written(entry, answers, "the entry"))


def _written(value: Any, answers: InputValues, what: str) -> Any:
    """A value of an entry, each text of which is judged as it will stand in the file."""
    if isinstance(value, dict):
        table = cast("dict[str, Any]", value)
        return {server_json.plain(key, what): _written(one, answers, key) for key, one in table.items()}
    if isinstance(value, list):
        return [_written(one, answers, what) for one in cast("list[Any]", value)]
    return answers.written(value, what)


def _inputs(offer: InstallWay) -> Iterator[tuple[str, server_json.Input]]:
    """Every input of a server, by the name under which it is asked for."""
    package, remote = offer.package or server_json.Package(), offer.remote or server_json.Transport()
    for one in (*package.environment_variables, *remote.headers):
        yield from _with_variables(one.name, one)
    for every in (package.runtime_arguments, package.package_arguments):
        for number, one in enumerate(every, 1):
            yield from _with_variables(_name_of_word(one, number), one)
    for name, one in remote.variables.items():
        yield from _with_variables(name, one)


def _with_variables(name: str, one: server_json.Input) -> Iterator[tuple[str, server_json.Input]]:
    yield name, one
    for inner, variable in one.variables.items():
        yield from _with_variables(inner, variable)


def _remote(remote: server_json.Transport, answers: InputValues) -> dict[str, Any]:
    entry: dict[str, Any] = {"type": "sse"} if remote.type == "sse" else {"type": "http"}
    url = answers.text(remote.url, remote.variables, "the address")
    server_json.public_address(_MARK.sub("x", url), remote.url)
    entry["url"] = server_json.with_plain_host(url)
    if headers := dict(_pairs(remote.headers, answers)):
        entry["headers"] = headers
    return entry


def _package(package: server_json.Package, answers: InputValues) -> dict[str, Any]:
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
    entry: dict[str, Any] = {
        "command": server_json.RUNTIMES[kind],
        "args": [*before, _name_of(package), *words],
    }
    return {**entry, "env": env} if env else entry


def _name_of(package: server_json.Package) -> str:
    name, version, base = package.identifier, package.version, package.registry_base_url
    if package.registry_type != "oci":
        return f"{name}@{version}"
    host = base.partition("://")[2].strip("/")
    is_default = host.split(".")[-2:-1] == ["docker"]
    if host and not is_default and not name.startswith(f"{host}/"):
        name = f"{server_json.plain(host, 'registryBaseUrl')}/{name}"
    has_tag = "@" in name or ":" in name.rpartition("/")[2]
    return server_json.image_of(name if has_tag or not version else f"{name}:{version}")


def _pairs(inputs: Iterable[server_json.Input], answers: InputValues) -> Iterator[tuple[str, str]]:
    for one in inputs:
        for value in answers.values(one, one.name)[:1]:
            yield one.name, value


def _words(inputs: Iterable[server_json.Input], answers: InputValues) -> Iterator[str]:
    for number, one in enumerate(inputs, 1):
        name = _name_of_word(one, number)
        if one.type == "named" and one.value is None and one.default is None and not one.is_required:
            if name in answers.given or answers.ask is not None:
                yield from _named(one, answers.values(one, name))
            continue
        values = answers.values(one, name)
        yield from _named(one, values) if one.type == "named" else values


def _name_of_word(one: server_json.Input, number: int) -> str:
    return one.name.strip("-=") or one.value_hint or f"argument-{number}"


def _named(one: server_json.Input, values: Sequence[str]) -> Iterator[str]:
    for value in values:
        if one.name.endswith("="):
            yield one.name + value
        else:
            yield one.name
            if value:
                yield value
