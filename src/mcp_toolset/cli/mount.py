"""From a target to an open `ToolsetServer`; every command reaches tools by `mount` or `opened`.

`load` runs Python code and finds what it serves: while a command loads a program, `serve(…)` hands over its
server and returns at once. A file that calls `serve` under `if __name__ == "__main__":` is run as the main
program, so that its hooks and mounts take effect.

What reads configurations and what reaches servers is imported for the targets that need it: a Python program
with tools of its own starts in two thirds of the time without them.
"""

from __future__ import annotations

import ast
import difflib
import hashlib
import importlib
import importlib.util
import json
import os
import sys
import traceback
from collections import defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from dataclasses import field
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast
from urllib.parse import urlsplit

import anyio
import click

from mcp_toolset._index import marked, part
from mcp_toolset._records import dataclass, replace
from mcp_toolset._rule import idle_rules
from mcp_toolset.catalog.grants.ledger import GrantLedger
from mcp_toolset.cli.output import complain, one_line
from mcp_toolset.cli.target import (
    Command,
    ConfigFile,
    Headers,
    Module,
    ProgramFile,
    Target,
    Url,
    default_name,
    served_as,
)
from mcp_toolset.concurrency.signals import run_until_signal
from mcp_toolset.errors import NEEDS_LOGIN, TargetError, ToolsetError
from mcp_toolset.extending.extension import served_keywords
from mcp_toolset.server.server import ToolsetServer
from mcp_toolset.serving.serve import capturing, guarded_ones, progress_line, tell_passed_over
from mcp_toolset.serving.serving_log import LogChoice, logged
from mcp_toolset.tools.binding import DEFERRED_CATALOG
from mcp_toolset.tools.screen import counted, tokens_of
from mcp_toolset.tools.source import SourceStatus, ToolSource
from mcp_toolset.tools.tool import Tool
from mcp_toolset.tools.toolset import Toolset, Transformed
from mcp_toolset.tools.view import ToolBinding

if TYPE_CHECKING:
    from mcp_toolset.config.models import HubConfig, ServerConfig
    from mcp_toolset.extending.extension import Keywords
    from mcp_toolset.security.vault import Vault
    from mcp_toolset.shared.state import SharedState
    from mcp_toolset.upstream.toolset import RemoteToolset

_OR_TOKEN: Final = "; if you have a token, name its variable with --token-env"


_SPINNER: Final = 3  # columns before a line that moves, and the last one, which stays free


@contextmanager
def opening(server: ToolsetServer) -> Generator[None]:
    """Show on a terminal how many of a server's mounts are ready, until the block ends."""
    sources = server.toolset.sources()
    if not sources or not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    console = Console(stderr=True, highlight=False)

    def line() -> str:
        statuses = {source.source_name: source.status for source in sources}
        return one_line(progress_line(statuses, console.width - _SPINNER))

    with ExitStack() as stack:
        shown = stack.enter_context(console.status(line()))
        for source in sources:
            stack.callback(source.on_change(lambda: shown.update(line())))
        yield


def warn_of_keys(server: ToolsetServer) -> None:
    if server.configured is not None:
        complain_of(server.configured.config.warnings)


def require_something(server: ToolsetServer) -> None:
    """Write to stderr which servers are down; raise if all are, and there is no local tool."""
    lines = _down(server)
    if lines and not reachable(server):
        last = lines.pop()
        complain_of(lines)
        raise TargetError(last)
    complain_of(lines)


def name_down(server: ToolsetServer) -> bool:
    """Write to stderr which servers are down, if the answer has the reasons; return whether any is down."""
    down = [name for name, status in server.statuses().items() if not status.is_up]
    if down:
        verb = "is" if len(down) == 1 else "are"
        complain(f"{len(down)} of {counted(len(server.statuses()), 'server')} {verb} down: {', '.join(down)}")
    return bool(down)


def reachable(server: ToolsetServer) -> bool:
    statuses = server.statuses().values()
    up = any(status.is_up for status in statuses)
    return up or not statuses or any(not tool.source for tool in server.toolset.bindings())


def report_down(server: ToolsetServer) -> None:
    complain_of(_down(server))


def complain_of(lines: Iterable[str]) -> None:
    for line in lines:
        complain(line)


def _down(server: ToolsetServer) -> list[str]:
    statuses = server.statuses().items()
    told = "" if server.configured is not None else _OR_TOKEN
    down = [(_shown(server, name), status) for name, status in statuses if not status.is_up]
    return [f"{shown}: {_reason(status, told)}" for shown, status in down]


def _shown(server: ToolsetServer, name: str) -> str:
    from mcp_toolset.upstream.toolset import RemoteToolset

    sources = server.toolset.sources()
    source = next(source for source in sources if source.source_name == name)
    if not isinstance(source, RemoteToolset):
        return name
    address = source.connection.link.shown
    is_the_target = len(sources) == 1 and server.configured is None
    return address if is_the_target else f"{name} ({address})"


def _reason(status: SourceStatus, or_token: str) -> str:
    reason = status.reason or f"it is {status.state}"
    if reason.startswith(NEEDS_LOGIN):
        return reason + or_token
    says_how = ";" in reason or status.state == "misconfigured"
    return reason if says_how else f"{reason}; check that it runs and answers there"


_INSTALLED: Final = ("site-packages", "dist-packages")
_USUAL: Final = ("tools", "toolset", "server", "app")


def load(target: Module | ProgramFile, is_mountable: Callable[[object], bool]) -> Any:
    """Run the code and find the named attribute, the server it serves, or the tools that it defines."""
    as_main = isinstance(target, ProgramFile) and target.attribute is None and _serves_as_main(target)
    with _held_back() as held:
        module = _import_main(target) if as_main else _import(target)
    if as_main and not held:
        raise _serves_nothing(str(target), "serves nothing when it is run without arguments")
    for name, kind in idle_rules(vars(module)):
        raise TargetError(
            f"{target}: {name} is a {kind} that nothing applies, so it protects nothing: give it to "
            f"serve(…), ToolsetServer(…) or toolset.carrying(…), or remove it; call it _{name} if it has "
            "another use"
        )
    if len(held) > 1 and target.attribute is None:
        raise TargetError(
            f"{target}: calls serve() {len(held)} times; name one toolset as {target}:attribute"
        )
    if held and target.attribute is None:
        tell_passed_over(vars(module), held[0])
        return held[0]
    found = (
        _offered(module, str(target), is_mountable)
        if target.attribute is None
        else _attribute(module, target.attribute, str(target))
    )
    if not isinstance(found, ToolsetServer) and (call := _passed_over(module, target.attribute)):
        raise TargetError(
            f"{target}: {call}, whose rules would not apply, as that line is not run here: name a toolset "
            "or a server with them that is made outside of functions, or start the program itself: "
            "-- python …"
        )
    if target.attribute is not None:
        tell_passed_over(vars(module), found)
    return found


_SERVING: Final = ("serve", "ToolsetServer")
_DECIDING: Final = (
    "rules",
    "hooks",
    "middleware",
    "tool_middleware",
    "policy",
    "access",
    "auth",
    *marked("protects"),
)
_BLOCKS: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_NARROWING: Final = ("carrying", "deferred", "filtered", "off", "prepared", "through", "with_arguments")
"""Verbs that keep tools of a toolset from being called, or decide about their calls."""


def _passed_over(module: ModuleType, attribute: str | None) -> str:
    """The call in a program's source that serves its tools under rules, while the tools alone are loaded.

    If the user names an attribute, only a `serve(…)` of that one counts. If the program has a `__main__`
    block, which may call what it has imported, the modules beside it count too.
    """
    own = getattr(module, "__file__", None) or ""
    has_block = attribute is None and any(_is_main_guard(node) for node in _tree(own).body)
    files = (getattr(one, "__file__", None) for one in [*sys.modules.values()] if has_block)
    beside = [file for file in files if file and file != own and is_of_project(Path(file), Path(own))]
    for path in (own, *beside):
        for line, call in _serving_calls(_tree(path), attribute):
            return f"line {line}" + (f" of {path}" if path != own else "") + f" has {call}"
    return ""


def _serving_calls(tree: ast.Module, attribute: str | None) -> Iterator[tuple[int, str]]:
    """The lines of a program that serve its tools under rules, and what they call.

    The names that the program, a function or the `__main__` block gives to values count for these.
    """
    functions = [one for one in ast.walk(tree) if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)]
    at_top = _assigned(ast.Module([one for one in tree.body if not isinstance(one, _BLOCKS)], []))
    # What the attribute itself stands for is loaded as it is.
    made = {} if attribute is None else {name: one for name, one in at_top.items() if name != attribute}
    made |= {one.name: [one] for one in functions}
    blocks = [*functions, *filter(_is_main_guard, tree.body)]
    imported = [one for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for one in node.names]
    known = {one.asname: one.name for one in imported if one.asname}
    for block in (tree, *blocks):
        names = made if block is tree else {**made, **_assigned(block)}
        # A server that another function makes may have another use than to be served.
        is_main = block in blocks and getattr(block, "name", "main") == "main"
        serving = _SERVING if attribute is None or is_main else ("serve",)
        for node in ast.walk(block):
            name = known.get(_called(node), _called(node))
            if not isinstance(node, ast.Call) or name not in serving:
                continue
            named = [one.value for one in node.keywords if one.arg in ("target", "toolset")]
            target = [inner for one in (*node.args[:1], *named) for inner in _within(one, names)]
            for call in (node, *target):
                called = name if call is node else _called(call)
                if isinstance(call, ast.Call) and (how := _deciding(called, call, {**at_top, **names})):
                    at = target if call is node else [*_within(call, names)]
                    if attribute is None or any(_is_named(one, attribute) for one in at):
                        yield node.lineno, how if call is node else f"{name}({how})"


def _assigned(block: ast.AST) -> dict[str, list[ast.AST]]:
    """Values that a function or a block assigns, by name."""
    found: dict[str, list[ast.AST]] = defaultdict(list)
    for node in ast.walk(block):
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr) and node.value is not None:
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                found[getattr(target, "id", "")].append(node.value)
    return found


def _within(node: ast.AST, names: Mapping[str, list[ast.AST]]) -> Iterator[ast.AST]:
    """The parts of an expression, and those of what its names stand for."""
    rest, seen = [node], set[str]()
    while rest:
        for one in ast.walk(rest.pop()):
            yield one
            if isinstance(one, ast.Name) and one.id not in seen:
                seen.add(one.id)
                rest += names.get(one.id, ())


def _is_named(node: ast.AST, attribute: str) -> bool:
    return isinstance(node, ast.Name | ast.Attribute) and ast.unparse(node) == attribute


def _called(node: ast.AST) -> str:
    func = getattr(node, "func", None)
    return getattr(func, "id", None) or getattr(func, "attr", "")


def _deciding(name: str, call: ast.Call, names: Mapping[str, list[ast.AST]]) -> str:
    """The part of a call that decides about tools: rules for a server, or a verb of a toolset."""
    if name in _SERVING:
        given = [one.arg for one in call.keywords]
        spread = [one for each in call.keywords if each.arg is None for one in _within(each.value, names)]
        given += [one.value for one in spread if isinstance(one, ast.Constant)]
        given += [one.arg for one in spread if isinstance(one, ast.keyword)]
        return next((f"{name}(…, {one}=…)" for one in given if one in _DECIDING), "")
    return f"….{name}(…)" if name in _NARROWING and isinstance(call.func, ast.Attribute) else ""


def _tree(path: str) -> ast.Module:
    try:
        return ast.parse(Path(path).read_bytes())
    except (OSError, SyntaxError, ValueError):
        return ast.Module([], [])


@contextmanager
def _held_back() -> Generator[list[ToolsetServer]]:
    held: list[ToolsetServer] = []
    token = capturing.set(held.append)
    try:
        yield held
    finally:
        capturing.reset(token)


def _import(target: Module | ProgramFile) -> ModuleType:
    if isinstance(target, ProgramFile):
        return _guarded(lambda: _run_file(Path(target.path)), target.path, Path(target.path))
    _search_first(Path.cwd())
    return _guarded(lambda: importlib.import_module(target.module), target.module, None)


def _serves_as_main(target: ProgramFile) -> bool:
    tree = _tree(target.path)
    # The name of an import counts too: `from mcp_toolset import serve as start`.
    names = {
        getattr(node, "id", None) or getattr(node, "attr", None) or getattr(node, "name", None)
        for node in ast.walk(tree)
    }
    return "serve" in names and any(_is_main_guard(node) for node in tree.body)


def _is_main_guard(node: ast.stmt) -> bool:
    if not isinstance(node, ast.If):
        return False
    parts = list(ast.walk(node.test))
    is_name = any(isinstance(part, ast.Name) and part.id == "__name__" for part in parts)
    return is_name and any(isinstance(part, ast.Constant) and part.value == "__main__" for part in parts)


def _import_main(target: Module | ProgramFile) -> ModuleType:
    assert isinstance(target, ProgramFile)
    path = Path(target.path).absolute()
    _search_first(path.parent)
    module = ModuleType("__main__")
    module.__file__ = str(path)

    def run() -> ModuleType:
        sys.modules["__main__"], sys.argv = module, [str(path)]
        try:
            exec(compile(path.read_bytes(), str(path), "exec"), vars(module))
        except SystemExit as stop:
            if stop.code:
                raise _serves_nothing(target.path, f"ends with exit code {stop.code}") from None
        return module

    return _guarded(run, target.path, path)


def _serves_nothing(place: str, what: str) -> TargetError:
    return TargetError(
        f"{place}: its __main__ block {what}; name what to serve as {place}:attribute, "
        f"or start it yourself after --: -- python {place} …"
    )


def _run_file(path: Path) -> ModuleType:
    # The module gets another name than the file: a `calendar.py` would replace the standard module.
    name = f"mcp_toolset_target_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path.absolute())
    if spec is None or spec.loader is None:
        raise TargetError(f"{path}: not a Python file; name one that ends in .py")
    _search_first(path.absolute().parent)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _search_first(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def _guarded(run: Callable[[], ModuleType], place: str, file: Path | None) -> ModuleType:
    try:
        return run()
    except ToolsetError:
        raise
    except SystemExit as stop:
        fault = TargetError(
            f"{place}: ends with exit code {stop.code} while it is loaded; guard that with __main__"
        )
    # The code is the user's and may raise anything; the message has its place and text.
    except Exception as raised:
        fault = TargetError(_complaint(raised, place, file))
        fault.__cause__ = raised
    raise fault


def _complaint(raised: Exception, place: str, file: Path | None) -> str:
    kind = type(raised).__name__
    if isinstance(raised, SyntaxError):
        own = file is not None and raised.filename == str(file.absolute())
        where = place if own else raised.filename or place
        line = f"line {raised.lineno}: " if raised.lineno else ""
        return f"{where}: {line}{kind}: {raised.msg}; correct the file there"
    missing = raised.name if isinstance(raised, ModuleNotFoundError) else None
    if file is None and missing and place.startswith(missing):
        return f"{place}: no such module; check the name, and that it is importable from {Path.cwd()}"
    frames = traceback.extract_tb(raised.__traceback__)
    own = [] if file is None else [one for one in frames if is_of_project(Path(one.filename), file)]
    if file is not None and not own and isinstance(raised, OSError):
        return f"{place}: cannot be read ({raised.strerror}); check the path and its permissions"
    where = place
    if file is not None and own:
        name = own[-1].filename
        where = f"{place if name == str(file.absolute()) else name}: line {own[-1].lineno}"
    mend = f"install {raised.name}" if isinstance(raised, ModuleNotFoundError) else "correct it there"
    return f"{where}: {kind}: {' '.join(str(raised).split())}; {mend}"


def is_of_project(file: Path, program: Path) -> bool:
    """True if a source file belongs to a program: it is in the program's folder, and is not installed."""
    folder = program.absolute().parent
    if not file.is_absolute() or not file.is_relative_to(folder):
        return False
    parts = file.relative_to(folder).parts[:-1]
    return not any(part in _INSTALLED or part.startswith(".") for part in parts)


def _attribute(module: ModuleType, dotted: str, place: str) -> Any:
    value: Any = module
    for name in dotted.split("."):
        if not hasattr(value, name):
            close = difflib.get_close_matches(
                name, [key for key in vars(module) if not key.startswith("_")], n=1
            )
            mend = f"did you mean {close[0]}?" if close else "check its spelling"
            raise TargetError(f"{place}: there is no {name!r} in it; {mend}")
        value = getattr(value, name)
    return value


def _offered(module: ModuleType, place: str, is_mountable: Callable[[object], bool]) -> Any:
    usual = [value for name in _USUAL if is_mountable(value := getattr(module, name, None))]
    chosen = next((value for value in usual if isinstance(value, ToolsetServer)), usual[0] if usual else None)
    # A server, or a toolset with rules, is not passed over for the tools in it.
    if not isinstance(chosen, ToolsetServer) and (better := guarded_ones(vars(module), chosen)):
        names = " or ".join(f"{place}:{name}" for name in better)
        raise TargetError(f"{place}: has rules for its tools, which would not apply; name one as {names}")
    if chosen is not None:
        return chosen
    found = (cast("Tool[..., Any]", value) for value in vars(module).values() if isinstance(value, Tool))
    tools = {id(tool): tool for tool in found}
    if not tools:
        named = [f"{place}:{name}" for name, value in vars(module).items() if is_mountable(value)]
        raise TargetError(
            f"{place}: has toolsets under names of their own; name one as {' or '.join(named)}"
            if named
            else f"{place}: has no tools; decorate a function with @tool, or name one as {place}:function"
        )
    return list(tools.values())


_Result = TypeVar("_Result")

LOCK_HERE: Final = "mcp-toolset.lock.json"
"""The default lock file of servers that are given by their address or command."""

_OF_THE_SHELL: Final = frozenset({"PWD", "OLDPWD", "SHLVL", "_"})  # variables of the shell's own


@dataclass(frozen=True, slots=True)
class MountOptions:
    """Options of the command line about the mounted target; `None` leaves the target's own setting."""

    deferred: bool | None = None
    timeout: float | None = None
    name: str | None = None
    grants: GrantLedger | None = None
    client_prefix: str | None = None
    state: str | None = None
    lock: Path | None = None
    afresh: bool = False
    headers: Headers = field(default=(), repr=False)
    serves: bool = False
    shared: SharedState | None = None
    extensions: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def looking(self) -> MountOptions:
        """The options of a command that shows the present answers of servers, beside one that may serve.

        No kept catalog is used; what servers list now is kept. Calls are recorded by the running server.
        """
        off = dict.fromkeys(marked("stays"), False)
        return replace(self, afresh=True, extensions={**self.extensions, **off})


def mount(target: Target, options: MountOptions, *, serving: bool = False) -> ToolsetServer:
    """A server for the target, not opened yet.

    A file that a bridge above this process serves may be inspected, but not served again (`serving`).
    """
    if options.headers and not isinstance(target, Url):
        raise click.UsageError(
            "--header and --token-env are for a URL; in a configuration, write headers into its entry; to "
            "accept a token from clients over HTTP, use --auth-token-env with --transport http"
        )
    match target:
        case ConfigFile():
            return _configured(target, options, serving=serving)
        case Module() | ProgramFile():
            return _served(load(target, is_mountable), target, options)
        case Url():
            name = default_name(target.url)
            mounted = _remote(
                target.url, name, options, _address(target.url), **_credentials(target, options)
            )
            return _server(mounted, name, options)
        case Command():
            name = default_name(None, target.argv)
            mounted = _remote(target.argv, name, options, name, env=_environment())
            return _server(mounted, name, options)


def mount_config(config: HubConfig, options: MountOptions) -> ToolsetServer:
    from mcp_toolset.hub.toolset import ConfiguredToolset

    config = _with_timeout(config, options.timeout)
    options = replace(options, client_prefix=config.client_prefix)
    return _server(ConfiguredToolset(config, read=lambda: config), config.name, options)


def in_view(config: HubConfig, views: Mapping[str, str]) -> set[str]:
    """The servers of a configuration of which a view may have tools.

    Raises:
        TargetError: there is no such view.
    """
    options = mount_config(config, MountOptions(extensions=views).looking).extensions.shown()
    patterns = ("*",) if options is None else options.tools
    return {one.name for one in config.servers if any(map(one.may_have, patterns))}


def _configured(target: ConfigFile, options: MountOptions, *, serving: bool) -> ToolsetServer:
    from mcp_toolset.hub.toolset import ConfiguredToolset, load_toolset
    from mcp_toolset.security.vault import Vault

    read = partial(_read, target, options, Vault())
    config = read()
    made = load_toolset if serving else ConfiguredToolset
    toolset = made(config, read=read)
    return _server(toolset, config.name, replace(options, client_prefix=config.client_prefix))


def _remote(target: Any, name: str, options: MountOptions, pinned: str, **more: Any) -> RemoteToolset:
    from mcp_toolset.catalog.pins.lockfile import LockFile
    from mcp_toolset.upstream.toolset import RemoteToolset

    entry = LockFile(options.lock or Path(LOCK_HERE)).entry(pinned)
    return RemoteToolset(target, name=name, lock=entry, **_times(options.timeout), **more)


def _credentials(target: Url, options: MountOptions) -> dict[str, Any]:
    """The headers of the command line; unless they have credentials, the tokens of a login too."""
    headers = dict(options.headers)
    if any(name.lower() == "authorization" for name in headers):
        return {"headers": headers}
    access = part("access")
    return {"headers": headers, **({} if access is None else {"auth": access.login()})}


def _address(url: str) -> str:
    """The name under which an unnamed server is pinned: its address, without parts that may be secret."""
    from mcp_toolset.upstream.secrets import may_hold_a_token

    parts = urlsplit(url)
    port = f":{parts.port}" if parts.port else ""
    origin = f"{parts.scheme}://{parts.hostname or ''}{port}"
    if not may_hold_a_token(parts.path):
        return origin + parts.path
    return f"{origin}/…{hashlib.sha256(parts.path.encode()).hexdigest()[:12]}"


@asynccontextmanager
async def opened(
    target: Target, options: MountOptions, *, reasons: bool | None = True
) -> AsyncGenerator[ToolsetServer]:
    """The target's server with all its mounts opened.

    Without `reasons`, the command says why one is down; `None` if it does so even if all are.
    """
    from mcp_toolset.cli.target import remember

    server = mount(target, options.looking)
    async with AsyncExitStack() as stack:
        stack.enter_context(logging_of(server, target))
        with opening(server):
            await stack.enter_async_context(server)
            await server.settled()
        warn_of_keys(server)
        complain_of(str(one) for one in server.unbound() if one.is_settled)
        if reasons or (reasons is False and not reachable(server)):
            require_something(server)
        remember(target, server)
        view = cast("ToolsetServer | None", await server.extensions.entered())
        complain_of(str(one) for one in (() if view is None else view.unbound()) if one.is_settled)
        yield server if view is None else view


@contextmanager
def logging_of(server: ToolsetServer, target: Target) -> Generator[None]:
    """Keep what the mounted servers of a command write to stderr, for `mcp-toolset logs`."""
    with logged(LogChoice(), served_as(target)) as log:
        log.follow(server, one_client=False)
        yield


def is_mountable(value: object) -> bool:
    if isinstance(value, list | tuple):
        items = cast("list[object] | tuple[object, ...]", value)
        return bool(items) and all(isinstance(item, Tool | Toolset) for item in items)
    return isinstance(value, Tool | Toolset | ToolsetServer) or _is_sdk_server(value)


def _is_sdk_server(value: object) -> bool:
    if isinstance(value, Tool):
        return False
    from mcp_toolset.upstream.target import sdk_server

    return sdk_server(value) is not None


def _served(value: Any, target: Module | ProgramFile, options: MountOptions) -> ToolsetServer:
    if isinstance(value, ToolsetServer):
        made = _with_options(value, options)
        if not options.serves:
            made.extensions.leave_served()
        return made
    name = default_name(str(target))
    if isinstance(value, Toolset):
        toolset = cast("Toolset", value)
        return _server(toolset, toolset.name or name, options)
    if isinstance(value, list | tuple):
        return _server(Toolset(*cast("list[Any]", value), name=name), name, options)
    if _is_sdk_server(value):
        from mcp_toolset.upstream.toolset import RemoteToolset

        return _server(RemoteToolset(value, name=name, **_times(options.timeout)), name, options)
    if callable(value) and not isinstance(value, type):
        return _server(Toolset(value, name=name), name, options)
    raise TargetError(
        f"{target}: cannot serve a value of type {type(value).__name__}; "
        "name a tool, function, toolset or server"
    )


def _with_options(server: ToolsetServer, options: MountOptions) -> ToolsetServer:
    has = server.extensions.get
    said = {key: one for key, one in options.extensions.items() if one or (one is False and has(key))}
    # The name of a view is chosen among those of the program, and replaces none.
    views = {key: has(key).showing(said[key]) for key in marked("view_option") if said.get(key) and has(key)}
    options = replace(options, extensions={**options.extensions, **views})
    said |= views
    plain = replace(options, timeout=None, afresh=False, serves=False, extensions=said)
    if plain == MountOptions():
        return server
    # An option that is a value, such as a path, stands in place of what the program says.
    replaced = [
        key for key, one in said.items() if not isinstance(one, bool) and has(key) and key not in views
    ]
    own = ("grants", "state", "shared")
    replaced += (key for key in own if getattr(options, key) is not None and server.gives(key))
    for key in replaced:
        raise TargetError(f"the program gives {key}=…, which --{key} would replace; leave one of them out")
    return server.derived(
        toolset=_settled(server.toolset, options.deferred),
        name=options.name,
        grants=options.grants,
        client_prefix=options.client_prefix,
        state=options.state,
        shared=options.shared,
        **cast("Keywords", options.extensions),
    )


def _server(toolset: Toolset, name: str, options: MountOptions) -> ToolsetServer:
    made = ToolsetServer(
        _settled(toolset, options.deferred),
        name=options.name or name,
        grants=options.grants,
        client_prefix=options.client_prefix or "",
        state=options.state,
        **cast("Keywords", {**served_keywords(options.serves), **options.extensions}),
        shared=options.shared,
    )
    if options.afresh:
        made.use_nothing_kept()
    return made


def _settled(toolset: Toolset, deferred: bool | None) -> Toolset:
    return toolset if deferred is None or not toolset.sources() else _Deferral(toolset, deferred)


class _Deferral(Transformed):
    """A toolset with all its mounts behind search, or all listed, whatever the toolset itself says."""

    def __init__(self, inner: Toolset, deferred: bool) -> None:
        def settle(binding: ToolBinding) -> ToolBinding:
            return replace(binding, deferred=deferred) if binding.source else binding

        super().__init__(inner, settle, defers=deferred)

    def listing_sources(self) -> list[ToolSource]:
        return [] if self._defers else self.sources()

    @property
    def defers(self) -> bool:
        return self._defers


def _times(timeout: float | None) -> dict[str, Any]:
    from mcp_toolset.upstream.toolset import DEFAULT_START_TIMEOUT, DEFAULT_TIMEOUT

    return {"timeout": timeout or DEFAULT_TIMEOUT, "start_timeout": timeout or DEFAULT_START_TIMEOUT}


def _read(target: ConfigFile, options: MountOptions, vault: Vault) -> HubConfig:
    from mcp_toolset.config import load_config

    config = _with_timeout(load_config(target.path, vault=vault), options.timeout)
    said = {"name": options.name, "client_prefix": options.client_prefix, "lock": options.lock}
    return replace(config, **{key: value for key, value in said.items() if value is not None})


def _with_timeout(config: HubConfig, timeout: float | None) -> HubConfig:
    if timeout is None:
        return config

    def timed(server: ServerConfig) -> ServerConfig:
        return replace(server, timeout=timeout, start_timeout=timeout)

    return replace(config, servers=tuple(map(timed, config.servers)))


def _environment() -> dict[str, str]:
    """The variables that the person at the command line has set: the command that they name may use them."""
    from mcp_toolset.transports.stdio_client import INHERITED_VARIABLES

    # Those that every child process gets, and the shell's own, are not secret, so messages may show them.
    passed_anyway = {*INHERITED_VARIABLES, *_OF_THE_SHELL}
    return {name: value for name, value in os.environ.items() if name not in passed_anyway}


def visible_bindings(server: ToolsetServer) -> list[ToolBinding]:
    """Every tool that exists for a caller without a name: the person at the command line."""
    policy = server.policy
    return [one for one in server.bindings() if policy is None or policy.decide(one, None).kind != "deny"]


def own_bindings(server: ToolsetServer) -> list[ToolBinding]:
    return without_fixed(visible_bindings(server))


def without_fixed(bindings: Iterable[ToolBinding]) -> list[ToolBinding]:
    """Tools without those that only search and grant."""
    return [binding for binding in bindings if binding.place != DEFERRED_CATALOG]


def run(work: Callable[[], Awaitable[_Result]]) -> _Result:
    results: list[_Result] = []

    async def keep() -> None:
        results.append(await work())

    anyio.run(run_until_signal, keep)
    if not results:
        raise KeyboardInterrupt
    return results[0]


def read_once(
    config: HubConfig,
    timeout: float | None,
    take: Callable[[ToolsetServer], _Result],
    views: Mapping[str, Any] | None = None,
) -> _Result:
    """Pass the servers of a configuration to `take`, once each has listed its tools or failed.

    Args:
        config: The configuration.
        timeout: Seconds for each server; `None` for those of the configuration.
        take: Gets the open server.
        views: The name of the view that is opened, and is in `views` of the server then, by extension.
    """
    made = MountOptions(deferred=False, timeout=timeout, extensions=views or {})
    server = mount_config(config, made.looking)

    async def reading() -> _Result:
        with logging_of(server, ConfigFile(str(config.path))), opening(server):
            async with server:
                await server.settled()
                await server.extensions.entered()
                return take(server)

    return run(reading)


def size_of(value: Any) -> dict[str, int]:
    """Bytes of a JSON value as it is sent, and an estimate of its tokens."""
    size = len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass"))
    return {"bytes": size, "tokens_estimate": tokens_of(size)}


def tokens_of_servers(servers: Mapping[str, Mapping[str, Any]], timeout: float | None) -> dict[str, int]:
    """Start the servers, given as the entries of an `mcpServers` file, and count the tokens of their tools.

    A line on stderr says why a server is down; it is missing in the result.
    """
    from mcp_toolset.config.hub import parse_config

    if not servers:
        return {}
    config = parse_config({"mcpServers": servers}, source=Path.cwd() / "the clients")

    def count(server: ToolsetServer) -> dict[str, int]:
        costs: dict[str, int] = defaultdict(int)
        report_down(server)
        for binding in server.bindings():
            costs[binding.source] += size_of(binding.to_wire())["tokens_estimate"]
        return dict(costs)

    return read_once(config, timeout, count)
