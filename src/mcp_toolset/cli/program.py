"""Load Python code and find what it serves; `serve(…)` in that code hands its server over and returns.

The shortest program ends with `serve(add)`. While a command loads it, `serve` hands over its server and
returns at once. A file that calls `serve` under `if __name__ == "__main__":` is run as the main program, so
that its hooks and mounts take effect.
"""

from __future__ import annotations

import ast
import difflib
import importlib
import importlib.util
import sys
import traceback
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, Final, cast

from mcp_toolset._index import marked
from mcp_toolset._rule import idle_rules
from mcp_toolset.cli.target import Module, Program
from mcp_toolset.errors import TargetError, ToolsetError
from mcp_toolset.server.server import ToolsetServer
from mcp_toolset.serving.serve import capturing, guarded_ones, tell_passed_over
from mcp_toolset.tools.declare.function import Tool

__all__ = ["is_of_project", "load"]

_INSTALLED: Final = ("site-packages", "dist-packages")
_USUAL: Final = ("tools", "toolset", "server", "app")


def load(target: Module | Program, is_mountable: Callable[[object], bool]) -> Any:
    """Run the code and find the named attribute, the server it serves, or the tools that it defines.

    Args:
        target: The code, and perhaps an attribute of it.
        is_mountable: Whether a value under one of the usual names can be served.
    """
    as_main = isinstance(target, Program) and target.attribute is None and _serves_as_main(target)
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
            f"{target}: {call}, whose rules would not apply, as that line is not run here: name a "
            "ToolsetServer(…) that is made outside of functions, or start the program itself: -- python …"
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
        for node in ast.walk(_tree(path)):
            if not isinstance(node, ast.Call):
                continue
            name = getattr(node.func, "id", None) or getattr(node.func, "attr", "")
            given = [one.arg for one in node.keywords if one.arg in _DECIDING]
            first = next((one.id for one in node.args[:1] if isinstance(one, ast.Name)), None)
            if given and (name in _SERVING if attribute is None else name == "serve" and first == attribute):
                where = f"line {node.lineno}" + (f" of {path}" if path != own else "")
                return f"{where} has {name}(…, {given[0]}=…)"
    return ""


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


def _import(target: Module | Program) -> ModuleType:
    if isinstance(target, Program):
        return _guarded(lambda: _run_file(Path(target.path)), target.path, Path(target.path))
    _search_first(Path.cwd())
    return _guarded(lambda: importlib.import_module(target.module), target.module, None)


def _serves_as_main(target: Program) -> bool:
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


def _import_main(target: Module | Program) -> ModuleType:
    assert isinstance(target, Program)
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
    """Whether a source file belongs to a program: it is in the program's folder, and is not installed."""
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
