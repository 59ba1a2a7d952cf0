"""`mcp-toolset audit show` and `audit verify`: read an audit log, and check that it is unbroken."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any, Final, cast

import click

from mcp_toolset.cli.options import Commands, examples, moment, view_options
from mcp_toolset.cli.output import answering, working
from mcp_toolset.errors import AuditError
from mcp_toolset.tools.hidden_text import in_log

if TYPE_CHECKING:
    from mcp_toolset.extensions.audit.verification import VerifiedLog

__all__ = ["audit_command"]

_POLL: Final = 0.25  # seconds between two reads of a log with `--follow`
_IN_SENTENCE: Final = "seq prev digest event time who key tool server outcome reason rule".split()
"""Fields that the sentence of a line shows, or that no reader needs."""

_SINCE: Final = moment("write 2026-11-22T08:00, or 90m, 2h, 3d for as long ago")
_TOO_LONG: Final = ("arguments", "session", "round", "id", "trace", "protocol", "ran", "roles")
"""Fields that would make a sentence too long; `--json` shows them."""


def _fits(
    fields: Mapping[str, Any],
    *,
    tool: str | None,
    who: str | None,
    since: str | None,
    outcome: str | None,
    event: str | None,
    views: Collection[str],
) -> bool:
    """True if a line fits the patterns, belongs to one of the views, and is not older than `since`."""
    own, server = str(fields.get("tool", "")), str(fields.get("server", ""))
    return (
        _matches(tool, own, f"{server}/{own}", str(fields.get("called", "")))
        and _matches(who, str(fields.get("who", "")), str(fields.get("key", "")))
        and _matches(outcome, str(fields.get("outcome", "")))
        and _matches(event, str(fields.get("event", "")))
        and (not views or str(fields.get("view", "")) in views)
        and (since is None or str(fields.get("time", "")) >= since)
    )


def _matches(pattern: str | None, *texts: str) -> bool:
    return pattern is None or any(fnmatchcase(text, pattern) for text in texts)


@click.group(
    "audit",
    cls=Commands,
    options_metavar="",
    epilog=examples("mcp-toolset audit show audit.jsonl --since 2h", "mcp-toolset audit verify audit.jsonl"),
)
def audit_command() -> None:
    """Read an audit log, and check that no line was changed or removed."""


@audit_command.command(
    "show",
    epilog=examples(
        "mcp-toolset audit show audit.jsonl --since 2h",
        "mcp-toolset audit show audit.jsonl --who alice --outcome refused",
        "mcp-toolset audit show audit.jsonl --tool 'github/*' --follow",
    ),
)
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--tool", metavar="PATTERN", help="Only lines about these tools: a name, or server/name.")
@click.option("--who", metavar="PATTERN", help="Only lines about these callers: a name, or a key.")
@click.option("--since", type=_SINCE, help="From this time on: 2026-11-22T08:00, or 90m, 2h, 3d ago.")
@click.option(
    "--outcome",
    metavar="OUTCOME",
    help="Only lines with this outcome: result, error, refused, asked, cancelled.",
)
@click.option(
    "--event",
    metavar="EVENT",
    help="Only lines of this kind: call, decision, grant, login, refused and others.",
)
@view_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object for each line.")
@click.option("-f", "--follow", is_flag=True, help="Keep running, and print new lines when they are written.")
def show_command(
    file: Path, as_json: bool, follow: bool, views: Mapping[str, str], **wanted: str | None
) -> None:
    """Show the lines of an audit log.

    The oldest are first, and older files of the log FILE are included.
    """
    with answering(as_json=as_json) as output:
        for line in _lines(file, follow=follow):
            fields = _fields(line)
            if fields is not None and _fits(fields, **wanted, views=[*views.values()]):
                if as_json:
                    output.text(line.decode())
                else:
                    output.say(in_log(_sentence(fields)))


@audit_command.command(
    "verify",
    epilog=examples(
        "mcp-toolset audit verify audit.jsonl", "mcp-toolset audit verify audit.jsonl --key-env AUDIT_KEY"
    ),
)
@click.argument(
    "files", nargs=-1, required=True, metavar="FILE…", type=click.Path(dir_okay=False, path_type=Path)
)
@click.option("--key-env", metavar="NAME", help="The environment variable that holds the key of the log.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON value and nothing else.")
def verify_command(files: Sequence[Path], key_env: str | None, as_json: bool) -> int:
    """Check that an audit log is whole.

    The exit code is 1 if a line was changed, removed, moved or inserted. FILE is a log; older files of the
    log are checked too.
    """
    from mcp_toolset.extensions.audit.log_files import seal_of
    from mcp_toolset.extensions.audit.verification import verify

    key = None if key_env is None else os.environ.get(key_env)
    if key_env is not None and not key:
        raise click.UsageError(f"the environment variable {key_env} is not set; put the key of the log there")
    with answering(as_json=as_json) as output:
        with working("checking"):
            logs = verify(files, seal_of(key))
        if as_json:
            output.json([_json_of(log) for log in logs])
        else:
            for log in logs:
                output.say(_verdict(log))
    return int(any(log.finding for log in logs))


def _lines(file: Path, *, follow: bool) -> Iterator[bytes]:
    """The lines of a log, oldest first, from its rotated files too; with `follow`, also new lines."""
    from mcp_toolset.extensions.audit.log_files import files_of

    files = files_of(file)
    if not files:
        raise AuditError(f"{file}: there is no audit log; give the file that it is written to")
    for each in files if not follow else files[:-1]:
        # The oldest file may be removed meanwhile.
        with suppress(FileNotFoundError), each.open("rb") as lines:
            yield from (line.rstrip(b"\n") for line in lines)
    if follow:
        yield from _followed(file)


def _followed(file: Path) -> Iterator[bytes]:
    """The lines of the newest file and of the files after it, without end."""
    pause, following = Event(), file
    while True:
        with following.open("rb") as lines:
            begun, successor = b"", None
            while successor is None:
                # Looked up before the file is read to its end: nothing is written to a rotated file.
                successor = _successor(file, lines.fileno())
                while line := lines.readline():
                    begun += line
                    if begun.endswith(b"\n"):
                        yield begun.rstrip(b"\n")
                        begun = b""
                if successor is None:
                    pause.wait(_POLL)
        following = successor


def _successor(log: Path, descriptor: int) -> Path | None:
    """The file after an open one, once the open one was rotated; `None` while it is the newest."""
    from mcp_toolset.extensions.audit.log_files import files_of

    later: Path | None = None
    # A file may be rotated meanwhile, and have another name.
    with suppress(FileNotFoundError):
        for each in reversed(files_of(log)):
            if os.path.samestat(each.stat(), os.fstat(descriptor)):
                return later
            later = each
        # The open file was removed meanwhile: the oldest kept file follows it.
        return later
    return None


def _fields(line: bytes) -> dict[str, Any] | None:
    """The fields of a line; `None` if it is no JSON object."""
    try:
        value: object = json.loads(line)
    except ValueError:
        return None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def _sentence(fields: dict[str, Any]) -> str:
    """One event in a line: when, what happened to what, by whom, and why."""
    event, server, tool = (str(fields.get(name, "")) for name in ("event", "server", "tool"))
    subject = f"{server}/{tool}" if server and tool else tool or server or str(fields.get("called", ""))
    kind = "" if event == "call" else event.replace("_", " ")
    parts = [kind, str(fields.get("outcome", "")), subject]
    who = fields.get("who") or fields.get("key")
    event_text = " ".join(part for part in parts if part) + (f", {who}" if who else "")
    why = ", ".join(str(fields[name]) for name in ("reason", "rule") if fields.get(name))
    duration = fields.get("duration")
    rest = [f"{duration * 1000:.0f} ms"] if isinstance(duration, int | float) else []
    rest += [
        f"{name} {_short(value)}"
        for name, value in fields.items()
        if name not in (*_IN_SENTENCE, *_TOO_LONG, "duration", "called")
    ]
    more = f" ({', '.join(rest)})" if rest else ""
    return (
        f"{str(fields.get('time', ''))[:19].replace('T', ' ')} {event_text}{f': {why}' if why else ''}{more}"
    )


def _short(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= 40 else f"{text[:40]}…"


def _verdict(verified: VerifiedLog) -> str:
    """The result for one log, in a line."""
    finding = verified.finding
    if finding is not None:
        where = f"{finding.file}:{finding.line}" if finding.line else str(finding.file)
        before = f" ({verified.lines:,} lines before it are unbroken)" if verified.lines else ""
        return f"{where}: {finding.text}{before}"
    note = f"; {verified.note}" if verified.note else ""
    count = len(verified.files)
    files = f" in {count} files" if count > 1 else ""
    span = f", from {verified.began} to {verified.ended}" if verified.lines else ""
    return f"{verified.files[-1]}: {verified.lines:,} lines{files}, unbroken{span}{note}"


def _json_of(verified: VerifiedLog) -> dict[str, Any]:
    finding = verified.finding
    return {
        "files": [str(file) for file in verified.files],
        "lines": verified.lines,
        "unbroken": finding is None,
        "from": verified.began,
        "to": verified.ended,
        "note": verified.note,
        "finding": finding
        and {"kind": finding.kind, "file": str(finding.file), "line": finding.line, "text": finding.text},
    }
