"""`InstallOption`: a package or an address of a server in a registry; `entry_of` makes its configuration."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, Final, cast

from mcp_toolset._records import dataclass
from mcp_toolset.errors import TargetError
from mcp_toolset.extensions.registries import server_json

_BRACES: Final = re.compile(r"\{([\w.-]+)\}")
_OTHER: Final = re.compile(r"[^\w.-]", re.ASCII)
_SEPARATORS: Final = re.compile(r"[^A-Za-z0-9]+")
_PLAIN_SERVER: Final = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
"""Names of entries of which no two become the same in capitals, with `_` for `-`."""

_REFERENCE: Final = re.compile(r"\$\{[^}]*\}")
_MARK: Final = re.compile("\0(\\d+)\0")
"""The mark of a text of the user; no text of a description can contain one."""

Ask = Callable[[str, server_json.Input], str | None]
"""Asks the user for the value of an input by its name; `None` without an answer."""


@dataclass(frozen=True, slots=True)
class InstallOption:
    """A package or an address of a server.

    Attributes:
        way: `http` or `sse` for an address; `npm`, `pypi`, `oci`, `mcpb`, `nuget` or `other` for a package.
        refusal: The reason for which it cannot be installed; empty if it can.
        package: The package; `None` for an address.
        remote: The address; `None` for a package.
    """

    way: str
    refusal: str = ""
    package: server_json.Package | None = None
    remote: server_json.Transport | None = None


def install_options(server: server_json.ServerJson) -> list[InstallOption]:
    """The options in the order of the description, addresses first: they start no program here."""
    return [*map(_by_remote, server.remotes), *map(_by_package, server.packages)]


def _by_remote(remote: server_json.Transport) -> InstallOption:
    way = "sse" if remote.type == "sse" else "http"
    return InstallOption(way, _refusal(lambda: server_json.check_remote(remote)), remote=remote)


def _by_package(package: server_json.Package) -> InstallOption:
    kinds = (*server_json.RUNTIMES, "mcpb", "nuget")
    way = package.registry_type if package.registry_type in kinds else "other"
    return InstallOption(way, _refusal(lambda: server_json.check_package(package)), package=package)


def _refusal(check: Callable[[], None]) -> str:
    try:
        check()
    except TargetError as fault:
        return str(fault)
    return ""


@dataclass(slots=True)
class InputValues:
    """The values of the inputs of one server.

    Inputs of one name have one value, which is a secret if one of these inputs is. In values a mark stands
    for each text of the user, until `with_user_texts`: so the texts of the description can be checked alone.

    Attributes:
        server: The name of the server in the file.
        given: The values on the command line, by the names of inputs.
        ask: The question to the user; `None` if no user can be asked.
        secret_names: The names of the inputs that are secrets.
        secrets: Secrets to be kept, by their names in the keyring.
        unset: The descriptions of variables that the user must set before the server can start, by name.
        asked: The inputs that were needed, by name.
    """

    server: str
    given: Mapping[str, Sequence[str]]
    ask: Ask | None = None
    secret_names: frozenset[str] = frozenset()
    secrets: dict[str, str] = field(default_factory=dict[str, str])
    unset: dict[str, str] = field(default_factory=dict[str, str])
    asked: dict[str, server_json.Input] = field(default_factory=dict[str, server_json.Input])
    _answers: dict[str, str | None] = field(default_factory=dict[str, str | None])
    _variables: dict[str, str] = field(default_factory=dict[str, str])
    _texts: list[str] = field(default_factory=list[str])

    def values(self, spec: server_json.Input, name: str) -> list[str]:
        """The texts of an input, with marks; none if it is left out."""
        if spec.value is not None:
            filled = self._filled(server_json.plain(spec.value, name), spec)
            return [] if filled is None else [filled]
        if name in self.secret_names:
            spec = spec.model_copy(update={"is_secret": True})
        self.asked[name] = spec
        default = None if spec.default is None else server_json.plain(spec.default, name)
        if (texts := self.given.get(name)) is not None:
            if len(texts) > 1 and not spec.is_repeated:
                raise TargetError(f"{name} has one value, and is given {len(texts)}; give it once")
            return [self._checked(text, spec, name) for text in texts]
        if self.ask is not None and name not in self._answers:
            self._answers[name] = self.ask(name, spec)
        if answer := self._answers.get(name):
            return [self._checked(answer, spec, name)]
        if default is not None:
            return [default]
        return [self._reference_to_set(name, spec)] if spec.is_required else []

    def with_user_texts(self, template: str, what: str) -> str:
        """A text for the file, with the texts of the user in place of marks.

        Raises:
            TargetError: it has a reference that the user has not written, or not in one piece.
        """
        server_json.plain(_MARK.sub("x", template), what)
        text, user_spans = "", list[tuple[int, int]]()
        for number, part in enumerate(_MARK.split(template)):
            # `split` returns texts and the numbers of marks in turn.
            is_mark = number % 2 == 1
            added = self._texts[int(part)] if is_mark else part
            if is_mark:
                user_spans.append((len(text), len(text) + len(added)))
            text += added
        for opening in re.finditer(r"\$\{", text):
            begin, end = opening.start(), text.find("}", opening.start())
            if not any(start <= begin and end < stop for start, stop in user_spans):
                raise TargetError(
                    f"{what} would become a reference, such as ${{NAME}}, with a text of the description; "
                    "the server was not added"
                )
        return text

    def keyring_name(self, name: str) -> str:
        """The name of a secret in the keyring, without characters that would end a reference."""
        return f"{self.server}/{_OTHER.sub('_', name)}"

    def text(self, template: str, variables: Mapping[str, server_json.Input], what: str) -> str:
        """A template with the values of its variables, each of which is required."""
        required = {name: spec.model_copy(update={"is_required": True}) for name, spec in variables.items()}
        filled = self._filled(server_json.plain(template, what), server_json.Input(variables=required))
        return template if filled is None else filled

    def _filled(self, template: str, spec: server_json.Input) -> str | None:
        """A template with the values of its variables; `None` if one of them is left out."""
        missing = False

        def value(match: re.Match[str]) -> str:
            nonlocal missing
            variable = spec.variables.get(match[1])
            if variable is None:
                return match[0]
            if spec.is_required and not variable.is_required:
                variable = variable.model_copy(update={"is_required": True})
            values = self.values(variable, match[1])
            missing = missing or not values
            return values[0] if values else ""

        filled = _BRACES.sub(value, template)
        return None if missing else filled

    def _checked(self, text: str, spec: server_json.Input, name: str) -> str:
        if spec.choices and text not in spec.choices:
            choices = ", ".join(server_json.plain(choice, name) for choice in spec.choices)
            raise TargetError(f"{name}: is one of {choices}")
        if not spec.is_secret or is_reference(text):
            return self._mark(text)
        keyring_name = self.keyring_name(name)
        self.secrets[keyring_name] = text
        return self._mark(f"${{keyring:{keyring_name}}}")

    def _reference_to_set(self, name: str, spec: server_json.Input) -> str:
        variable = self._variable_of(name)
        self.unset[variable] = spec.description
        return self._mark(f"${{{variable}}}")

    def _variable_of(self, name: str) -> str:
        """The variable of an input, which no other input has, of this server or of another one.

        The prefix is that of no variable of `${input:ID}`, and only separators of parts are two underscores:
        the server, the input, and a digest of both where the first two would be those of another input.
        """
        server, own = (_SEPARATORS.sub("_", part).strip("_").upper() for part in (self.server, name))
        variable = f"MCP_ADDED_{server}__{own or 'VALUE'}"
        if _PLAIN_SERVER.fullmatch(self.server) and self._variables.setdefault(variable, name) == name:
            return variable
        digest = hashlib.sha256(f"{self.server}\n{name}".encode()).hexdigest()
        return f"{variable}__{digest[:16].upper()}"

    def _mark(self, text: str) -> str:
        if "\0" in text:
            raise TargetError("a value has the character NUL, which no file can have; remove it")
        self._texts.append(text)
        return f"\0{len(self._texts) - 1}\0"


def is_reference(text: str) -> bool:
    """True if a value of the user is one reference and no other text."""
    return _REFERENCE.fullmatch(text) is not None


def entry_of(option: InstallOption, answers: InputValues) -> dict[str, Any]:
    """The entry of a configuration.

    Raises:
        TargetError: a text of the description is refused, or a value does not fit.
    """
    answers.secret_names = frozenset(name for name, spec in _inputs(option) if spec.is_secret)
    if option.remote is not None:
        entry = _remote(option.remote, answers)
    else:
        assert option.package is not None
        entry = _package(option.package, answers)
    return cast("dict[str, Any]", _with_user_texts(entry, answers, "the entry"))


def _with_user_texts(value: Any, answers: InputValues, what: str) -> Any:
    """A value of an entry, each text of which is checked in its final form."""
    if isinstance(value, dict):
        table = cast("dict[str, Any]", value)
        return {
            server_json.plain(key, what): _with_user_texts(item, answers, key) for key, item in table.items()
        }
    if isinstance(value, list):
        return [_with_user_texts(item, answers, what) for item in cast("list[Any]", value)]
    return answers.with_user_texts(value, what)


def _inputs(option: InstallOption) -> Iterator[tuple[str, server_json.Input]]:
    """Every input of a server, by the name under which it is asked for; those in a secret are secrets."""
    package, remote = option.package or server_json.Package(), option.remote or server_json.Transport()
    for spec in (*package.environment_variables, *remote.headers):
        yield from _with_variables(spec.name, spec)
    for arguments in (package.runtime_arguments, package.package_arguments):
        for number, spec in enumerate(arguments, 1):
            yield from _with_variables(_argument_name(spec, number), spec)
    for name, spec in remote.variables.items():
        yield from _with_variables(name, spec)


def _with_variables(name: str, spec: server_json.Input) -> Iterator[tuple[str, server_json.Input]]:
    yield name, spec
    for inner, variable in spec.variables.items():
        is_secret = spec.is_secret or variable.is_secret
        yield from _with_variables(inner, variable.model_copy(update={"is_secret": is_secret}))


def _remote(remote: server_json.Transport, answers: InputValues) -> dict[str, Any]:
    entry: dict[str, Any] = {"type": "sse"} if remote.type == "sse" else {"type": "http"}
    url = answers.text(remote.url, remote.variables, "the address")
    server_json.public_address(_MARK.sub("x", url), remote.url)
    entry["url"] = server_json.with_plain_host(url)
    if headers := dict(_pairs(remote.headers, answers)):
        entry["headers"] = headers
    return entry


_DOCKER_RUN: Final = ("-i", "--interactive", "--rm")


def _package(package: server_json.Package, answers: InputValues) -> dict[str, Any]:
    kind, env = package.registry_type, dict(_pairs(package.environment_variables, answers))
    # Read for npm too, which takes none of them: a value for such an input is then no unknown input.
    runtime = [*_arguments(package.runtime_arguments, answers)]
    arguments = [*_arguments(package.package_arguments, answers)]
    if kind == "oci":
        variables = [word for name in env for word in ("-e", name)]
        others = [word for word in runtime if word not in _DOCKER_RUN]
        runtime = ["run", "-i", "--rm", *others, *variables]
    elif kind == "npm":
        runtime = ["-y"]
    command = server_json.RUNTIMES[kind]
    entry: dict[str, Any] = {"command": command, "args": [*runtime, _reference_of(package), *arguments]}
    return {**entry, "env": env} if env else entry


def _reference_of(package: server_json.Package) -> str:
    """The package with its version, as its runtime takes it."""
    name, version, base = package.identifier, package.version, package.registry_base_url
    if package.registry_type != "oci":
        return f"{name}@{version}"
    host = base.partition("://")[2].strip("/")
    is_default = host.split(".")[-2:-1] == ["docker"]
    if host and not is_default and not name.startswith(f"{host}/"):
        name = f"{server_json.plain(host, 'registryBaseUrl')}/{name}"
    has_tag = "@" in name or ":" in name.rpartition("/")[2]
    return server_json.image_of(name if has_tag or not version else f"{name}:{version}")


def _pairs(specs: Iterable[server_json.Input], answers: InputValues) -> Iterator[tuple[str, str]]:
    """The name and the value of each header or variable that is not left out."""
    for spec in specs:
        for value in answers.values(spec, spec.name)[:1]:
            yield spec.name, value


def _arguments(specs: Iterable[server_json.Input], answers: InputValues) -> Iterator[str]:
    for number, spec in enumerate(specs, 1):
        name = _argument_name(spec, number)
        is_named = spec.type == "named"
        is_optional = is_named and spec.value is None and spec.default is None and not spec.is_required
        # No document says whether an optional flag is wanted: only the user does.
        if is_optional and name not in answers.given and answers.ask is None:
            continue
        values = answers.values(spec, name)
        yield from _flags(spec, values) if is_named else values


def _argument_name(spec: server_json.Input, number: int) -> str:
    return spec.name.strip("-=") or spec.value_hint or f"argument-{number}"


def _flags(spec: server_json.Input, values: Sequence[str]) -> Iterator[str]:
    for value in values:
        if spec.name.endswith("="):
            yield spec.name + value
        else:
            yield spec.name
            if value:
                yield value
