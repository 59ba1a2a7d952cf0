"""The options that commands share, and how a command line is split into TARGET and the rest.

`mcp-toolset call TARGET TOOL a=1` and `mcp-toolset call TOOL a=1 -- program argument` do the same for two
kinds of target: a command after `--` replaces TARGET, which is then left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import click
from click.core import ParameterSource

from mcp_toolset._index import GROUP, homes, marked
from mcp_toolset._records import dataclass
from mcp_toolset.cli.credentials import Headers, credential_options
from mcp_toolset.cli.target import FORMS, SEPARATED

if TYPE_CHECKING:
    from mcp_toolset.cli.mount import MountOptions

__all__ = [
    "Reach",
    "TargetCommand",
    "complete_word",
    "deferred_option",
    "dry_run_option",
    "examples",
    "json_option",
    "lock_option",
    "reach_options",
    "scope_option",
    "serve_options",
    "serving_arguments",
    "serving_options",
    "target_and_words",
    "timeout_option",
    "verbose_option",
    "written",
]

_COMMAND: Final = "mcp_toolset.command"
_Function = TypeVar("_Function", bound=Callable[..., Any])


def complete_word(ctx: click.Context, param: click.Parameter, incomplete: str) -> Any:
    """What a shell completes a word to; see `completion.words`."""
    from mcp_toolset.cli.completion.words import completions

    return completions(ctx, param, incomplete)


class TargetCommand(click.Command):
    """A click command whose target may be a command line after `--`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Set aside the words after `--`; click parses the rest."""
        own, separator, command = _split(args)
        if separator and not command and not ctx.resilient_parsing:
            raise click.UsageError("nothing follows --; write the command to start there", ctx)
        ctx.meta[_COMMAND], ctx.meta[SEPARATED] = command, separator
        return super().parse_args(ctx, own)


def has_target(ctx: click.Context, words: Sequence[str]) -> bool:
    """Whether a `TargetCommand` was given a target."""
    return bool(words or ctx.meta[_COMMAND])


def examples(*lines: str) -> str:
    """The examples below the options in a command's help."""
    return "\b\n" + "\n".join(["Examples:", *(f"  {line}" for line in lines)])


def target_command(name: str, words: str, *lines: str) -> Callable[[Callable[..., Any]], TargetCommand]:
    """Declare a command about a target: its name, its words as help shows them, and examples."""

    def declare(function: Callable[..., Any]) -> TargetCommand:
        with_words = click.argument("words", nargs=-1, metavar=words, shell_complete=complete_word)(function)
        made = click.command(name, cls=TargetCommand, options_metavar="[OPTIONS]", epilog=examples(*lines))
        return made(with_words)

    return declare


def target_and_words(
    ctx: click.Context, words: Sequence[str], *names: str, more: bool = False
) -> tuple[str | None, tuple[str, ...], list[str]]:
    """Return the target as it was written, the command after `--`, and the words that follow the target.

    Args:
        ctx: The context of a `TargetCommand`.
        words: All words of the command.
        names: What the words after the target are called; each is required.
        more: Whether further words may follow.
    """
    command: tuple[str, ...] = ctx.meta[_COMMAND]
    own = list(words)
    if command and own and own[0].endswith((".json", ".jsonc")) and Path(own[0]).is_file():
        raise click.UsageError(f"{own[0]} and a command after -- are two targets; remove one of them", ctx)
    if not command and not own:
        raise click.UsageError(f"TARGET is missing; give {FORMS}", ctx)
    target = None if command else own.pop(0)
    if len(own) < len(names):
        raise click.UsageError(
            f"{names[len(own)]} is missing; write it after {target or 'the options, before --'}", ctx
        )
    if len(own) > len(names) and not more:
        extra = own[len(names)]
        mend = (
            "the command after -- is the target; remove it"
            if command
            else "remove it, or quote what belongs together"
        )
        raise click.UsageError(f"{extra!r} is one word too many; {mend}", ctx)
    return target, command, own


def written(target: str | None, command: Sequence[str]) -> str:
    return target or "-- " + " ".join(command)


def _split(args: Sequence[str]) -> tuple[list[str], bool, tuple[str, ...]]:
    if "--" not in args:
        return list(args), False, ()
    at = args.index("--")
    return list(args[:at]), True, tuple(args[at + 1 :])


def json_option(function: _Function) -> _Function:
    """`--json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON value and nothing else.")(
        function
    )


def dry_run_option(function: _Function) -> _Function:
    """`--dry-run`."""
    return click.option("--dry-run", is_flag=True, help="Show the difference and change nothing.")(function)


def scope_option(function: _Function) -> _Function:
    """`--scope`."""
    return click.option(
        "--scope",
        type=click.Choice(["project", "user"]),
        help="The file of the project or of the user; the client's default if not given.",
    )(function)


def lock_option(function: _Function) -> _Function:
    """`--lock`."""
    return click.option(
        "--lock",
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="FILE",
        help="The lock file; by default beside the configuration, or mcp-toolset.lock.json here.",
    )(function)


def timeout_option(function: _Function) -> _Function:
    """`--timeout`."""
    return click.option(
        "--timeout",
        type=click.FloatRange(min=0, min_open=True),
        metavar="SECONDS",
        help="Seconds for connecting, and for each call.",
    )(function)


def deferred_option(function: _Function) -> _Function:
    """`--deferred` and `--no-deferred`."""
    return click.option(
        "--deferred/--no-deferred",
        default=None,
        help="Put all tools of mounted servers behind search, or list all.",
    )(function)


_SERVING: Final = (
    click.option(
        "--grants",
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="FILE",
        help="Keep the grants of deferred tools in FILE (SQLite), over restarts and for several processes.",
    ),
    click.option(
        "--client-prefix",
        metavar="TEXT",
        help="What the client puts before tool names, such as mcp__tools__; long names are shortened.",
    ),
    click.option(
        "--state",
        type=click.Path(dir_okay=False),
        metavar="FILE",
        help="Keep the names of tools, and which are switched on, in FILE over restarts.",
    ),
    click.option(
        "--watch/--no-watch",
        default=True,
        show_default=True,
        help="Read the configuration again when its file changes.",
    ),
    deferred_option,
    timeout_option,
)


_SERVING_NAMES: Final = ("grants", "client_prefix", "state", "watch", "deferred", "timeout")


def serving_options(function: _Function) -> _Function:
    """The options of `serve` besides target and address; `install` writes them into the entry."""
    return _with((*_SERVING, *_of_extensions("option")), function)


def serve_options(function: _Function) -> _Function:
    """The options of extensions that `serve` alone has."""
    return _with(_of_extensions("serve_option"), function)


def _of_extensions(mark: str) -> list[Any]:
    homes_of = (homes("key")[key] for key in marked(mark))
    return [getattr(import_module(f"{GROUP}.{home}.option"), mark.upper()) for home in homes_of]


def _with(options: Sequence[Any], function: _Function) -> _Function:
    for option in reversed(options):
        function = option(function)
    return function


def serving_arguments(ctx: click.Context) -> list[str | Path]:
    """The options above that were given, in the form that `serve` takes; files are paths."""
    given: list[str | Path] = []
    known = (*_SERVING_NAMES, *marked("option"))
    for option in ctx.command.params:
        name = option.name or ""
        if name not in known or ctx.get_parameter_source(name) != ParameterSource.COMMANDLINE:
            continue
        value: object = ctx.params[name]
        if isinstance(value, bool):
            given.append(option.opts[0] if value else option.secondary_opts[0])
        else:
            text = f"{value:g}" if isinstance(value, float) else str(value)
            given += [option.opts[0], Path(text) if isinstance(option.type, click.Path) else text]
    return given


def verbose_option(function: _Function) -> _Function:
    """`-v`."""
    return click.option("-v", "--verbose", count=True, help="Log to stderr; -vv logs more.")(function)


@dataclass(frozen=True, slots=True)
class Reach:
    """How a command that ends by itself connects to its target.

    Attributes:
        headers: Sent to the target's URL.
        timeout: Seconds for connecting and for each call; `None` leaves the defaults.
        verbose: How often `-v` was given.
    """

    headers: Headers = field(default=(), repr=False)
    timeout: float | None = None
    verbose: int = 0

    def mounting(self, *, deferred: bool | None = None, lock: Path | None = None) -> MountOptions:
        """The options of the target's mount; see `MountOptions`."""
        from mcp_toolset.cli.mount import MountOptions

        return MountOptions(deferred, self.timeout, lock=lock, headers=self.headers)

    def log(self) -> None:
        """Send log records to stderr, warnings only with `-v`."""
        from mcp_toolset.cli.display.output import log_to_stderr

        log_to_stderr(self.verbose, quiet=True)


def reach_options(function: _Function) -> _Function:
    """`--header`, `--token-env`, `--timeout` and `-v`; the command receives all of them as `reach`."""

    @wraps(function)
    def told(*args: Any, headers: Headers, timeout: float | None, verbose: int, **kwargs: Any) -> Any:
        return function(*args, reach=Reach(headers, timeout, verbose), **kwargs)

    return cast("_Function", credential_options(timeout_option(verbose_option(told))))
