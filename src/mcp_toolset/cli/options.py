"""Options that commands share, credentials for a URL, and messages about mistakes in the command line.

`mcp-toolset call TARGET TOOL a=1` and `mcp-toolset call TOOL a=1 -- program argument` do the same for two
kinds of target: a command after `--` replaces TARGET, which is then left out.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from functools import wraps
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import click
from click.core import ParameterSource

from mcp_toolset._index import declaring, homes, marked
from mcp_toolset._records import dataclass
from mcp_toolset.cli.output import complain, log_to_stderr
from mcp_toolset.cli.target import FORMS, SEPARATED, Headers, Target
from mcp_toolset.errors import DefinitionError

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from mcp_toolset.cli.mount import MountOptions
    from mcp_toolset.server.server import ToolsetServer

_Result = TypeVar("_Result")
_Function = TypeVar("_Function", bound=Callable[..., Any])
LEVELS: Final = ("debug", "info", "warning", "error")
_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HOW: Final = "write NAME:VALUE, such as 'X-Api-Key: ${API_KEY}' in single quotes"


header_option: Final = click.option(
    "--header",
    multiple=True,
    metavar="NAME:VALUE",
    help="Send a header to the URL; ${VAR}, ${keyring:NAME} and ${file:PATH} are replaced.",
)


def headers_of(header: Sequence[str], token_env: str | None) -> Headers:
    found = [_header(text) for text in header]
    if token_env is not None:
        token = os.environ.get(token_env, "").strip()
        if not token:
            raise click.UsageError(f"--token-env {token_env}: the variable is not set; export it first")
        found.append(("Authorization", _checked(f"Bearer {token}", f"--token-env {token_env}")))
    return tuple(found)


def _header(text: str) -> tuple[str, str]:
    name, sign, value = text.partition(":")
    if not sign or not _NAME.fullmatch(name):
        raise click.UsageError(f"--header: it has no name before a colon; {_HOW}")
    from mcp_toolset.config.jsonc import Place
    from mcp_toolset.config.variables import Variables

    place = f"--header {name}"
    variables = Variables(os.environ, Path.cwd(), {})
    # Every value of a header is secret, so no message shows one.
    expanded = variables.expand(value.strip(), Place(place), lambda _: None)
    for warning in variables.references.warnings:
        complain(warning)
    return name, _checked(expanded, place)


def _checked(value: str, place: str) -> str:
    if not value or not value.isprintable() or not value.isascii():
        raise click.UsageError(f"{place}: its value is empty or has characters that no header takes; {_HOW}")
    return value


_TIE: Final = "\N{NON-BREAKING HYPHEN}"
_TARGETS: Final = (".json", ".jsonc", ".py")
_HELP: Final = ("-h", "--help")
_FEW: Final = 5  # so many commands are listed by their help alone
_EXTRA: Final = re.compile(r"Got unexpected extra arguments? \((\S+).*\)")


class _Help(click.HelpFormatter):
    """Help whose lines break only between words; `mcp-toolset` is one word."""

    def write_text(self, text: str) -> None:
        super().write_text(text.replace("-", _TIE))

    def write_dl(
        self, rows: Iterable[tuple[str, str | None]], col_max: int = 30, col_spacing: int = 2
    ) -> None:
        super().write_dl(
            [(name, (text or "").replace("-", _TIE)) for name, text in rows], col_max, col_spacing
        )

    def getvalue(self) -> str:
        return super().getvalue().replace(_TIE, "-")


class Context(click.Context):
    """The context of every command."""

    formatter_class = _Help


class Commands(click.Group):
    """A group that proposes similar commands, and shows a mistake with the usage of its command."""

    context_class = Context

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        found = super().get_command(ctx, cmd_name)
        if found is not None:
            found.context_class = Context
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, self._summary(ctx, name)) for name in self.list_commands(ctx)])

    def _summary(self, ctx: click.Context, name: str) -> str:
        try:
            command = self.get_command(ctx, name)
        except DefinitionError as fault:
            # A broken package does not hide the commands of others.
            return str(fault)
        text = "" if command is None else command.help or ""
        return " ".join(text.split("\n\n")[0].split()).partition(". ")[0].rstrip(".")

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if not ctx.resilient_parsing and name[:1] != "-" and self.get_command(ctx, name) is None:
            raise click.UsageError(f"no such command {name!r}{_instead(ctx, name, self)}", ctx)
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except click.UsageError as fault:
            if fault.ctx is None and (name := ctx.invoked_subcommand) is not None:
                command = self.get_command(ctx, name)
                fault.ctx = None if command is None else click.Context(command, ctx, name)
            raise


class Listing(Commands):
    """A group that lists if no command is named; options may stand before the command, too."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put the command first: the one that is named, or `list` before options."""
        named = next((word for word in args if word in self.commands), None)
        if named is not None:
            args.remove(named)
        elif not ctx.resilient_parsing and (not args or args[0][:1] == "-" and args[0] not in _HELP):
            named = "list"
        return super().parse_args(ctx, args if named is None else [named, *args])


def _instead(ctx: click.Context, name: str, group: click.Group) -> str:
    if name.endswith(_TARGETS) or "://" in name:
        return f"; write a command before it, as in {ctx.command_path} list {name}"
    names = group.list_commands(ctx)
    return _nearest(name, names) or (f"; use {_either(names)}" if len(names) < _FEW else "")


def _either(names: Sequence[str]) -> str:
    *most, last = names
    return f"{', '.join(most)} or {last}" if most else last


def _nearest(written: str, names: Sequence[str]) -> str:
    from difflib import get_close_matches

    close = get_close_matches(written.strip("'"), names, n=1)
    return f"; did you mean {close[0]}?" if close else ""


def usage_message(fault: click.ClickException) -> str:
    match fault:
        case click.NoSuchOption():
            near = _nearest(fault.option_name, fault.possibilities or ())
            return f"no such option {fault.option_name}{near}"
        case click.MissingParameter(param=click.Parameter() as param, ctx=click.Context() as ctx):
            usage = " ".join([ctx.command_path, *ctx.command.collect_usage_pieces(ctx)])
            return f"{_name(param)} is missing; write {usage}"
        case click.BadParameter(param=click.Parameter() as param):
            return _bad_value(param, fault.message.rstrip("."))
        case click.BadOptionUsage() if fault.message.endswith("requires an argument."):
            return f"{fault.option_name} has no value; write {fault.option_name} {_value(fault)}"
        case click.BadOptionUsage() if fault.message.endswith("does not take a value."):
            return f"{fault.option_name} takes no value; write {fault.option_name} alone"
        case _:
            text = _EXTRA.sub(r"'\1' is one word too many; remove it", fault.format_message()).rstrip(".")
            return text[:1].lower() + text[1:] if text[1:2].islower() else text


def _bad_value(param: click.Parameter, text: str) -> str:
    """The message about a value, without the words that click has for its types."""
    value, found, _ = text.partition(" is not ")
    option = f"{_name(param)} " if isinstance(param, click.Option) else ""
    match param.type:
        case click.Choice() if found:
            choices = [str(choice) for choice in param.type.choices]
            near = _nearest(value, choices)
            if option:
                return f"{option}{value} is not one of {', '.join(map(repr, choices))}{near}"
            return f"{value} is no {param.name}{near or f'; use {_either(choices)}'}"
        case click.IntRange() | click.FloatRange() if found:
            kind = param.type
            number = "a whole number" if isinstance(kind, click.IntRange) else "a number"
            least = f"above {kind.min}" if kind.min_open else f"from {kind.min} on"
            limits = least if kind.max is None else f"from {kind.min} to {kind.max}"
            return f"{option}{value} is not {number} {limits}"
        case _:
            return f"{_name(param)}: {text[:1].lower()}{text[1:]}"


def _name(param: click.Parameter) -> str:
    if isinstance(param, click.Option):
        return max(param.opts, key=len)
    return (param.metavar or (param.name or "").upper()).partition(" | ")[0]


def _value(fault: click.BadOptionUsage) -> str:
    params = [] if fault.ctx is None else fault.ctx.command.params
    option = next((each for each in params if fault.option_name in each.opts), None)
    return (option and option.metavar) or "VALUE"


_COMMAND: Final = "mcp_toolset.command"


def complete_word(ctx: click.Context, param: click.Parameter, incomplete: str) -> Any:
    from mcp_toolset.cli.completion import completions

    return completions(ctx, param, incomplete)


class TargetCommand(click.Command):
    """A click command whose target may be a command line after `--`; its help has options by section."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections: dict[str, list[tuple[str, str]]] = {"Options": []}
        for param in self.get_params(ctx):
            if isinstance(param, click.Option) and (row := param.get_help_record(ctx)) is not None:
                sections.setdefault(vars(param).get("section", "Options"), []).append(row)
        for title, rows in sections.items():
            with formatter.section(title):
                formatter.write_dl(rows)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        separated = "--" in args
        at = args.index("--") if separated else len(args)
        command = tuple(args[at + 1 :])
        if separated and not command and not ctx.resilient_parsing:
            raise click.UsageError("nothing follows --; write the command to start there", ctx)
        ctx.meta[_COMMAND], ctx.meta[SEPARATED] = command, separated
        left = super().parse_args(ctx, args[:at])
        if not ctx.resilient_parsing:
            self._refuse_repeated(ctx, args[:at])
        return left

    def _refuse_repeated(self, ctx: click.Context, args: list[str]) -> None:
        """Refuse an option of one value that is given twice: the first value would have no effect."""
        _, _, order = self.make_parser(ctx).parse_args(args)
        for option in order:
            if isinstance(option, click.Option) and not (option.multiple or option.count):
                says_more = not option.is_flag or option.secondary_opts
                if says_more and sum(one is option for one in order) > 1:
                    raise click.UsageError(
                        f"{_name(option)} is given twice, and has one value; remove one", ctx
                    )


def refuse_given(ctx: click.Context, names: Iterable[str], why: str) -> None:
    """Refuse options that have no effect here, by the names of their parameters, if they are given."""
    for param in ctx.command.params:
        given = ctx.get_parameter_source(param.name or "") is ParameterSource.COMMANDLINE
        if given and param.name in names:
            raise click.UsageError(f"{_name(param)} {why}", ctx)


def agreed(question: str, *, yes: bool, as_json: bool) -> bool:
    """Ask a person to agree to a change; `--yes` agrees without a question."""
    if yes:
        return True
    if as_json or not sys.stdin.isatty():
        raise click.UsageError("no person can be asked here; add --yes to make the change")
    return click.confirm(question, err=True)


def has_target(ctx: click.Context, words: Sequence[str]) -> bool:
    return bool(words or ctx.meta[_COMMAND])


def examples(*lines: str) -> str:
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
    """The target as it was written, the command after `--`, and the words after it; `names` are required."""
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


def moment(how: str) -> Callable[[str], str]:
    """The type of a time in UTC, written as in log lines; `10m`, `2h` and `3d` mean so long ago."""

    def time(value: str) -> str:
        from datetime import UTC, datetime, timedelta

        try:
            if ago := re.fullmatch(r"(\d{1,6})([smhd])", value):
                unit = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}[ago[2]]
                at = datetime.now(UTC) - timedelta(**{unit: int(ago[1])})
            else:
                at = datetime.fromisoformat(value).astimezone(UTC)
        except (ValueError, OverflowError):
            raise click.BadParameter(f"{value!r} is no time; {how}") from None
        return f"{at:%Y-%m-%dT%H:%M:%S}"

    return time


class Seconds(click.FloatRange):
    """A time in seconds, which has an end."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        seconds: float = super().convert(value, param, ctx)
        if not isfinite(seconds):
            self.fail(f"{value} is no time in seconds; write a number such as 30", param, ctx)
        return seconds


json_option: Final = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON value and nothing else."
)
dry_run_option: Final = click.option(
    "--dry-run", is_flag=True, help="Show what would change, and change nothing."
)
scope_option: Final = click.option(
    "--scope",
    type=click.Choice(["project", "user"]),
    help="The file of the project or of the user; the client's default if not given.",
)
lock_option: Final = click.option(
    "--lock",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="The lock file; by default beside the configuration, or mcp-toolset.lock.json here.",
)
timeout_option: Final = click.option(
    "--timeout",
    type=Seconds(min=0, min_open=True),
    metavar="SECONDS",
    help="Seconds for connecting, and for each call.",
)
deferred_option: Final = click.option(
    "--deferred/--no-deferred",
    default=None,
    help="Put all tools of mounted servers behind search, or list all.",
)
verbose_option: Final = click.option("-v", "--verbose", count=True, help="Log to stderr; -vv logs more.")
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


_insecure_option: Final = click.option(
    "--insecure", is_flag=True, help="Accept calls without a token from every program that can reach --host."
)


def section(title: str, *options: Any) -> Callable[[_Function], _Function]:
    """Options that stand under a title in the help of a command."""

    def declare(function: _Function) -> _Function:
        for option in reversed(options):
            before = len(getattr(function, "__click_params__", ()))
            function = option(function)
            params: list[click.Parameter] = vars(function)["__click_params__"]
            for made in params[before:]:
                vars(made).setdefault("section", title)
        return function

    return declare


def serving_options(function: _Function) -> _Function:
    """The options of `serve` besides target and address; `install` writes them into the entry."""
    made = (*_SERVING, *_of_extensions("option"), *_of_extensions("view_option"))
    return section("Catalog", *made)(function)


def caller_options(function: _Function) -> _Function:
    """The options of `serve` about callers over HTTP; `--insecure` admits all without a token."""
    return section("Security", *_of_extensions("caller_option"), _insecure_option)(function)


def serve_options(function: _Function) -> _Function:
    return section("Log", *_of_extensions("serve_option"))(function)


def search_options(function: _Function) -> _Function:
    """The options of `search` that extensions add."""
    return section("Options", *_of_extensions("search_option"))(function)


def _of_extensions(mark: str) -> list[Any]:
    found = [(key, declaring(homes("key")[key], "option")) for key in marked(mark)]
    made = [(key, getattr(module, mark.upper())) for key, module in found]
    # Extensions that observe calls write logs.
    return [section("Log", option) if key in marked("stays") else option for key, option in made]


def serving_names() -> tuple[str, ...]:
    """The parameters of `serving_options`."""
    return (*_SERVING_NAMES, *marked("option"), *marked("view_option"))


def serving_arguments(ctx: click.Context) -> list[str | Path]:
    """The options of `serving_options` that were given, as arguments of `serve`; files are paths."""
    return _arguments(ctx, serving_names())


def view_arguments(ctx: click.Context) -> list[str]:
    """The options of `view_options` that were given, as arguments."""
    return [str(one) for one in _arguments(ctx, marked("view_option"))]


def _arguments(ctx: click.Context, known: Sequence[str]) -> list[str | Path]:
    given: list[str | Path] = []
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


def gathered(
    into: str, make: Callable[..., Any], *options: Callable[[Any], Any]
) -> Callable[[_Function], _Function]:
    """Options whose values are joined by `make` into one argument of the command, `into`."""

    def declare(function: _Function) -> _Function:
        @wraps(function)
        def command(*args: Any, **given: Any) -> Any:
            own = {name: given.pop(name) for name in names}
            return function(*args, **{into: make(**own)}, **given)

        names = [option(command).__click_params__[-1].name for option in reversed(options)]
        return cast("_Function", command)

    return declare


@dataclass(frozen=True, slots=True)
class TargetAccess:
    """The connection of a one-off command to its target; `verbose` counts `-v`."""

    headers: Headers = field(default=(), repr=False)
    timeout: float | None = None
    verbose: int = 0
    views: Mapping[str, str] = field(default_factory=dict[str, str])

    def mounting(self, *, deferred: bool | None = None, lock: Path | None = None) -> MountOptions:
        from mcp_toolset.cli.mount import MountOptions

        return MountOptions(deferred, self.timeout, lock=lock, headers=self.headers, extensions=self.views)

    def log(self) -> None:
        log_to_stderr(self.verbose, quiet=True)

    def run_on(
        self,
        target: Target,
        work: Callable[[ToolsetServer], Awaitable[_Result]],
        *,
        deferred: bool | None = None,
        reasons: bool | None = True,
    ) -> _Result:
        """The result of `work` with the target's open server."""
        from mcp_toolset.cli.mount import opened, run

        self.log()
        options = self.mounting(deferred=deferred)

        async def working() -> _Result:
            async with opened(target, options, reasons=reasons) as server:
                return await work(server)

        return run(working)


def _access_of(
    header: Sequence[str], token_env: str | None, timeout: float | None, verbose: int, **views: str | None
) -> TargetAccess:
    return TargetAccess(headers_of(header, token_env), timeout, verbose, _named(**views))


def _named(**views: str | None) -> dict[str, str]:
    return {key: name for key, name in views.items() if name is not None}


view_options: Final = gathered("views", _named, *_of_extensions("view_option"))
"""The options that name a view of the target, as one argument `views`: names by the keys of extensions."""

_token_option: Final = click.option(
    "--token-env", metavar="VAR", help="Send the bearer token in this environment variable to the URL."
)
reach_options: Final = gathered(
    "reach",
    _access_of,
    *_of_extensions("view_option"),
    header_option,
    _token_option,
    timeout_option,
    verbose_option,
)
