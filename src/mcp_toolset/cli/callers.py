"""Callers on the command line (`--as`), and the record of their logins."""

from __future__ import annotations

import getpass
import json
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, cast

import click

from mcp_toolset._records import dataclass, replace
from mcp_toolset.cli.options import gathered
from mcp_toolset.config.extensions import Settings
from mcp_toolset.config.keys import did_you_mean
from mcp_toolset.errors import TargetError, ToolsetError, innermost
from mcp_toolset.extending.extension import find
from mcp_toolset.tools.call import Identity

if TYPE_CHECKING:
    from mcp_toolset.config.extensions import Callers
    from mcp_toolset.server.server import ToolsetServer

_FORM: Final = '["CLIENT", "ISSUER", "SUBJECT"]'


def caller_of_key(written: str) -> Identity | None:
    """The caller of a key; `None` if the text is a name."""
    if not written.startswith("["):
        return None
    try:
        data: object = json.loads(written)
    # Also what is nested too deeply.
    except (ValueError, RecursionError):
        data = None
    parts = cast("list[object]", data) if isinstance(data, list) else []
    client, issuer, subject = parts if len(parts) == 3 else (0, 0, 0)
    if not (_is_text(client) and _is_text(issuer) and _is_text(subject)) or not (client or subject):
        how = f"a key is written as `{_FORM}`; write null for a missing part"
        raise click.UsageError(f"--as {written}: {how}")
    return Identity.of(cast("str | None", client), cast("str | None", subject), cast("str | None", issuer))


def _is_text(part: object) -> bool:
    return part is None or isinstance(part, str)


def known_caller(written: str, callers: Callers | None, place: str, kept: Sequence[str]) -> Identity:
    """The caller of a name or a key; `kept` has the keys of callers who have logged in before."""
    caller = caller_of_key(written)
    tokens = () if callers is None else tuple(callers.named)
    issuers = () if callers is None else callers.issuers
    if caller is not None:
        _check_issuer(caller, tokens, issuers, place)
        return caller
    before = {key: one for key in kept if (one := caller_of_key(key)) is not None}
    known = {Identity.of(name).key: Identity.of(name) for name in tokens} | before
    named = {key: one for key, one in known.items() if one.name == written}
    if len(named) == 1:
        return next(iter(named.values()))
    if named:
        raise TargetError(
            f"--as {written}: several callers have this name; give a key: {', '.join(sorted(named))}"
        )
    raise TargetError(
        f"{place}: no caller {written!r}; {_mend(written, [*tokens], bool(issuers or not callers))}"
    )


def _check_issuer(found: Identity, tokens: Sequence[str], issuers: Sequence[str], place: str) -> None:
    if not (tokens or issuers) or any("${" in issuer for issuer in issuers):
        return
    if found.issuer is None and found.client not in tokens:
        raise TargetError(
            f"{place}: `auth.tokens` has no {found.client!r}; {_mend(found.name, tokens, False)}"
        )
    if found.issuer is not None and found.issuer not in issuers:
        known = f"`auth.jwt` has {', '.join(issuers)}" if issuers else "`auth` has no `jwt`"
        raise TargetError(f"{place}: no tokens of {found.issuer} are accepted; {known}")


def _mend(written: str, tokens: Sequence[str], keys: bool) -> str:
    if mend := did_you_mean(written, tokens):
        return mend
    known = [f"it knows {', '.join(tokens)}"] if tokens else []
    if keys or not tokens:
        known.append(f"give the key of a caller whom it does not name, as `{_FORM}`")
    return "; ".join(known)


@dataclass(frozen=True, slots=True)
class LoginRecord:
    """Records what is done with a login to one server; without a `caller`, all callers share it."""

    stated: Mapping[str, Settings | None]
    server: str
    caller: str = ""

    @contextmanager
    def failing(self, event: str) -> Generator[None]:
        try:
            yield
        # The task groups of the command put what fails within them into a group.
        except (ToolsetError, ExceptionGroup) as fault:
            self.note(event, "failed", reason=str(innermost(fault, ToolsetError)))
            raise

    def note(self, event: str, outcome: str, **facts: Any) -> None:
        members = {
            "server": self.server,
            "outcome": outcome,
            "key": self.caller,
            "user": system_user(),
            **facts,
        }
        for key, settings in self.stated.items():
            if settings is not None and (kind := find(key)) is not None:
                kind.event_elsewhere(settings, event, **members)


def system_user() -> str:
    try:
        return getpass.getuser()
    # A user without a name, as in some containers.
    except (KeyError, OSError):
        return ""


@dataclass(frozen=True, slots=True)
class CallerOptions:
    """The caller that `--as`, `--role` and `--scope` name."""

    name: str | None = None
    roles: tuple[str, ...] = ()
    scopes: tuple[str, ...] = ()

    def identity(self, server: ToolsetServer) -> Identity | None:
        """The caller; `None` for a client on stdio. A name of `auth.tokens` has its roles and scopes."""
        if self.name is None and not self.roles and not self.scopes:
            return None
        callers = None if server.configured is None else server.configured.config.callers
        token = None if callers is None or self.name is None else callers.named.get(self.name)
        if token is not None:
            return Identity.of(self.name, roles=self.roles or token.roles, scopes=self.scopes or token.scopes)
        caller = caller_of_key(self.name or "") or Identity.of(None, self.name or "")
        return replace(caller, roles=frozenset(self.roles), scopes=frozenset(self.scopes))


caller_options: Final = gathered(
    "who",
    CallerOptions,
    click.option(
        "--as",
        "name",
        metavar="NAME",
        help="The caller's name or key; without it a caller that is not logged in.",
    ),
    click.option("--role", "roles", metavar="ROLE", multiple=True, help="A role of the caller; repeatable."),
    click.option(
        "--scope", "scopes", metavar="SCOPE", multiple=True, help="A scope of the caller; repeatable."
    ),
)
"""The options that say who calls, as one argument `who`."""
