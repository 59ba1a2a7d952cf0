"""`usage_message` and `Commands`: mistakes in the command line, and what to write instead."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Final

import click

__all__ = ["Commands", "Listing", "usage_message"]

_TIE: Final = "\N{NON-BREAKING HYPHEN}"
_TARGETS: Final = (".json", ".jsonc", ".py")
_HELP: Final = ("-h", "--help")
_FEW: Final = 5
"""So many commands are listed by their help alone."""

_EXTRA: Final = re.compile(r"Got unexpected extra arguments? \((\S+).*\)")


class _Help(click.HelpFormatter):
    """Help whose lines break between words alone; `mcp-toolset` is one word."""

    def write_text(self, text: str) -> None:
        super().write_text(text.replace("-", _TIE))

    def write_dl(
        self, rows: Iterable[tuple[str, str | None]], col_max: int = 30, col_spacing: int = 2
    ) -> None:
        """Write a list of options or commands."""
        super().write_dl(
            [(name, (text or "").replace("-", _TIE)) for name, text in rows], col_max, col_spacing
        )

    def getvalue(self) -> str:
        """The text, with its hyphens."""
        return super().getvalue().replace(_TIE, "-")


class Context(click.Context):
    """The context of every command."""

    formatter_class = _Help


class Commands(click.Group):
    """A group that proposes commands, and knows which command a mistake was made in."""

    context_class = Context

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of a name; `None` if there is none."""
        found = super().get_command(ctx, cmd_name)
        if found is not None:
            found.context_class = Context
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Each command with its whole first sentence."""
        found = ((name, self.get_command(ctx, name)) for name in self.list_commands(ctx))
        with formatter.section("Commands"):
            formatter.write_dl([(name, sentence(command)) for name, command in found if command])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command of the first word."""
        name = args[0]
        if not ctx.resilient_parsing and name[:1] != "-" and self.get_command(ctx, name) is None:
            raise click.UsageError(f"no such command {name!r}{_instead(ctx, name, self)}", ctx)
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; a mistake that was found without its context gets it."""
        try:
            return super().invoke(ctx)
        except click.UsageError as fault:
            if fault.ctx is None and (name := ctx.invoked_subcommand) is not None:
                command = self.get_command(ctx, name)
                fault.ctx = None if command is None else click.Context(command, ctx, name)
            raise


def sentence(command: click.Command) -> str:
    """The first sentence of the help of a command."""
    return " ".join((command.help or "").split("\n\n")[0].split()).partition(". ")[0].rstrip(".")


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
    """The place, the cause and the remedy of a mistake, in one line."""
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
            return f"{option}{value} is not {_range(param.type)}"
        case _:
            return f"{_name(param)}: {text[:1].lower()}{text[1:]}"


def _range(kind: click.IntRange | click.FloatRange) -> str:
    number = "a whole number" if isinstance(kind, click.IntRange) else "a number"
    if kind.max is not None:
        return f"{number} from {kind.min} to {kind.max}"
    return f"{number} above {kind.min}" if kind.min_open else f"{number} from {kind.min} on"


def _name(param: click.Parameter) -> str:
    """The parameter as a command line has it."""
    if isinstance(param, click.Option):
        return max(param.opts, key=len)
    return (param.metavar or (param.name or "").upper()).partition(" | ")[0]


def _value(fault: click.BadOptionUsage) -> str:
    """The value of an option, as its help has it."""
    params = [] if fault.ctx is None else fault.ctx.command.params
    option = next((each for each in params if fault.option_name in each.opts), None)
    return (option and option.metavar) or "VALUE"
