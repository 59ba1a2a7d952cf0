"""`ServerJson`: a server as registries describe it (`server.json`, revisions 2025-07-09 to 2025-12-11).

Anybody who publishes to a registry writes it, so it may be hostile. Each text that would get into a
configuration or a command line is checked here, and refused with a reason if it does other than it shows.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from ipaddress import ip_address
from typing import Annotated, Any, Final, cast
from urllib.parse import urlsplit

from pydantic import (
    AliasChoices,
    AliasGenerator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
)
from pydantic.alias_generators import to_camel

from mcp_toolset.errors import TargetError
from mcp_toolset.security.egress import is_web_address
from mcp_toolset.tools.hidden_text import hidden_in

MOST_BYTES: Final = 1024 * 1024
"""The largest description of one server."""

_LONGEST: Final = 4096
_MANY: Final = 100
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]*/[A-Za-z0-9][A-Za-z0-9._-]*")
_HEADER: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FLAG: Final = re.compile(r"-{0,2}[A-Za-z0-9][\w.:-]*=?", re.ASCII)
_VERSIONS: Final[Mapping[str, re.Pattern[str]]] = {
    # Of npm, `1` and `1.2` are ranges, and a word is a tag that moves.
    "npm": re.compile(r"\d+\.\d+\.\d+(?:[-+][\w.+-]+)?", re.ASCII),
    # PEP 440, whose `1` is 1.0.
    "pypi": re.compile(
        r"v?(?:\d+!)?\d+(?:\.\d+)*(?:[-_.]?(?:a|b|c|rc|alpha|beta|pre|preview)[-_.]?\d*)?"
        r"(?:[-_.]?(?:post|rev|r)[-_.]?\d*|-\d+)?(?:[-_.]?dev[-_.]?\d*)?(?:\+[\w.-]+)?",
        re.ASCII | re.IGNORECASE,
    ),
    # Only a digest is exact; of tags, a word, and `1` alone, move by custom.
    "oci": re.compile(r"v?\d+[.-]\d[\w.-]*|[0-9a-f]{7,40}", re.ASCII),
}
_FOREIGN: Final = re.compile(
    "|".join(
        (
            # Loaders and system libraries.
            r"(?:LD|DYLD|MALLOC|GLIBC|GCONV|OPENSSL|KRB5|DBUS|XDG)_.*|RES_OPTIONS|LIBPATH|SHLIB_PATH|LOCPATH|NLSPATH",
            r"TERMINFO.*|TERMCAP|HOSTALIASES|LOCALDOMAIN|.*_LD_LIBRARY_PATH",
            # Runtimes of languages, with their package managers and compilers.
            r"PYTHON(?!UNBUFFERED$|IOENCODING$|UTF8$).*|(?:__)?PYVENV_.*|VIRTUAL_ENV|(?:UV|PIP|PIPX|CONDA|PYENV)_.*",
            r"(?:NODE(?!_ENV$)|NPM(?!_TOKEN$)|YARN|PNPM|BUN|DENO|COREPACK|ELECTRON|TS_NODE)_.*",
            r"PERL(?:5|LIB|IO|_).*|RUBY(?:LIB|OPT|PATH|SHELL|_.*)|(?:GEM|BUNDLER?|RBENV)_.*|PHPRC|(?:PHP_INI|COMPOSER)_.*",
            r"(?:LUA|JULIA|GUILE|TCL|ERL|ELIXIR)_.*|TCLLIBPATH|(?:R_(?:PROFILE|ENVIRON|HOME|LIBS)|MIX_(?:HOME|PATH|ARCH)).*",
            r"O?CAML(?:_.*|PATH|LIB|RUNPARAM)|OPAM_.*|(?:NVM|FNM|VOLTA|ASDF|MISE|SDKMAN)_.*|IPYTHON.*|JUPYTER_.*(?:PATH|DIR)",
            r"(?:DOTNET|CORECLR|COR|COMPLUS|MONO|NUGET|MSBUILD)_.*",
            r"(?:JAVA|JDK|MAVEN|GRADLE|SBT|KOTLIN)_.*|.*JAVA_OPTIONS|CLASSPATH|.*_OPTS",
            r"(?:CARGO|RUSTUP)_.*|RUST(?!_LOG$|_BACKTRACE$).*|C?GO[A-Z0-9]+|CGO_.*",
            r"(?:GCC|COMPILER|LIBRARY|C_INCLUDE)_.*PATH|CPATH|C[CX]X?|LD|(?:GNU)?MAKEFLAGS|MFLAGS|MAKEFILES",
            # Toolkits of windows and graphics, which load modules.
            r"(?:GTK|GDK|GIO|GST|QT|QML|KDE|MAGICK)\d?_.*|GS_(?:LIB|OPTIONS).*",
            r"VK_(?:ADD_)?(?:LAYER|DRIVER|ICD|INSTANCE|LOADER).*|(?:LIBGL|LIBVA|VDPAU|MESA|GALLIUM|GBM|__EGL|__GLX?)_.*",
            # Shells, editors, and programs that start others.
            r"(?:BASH|KSH|FISH)_.*|ZDOTDIR|(?:BASH|SHELL)(?:OPTS)?|COMSPEC|ENV|IFS|FPATH|CDPATH|PS\d|PROMPT_COMMAND",
            r"PSMODULE.*|FZF_.*|KUBECONFIG|KUBECTL_.*",
            r".*(?:PAGER|EDITOR|BROWSER|ASKPASS|_RSH|_WRAPPER)|VISUAL|LESS(?:OPEN|CLOSE|KEY.*)?",
            r"N?VIM(?:RUNTIME|_.*)?|(?:EX|G?VIM)INIT|MYVIMRC|EMACS(?:LOADPATH|PATH|DATA|DOC|_.*)",
            r"GIT_(?:SSH|EXEC|CONFIG|PROXY|TEMPLATE|EXTERNAL|DIR|WORK|OBJECT|ALTERNATE|INDEX|COMMON|SSL|TRACE).*",
            r"(?:SVN|BZR)_(?:SSH|EDITOR|MERGE)|HG(?:RCPATH|MERGE|EDITOR)?|SSH_AUTH_SOCK|CONTAINER_HOST|(?:DOCKER|COMPOSE|BUILDKIT|CONTAINERS|PODMAN|NIX|HOMEBREW|WINE)_.*",
            # Where requests go, and who is believed there.
            r".*_PROXY|(?:SSL|CURL)_C\w*|SSLKEYLOGFILE|REQUESTS_CA_BUNDLE|NODE_EXTRA_CA_CERTS",
            # Places of the user, and our own.
            r"PATH|PATHEXT|HOME|USERPROFILE|(?:LOCAL)?APPDATA|PROGRAMDATA|SYSTEMROOT|WINDIR|MCP_TOOLSET_.*",
        )
    ),
    re.IGNORECASE,
)
"""Families of variables by which a program loads other code, starts another program, or is sent elsewhere."""

_IDENTIFIERS: Final[Mapping[str, re.Pattern[str]]] = {
    "npm": re.compile(r"(?:@[a-z0-9~][\w.~-]*/)?[a-z0-9~][\w.~-]*", re.ASCII | re.IGNORECASE),
    "pypi": re.compile(r"[A-Za-z0-9](?:[\w.-]*[A-Za-z0-9])?", re.ASCII),
    "oci": re.compile(
        r"[a-z0-9][\w.-]*(?::\d+)?(?:/[a-z0-9][\w.-]*)*(?::[\w][\w.-]*)?(?:@sha256:[a-f0-9]{64})?", re.ASCII
    ),
}
RUNTIMES: Final[Mapping[str, str]] = {"npm": "npx", "pypi": "uvx", "oci": "docker"}
"""The program that starts a package, by the kind of its registry."""

_HOMES: Final[Mapping[str, str]] = {"npm": "npmjs", "pypi": "pypi"}
"""The name before the last dot of the host from which a runtime takes packages by default."""

_SWITCHES: Final[Mapping[str, frozenset[str]]] = {
    "npm": frozenset({"-y", "--yes"}),
    "pypi": frozenset(),
    "oci": frozenset({"-i", "--interactive", "--rm"}),
}
"""The arguments without a value that a package may give its runtime; others would start something else."""

_MOUNTS: Final = ("-v", "--volume", "--mount")
_SETS: Final = ("-e", "--env")
_NETWORKS: Final = ("none", "bridge", "host")
_MOUNTED: Final = re.compile(r"\{([\w.-]+)\}:/[^:,{}]*(?::(?:ro|rw|z|Z))?")
_PLACES: Final = frozenset({"type", "src", "source", "dst", "target", "destination", "readonly", "ro"})

_OF_CONNECTIONS: Final = frozenset(
    (
        *(
            "host",
            "content-length",
            "transfer-encoding",
            "connection",
            "keep-alive",
            "upgrade",
            "te",
            "trailer",
        ),
        *("proxy-authorization", "proxy-connection", "mcp-session-id", "mcp-protocol-version", "cookie"),
    )
)
"""Headers that belong to the connection, or by which the client speaks for itself."""

_OWN_NAMES: Final = ("localhost", "localdomain", "local", "internal", "home.arpa")
"""Last parts of names that no public network has (RFC 6761, 6762, 8375)."""


def _text_of(value: object) -> object:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else value


def _none_as_empty(value: object) -> object:
    return [] if value is None else value


def _kind_of(value: object) -> object:
    return "oci" if value == "docker" else value  # as the first registries named images


_Value = Annotated[str | None, BeforeValidator(_text_of)]


class _Model(BaseModel):
    model_config = ConfigDict(
        frozen=True,
        extra="ignore",
        alias_generator=AliasGenerator(validation_alias=lambda name: AliasChoices(to_camel(name), name)),
    )


class Input(_Model):
    """A value that an argument, a variable or a header needs, fixed or to be given."""

    type: str = ""
    name: str = ""
    value_hint: str = ""
    description: str = ""
    is_required: bool = False
    is_secret: bool = False
    is_repeated: bool = False
    value: _Value = None
    default: _Value = None
    choices: Annotated[list[str], BeforeValidator(_none_as_empty)] = Field(default=[], max_length=_MANY)
    variables: dict[str, Input] = Field(default={}, max_length=_MANY)


_Inputs = Annotated[list[Input], BeforeValidator(_none_as_empty), Field(max_length=_MANY)]


class Transport(_Model):
    """The transport to a package or a remote server."""

    type: str = Field(
        default="stdio", validation_alias=AliasChoices("type", "transport_type", "transportType")
    )
    url: str = ""
    headers: _Inputs = []
    variables: dict[str, Input] = Field(default={}, max_length=_MANY)


class Package(_Model):
    """A package that holds the program of a server."""

    registry_type: Annotated[str, BeforeValidator(_kind_of)] = Field(
        default="", validation_alias=AliasChoices("registryType", "registry_type", "registry_name")
    )
    registry_base_url: str = ""
    identifier: str = Field(default="", validation_alias=AliasChoices("identifier", "name"))
    version: str = ""
    runtime_hint: str = ""
    transport: Transport = Transport()
    runtime_arguments: _Inputs = []
    package_arguments: _Inputs = []
    environment_variables: _Inputs = []


class ServerJson(_Model):
    """One version of a server. `status` is that of the registry: `active`, `deprecated` or `deleted`."""

    name: str
    title: str = ""
    description: str = ""
    version: str = ""
    status: str = "active"
    is_latest: bool = False
    packages: Annotated[list[Package], BeforeValidator(_none_as_empty), Field(max_length=_MANY)] = []
    remotes: Annotated[list[Transport], BeforeValidator(_none_as_empty), Field(max_length=_MANY)] = []

    @classmethod
    def of(cls, value: object, source: str) -> ServerJson:
        """Read decoded JSON: a server, or one as an API wraps it.

        Raises:
            TargetError: it is no such description, or its name is none.
        """
        table = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
        inner = table.get("server")
        plain = cast("dict[str, Any]", inner) if isinstance(inner, dict) else table
        try:
            made = cls.model_validate({**plain, **_registered(table, plain)})
        except ValidationError as fault:
            first = fault.errors(include_url=False, include_input=False)[0]
            where = ".".join(map(str, first["loc"])) or "it"
            raise TargetError(f"{source}: is no server.json: {where}: {first['msg']}; correct it") from None
        if len(made.name) > 200 or not _NAME.fullmatch(made.name):
            raise TargetError(
                f"{source}: {made.name[:80]!r} is no name of a server; it is written as `com.example/name`"
            )
        return made

    @property
    def short(self) -> str:
        return self.name.rpartition("/")[2].replace(".", "-")


def _registered(table: Mapping[str, Any], server: Mapping[str, Any]) -> dict[str, Any]:
    """The registry's own facts about a server, beside its description."""
    found: dict[str, Any] = {}
    for holder in (table.get("_meta"), server.get("_meta")):
        parts = cast("dict[str, Any]", holder).values() if isinstance(holder, dict) else ()
        for part in parts:
            said = cast("dict[str, Any]", part) if isinstance(part, dict) else {}
            if isinstance(said.get("status"), str):
                found["status"] = said["status"]
            if said.get("isLatest", said.get("is_latest")) is True:
                found["is_latest"] = True
    return found


def decoded(data: bytes, source: str) -> object:
    """The JSON value of a description."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        raise TargetError(f"{source}: is no JSON; check the address, or the file") from None


def plain(text: str, what: str) -> str:
    """A text of a description that may get into a configuration.

    Raises:
        TargetError: it has characters that are not shown, a reference, or is too long.
    """
    if len(text) > _LONGEST:
        raise TargetError(f"{what} has more than {_LONGEST} characters; the server was not added")
    if not text.isprintable() or hidden_in(text):
        raise TargetError(f"{what} has characters that are not shown; the server was not added")
    if "${" in text or "%{" in text:
        # It would be replaced by a secret of the user, and sent to the server.
        raise TargetError(
            f"{what} has a reference such as ${{NAME}}, which is for users; the server was not added"
        )
    return text


def check_package(package: Package) -> None:
    """Refuse a package that would start something else than it says.

    Raises:
        TargetError: the reason.
    """
    kind, name = package.registry_type, plain(package.identifier, "the package's name")
    _check_kind(package, kind, name)
    _check_version(package, kind, name)
    _check_home(kind, package.registry_base_url, name)
    for one in package.environment_variables:
        if not _VARIABLE.fullmatch(one.name) or _FOREIGN.fullmatch(one.name):
            raise TargetError(f"{name}: sets the variable {one.name[:80]!r}, which is not its own")
    for one in (*package.runtime_arguments, *package.package_arguments):
        if one.name and not _FLAG.fullmatch(one.name):
            raise TargetError(f"{name}: {one.name[:80]!r} is no name of an argument")
    _check_runtime(kind, package.runtime_arguments, name)


def _check_kind(package: Package, kind: str, name: str) -> None:
    if kind == "mcpb":
        raise TargetError(f"{name}: is a bundle (mcpb); download it, and open it with your client")
    if kind not in RUNTIMES:
        raise TargetError(f"{name}: no packages of {plain(kind, 'the kind')!r}; use npm, pypi or oci")
    if not _IDENTIFIERS[kind].fullmatch(name):
        raise TargetError(f"{name!r} is no name of a package of {kind}")
    if package.transport.type != "stdio":
        raise TargetError(f"{name}: its program serves HTTP; start it, and write its address into the file")
    if package.runtime_hint not in ("", RUNTIMES[kind]):
        hint = plain(package.runtime_hint, "runtimeHint")
        raise TargetError(f"{name}: would be started by {hint!r} and not by {RUNTIMES[kind]}")


def _check_version(package: Package, kind: str, name: str) -> None:
    last, _, digest = name.rpartition("/")[2].partition("@")
    tag = last.partition(":")[2] if kind == "oci" else ""
    if kind == "oci" and digest:
        return
    for version in filter(None, (package.version if not tag else "", tag)):
        if not _VERSIONS[kind].fullmatch(version):
            raise TargetError(f"{name}: {version[:80]!r} is no exact version")
    if not package.version and not tag:
        raise TargetError(f"{name}: names no version, so that it could change at any time")


def _check_home(kind: str, address: str, name: str) -> None:
    if not address or kind == "oci":
        return
    host = (urlsplit(plain(address, "registryBaseUrl")).hostname or "").split(".")
    if host[-2:-1] != [_HOMES[kind]]:
        # The runtime would take a package of the same name from its own registry: of somebody else.
        raise TargetError(
            f"{name}: is of the registry {address}, from which {RUNTIMES[kind]} does not take it"
        )


def _check_runtime(kind: str, arguments: Iterable[Input], name: str) -> None:
    for one in arguments:
        is_named = one.type == "named"
        flag = one.name.removesuffix("=") if is_named else one.value or one.value_hint
        takes_value = is_named and kind == "oci" and flag in (*_MOUNTS, *_SETS, "--network")
        if flag not in _SWITCHES[kind] and not takes_value:
            raise TargetError(
                f"{name}: gives {RUNTIMES[kind]} the argument {flag[:80]!r}, which could start anything"
            )
        # A value would be taken for the name of the image.
        has_value = (is_named and one.value) or one.default or one.is_required or one.choices or one.variables
        if not takes_value and (has_value or one.name.endswith("=")):
            raise TargetError(f"{name}: gives {RUNTIMES[kind]} {flag} a value, which {flag} does not take")
        if takes_value and not _is_chosen(flag, one):
            raise TargetError(f"{name}: gives {RUNTIMES[kind]} {flag} with a value that you do not choose")
        if flag in _SETS and not _is_own_variable((one.value or "").partition("=")[0]):
            raise TargetError(f"{name}: sets the variable {(one.value or '')[:80]!r}, which is not its own")


def _is_own_variable(name: str) -> bool:
    return bool(_VARIABLE.fullmatch(name)) and not _FOREIGN.fullmatch(name)


def _is_chosen(flag: str, one: Input) -> bool:
    """True if the user chooses what a value of the runtime of containers reaches."""
    if flag in _SETS:
        # Without `=`, the container gets a variable of the user.
        return one.value is not None and "=" in one.value
    if one.value is None:
        return one.default is None and not one.choices and one.is_required
    if flag == "--network":
        return one.value in _NETWORKS
    source = _source_of(flag, one.value)
    variable = None if source is None else one.variables.get(source)
    if variable is None or len(one.variables) != 1 or not variable.is_required:
        return False
    return not (variable.value or variable.default or variable.choices or variable.variables)


def _source_of(flag: str, value: str) -> str | None:
    """The variable that is the folder of a mount, and nothing beside it; `None` if there is none."""
    if flag != "--mount":
        found = _MOUNTED.fullmatch(value)
        return None if found is None else found[1]
    parts = [part.partition("=") for part in value.split(",")]
    keys = [key for key, _, _ in parts]
    sources = [text for key, _, text in parts if key in ("src", "source")]
    if not _PLACES.issuperset(keys) or len(set(keys)) != len(keys) or len(sources) != 1:
        return None
    rest = [text for key, _, text in parts if key not in ("src", "source")]
    found = re.fullmatch(r"\{([\w.-]+)\}", sources[0])
    return None if found is None or "{" in "".join(rest) or ("type", "=", "bind") not in parts else found[1]


def check_remote(remote: Transport) -> None:
    """Refuse an address that is no public server, and headers that are none.

    Raises:
        TargetError: the reason.
    """
    url = plain(remote.url, "the address")
    if remote.type not in ("streamable-http", "sse", "http"):
        raise TargetError(
            f"{url}: {plain(remote.type, 'the transport')!r} is no transport; use streamable-http or sse"
        )
    public_address(_filled(url, remote), url)
    for one in remote.headers:
        if not _HEADER.fullmatch(one.name) or one.name.lower() in _OF_CONNECTIONS:
            raise TargetError(f"{url}: {one.name[:80]!r} is no header that a server can ask for")


def public_address(filled: str, url: str) -> None:
    """Refuse an address that is none of a public server.

    Args:
        filled: The address with the values of its variables.
        url: The address in the description.

    Raises:
        TargetError: the reason.
    """
    parts = urlsplit(with_plain_host(filled)) if is_web_address(filled) else None
    if parts is None or parts.scheme != "https" or parts.username or parts.password or not parts.hostname:
        raise TargetError(f"{url}: is no https address without credentials; the server was not added")
    if _is_own(parts.hostname.rstrip(".").lower()):
        raise TargetError(
            f"{url}: leads into your own network; write it into the file by hand if it is meant"
        )


def with_plain_host(url: str) -> str:
    """The address with its host as it is asked for: letters beyond ASCII may look like others.

    Raises:
        TargetError: the host is none.
    """
    parts = urlsplit(url)
    if parts.netloc.isascii():
        return url
    try:
        return parts._replace(netloc=parts.netloc.encode("idna").decode()).geturl()
    except UnicodeError:
        raise TargetError(f"{url}: has a host that cannot be asked for; the server was not added") from None


def image_of(name: str) -> str:
    """The name of an image with its host and its version.

    Raises:
        TargetError: a part of it makes another argument of it.
    """
    if not _IDENTIFIERS["oci"].fullmatch(name):
        raise TargetError(f"{plain(name, 'the image')!r} is no name of an image; the server was not added")
    return name


def _filled(url: str, remote: Transport) -> str:
    """The address with what the description has for its variables; a variable may stand in a host.

    Raises:
        TargetError: a text would lead to another host.
    """
    end = url.find("/", url.find("://") + 3)
    made, at = "", 0
    for found in re.finditer(r"\{([\w.-]+)\}", url):
        one = remote.variables.get(found[1], Input())
        texts = [text for text in (one.value, one.default, *one.choices) if text]
        wrong = [text for text in texts if not re.fullmatch(r"[\w.-]+", text)]
        if wrong and (end < 0 or found.start() < end):
            raise TargetError(f"{url}: {found[1]} would be {wrong[0][:80]!r}, which is no part of a host")
        made += url[at : found.start()] + (texts[0] if texts else "x")
        at = found.end()
    return made + url[at:]


def _is_own(host: str) -> bool:
    if any(host == name or host.endswith(f".{name}") for name in _OWN_NAMES):
        return True
    try:
        return not ip_address(host).is_global
    except ValueError:
        # Also what systems take for addresses, such as 127.1 and 0x7f000001.
        return re.fullmatch(r"[\d.]+|0x[\da-f.x]+", host) is not None or "." not in host
