"""`mcp-toolset login` and `logout`: get, list and remove the tokens for servers that want OAuth."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from mcp_toolset._records import replace
from mcp_toolset.cli import options
from mcp_toolset.errors import TargetError

if TYPE_CHECKING:
    from mcp_toolset.cli.callers import LoginRecord
    from mcp_toolset.cli.output import Output
    from mcp_toolset.config.models import HubConfig
    from mcp_toolset.extensions.upstream_access.account import Account
    from mcp_toolset.extensions.upstream_access.server_auth import LoginPage
    from mcp_toolset.extensions.upstream_access.token_source import Credential

_FOR_NOBODY: Final = (
    "each caller has a login of its own; this one is for requests without a caller, as on stdio"
)
_DISPLAYS: Final = ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY")

_config_option = click.option(
    "--config",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    shell_complete=options.complete_word,
    help="The configuration that names SERVER; by default mcp.json, or an editor's file, in this folder.",
)
_as_option = click.option(
    "--as",
    "caller",
    metavar="CALLER",
    help="The caller whose login it is, if each has one: a name of `auth.tokens`, or a key.",
)


@click.command(
    "login",
    options_metavar="[OPTIONS]",
    epilog=options.examples(
        "mcp-toolset login github --config mcp.json",
        "mcp-toolset login https://host/mcp --scope read --scope write",
        "mcp-toolset login github --no-browser",
        "mcp-toolset login notes --as alice",
        "mcp-toolset login --list",
    ),
)
@click.argument("server", required=False, metavar="SERVER|URL", shell_complete=options.complete_word)
@_config_option
@_as_option
@click.option(
    "--no-browser",
    is_flag=True,
    help="Print the address of the page, and ask for the address that the browser ends at.",
)
@click.option("--scope", multiple=True, metavar="SCOPE", help="A further scope to request.")
@click.option("--list", "listed", is_flag=True, help="List the servers with stored tokens.")
@click.option(
    "--timeout",
    type=options.Seconds(min=0, min_open=True),
    default=300.0,
    show_default=True,
    metavar="SECONDS",
    help="Seconds to wait for the login in the browser.",
)
@options.json_option
@options.verbose_option
@click.pass_context
def login_command(
    ctx: click.Context,
    server: str | None,
    config: Path | None,
    caller: str | None,
    no_browser: bool,
    scope: Sequence[str],
    listed: bool,
    timeout: float,
    as_json: bool,
    verbose: int,
) -> None:
    """Log in to a server that wants OAuth, in a browser.

    The tokens are stored encrypted, for all programs of this user. A running bridge uses the new
    tokens without a restart.
    """
    if listed == (server is not None):
        raise click.UsageError("give a SERVER or a URL, or --list", ctx)
    if listed and caller is not None:
        raise click.UsageError("--list shows the logins of all callers; leave out --as", ctx)
    from mcp_toolset.cli.mount import run
    from mcp_toolset.cli.output import answering, log_to_stderr, note

    log_to_stderr(verbose, quiet=True)
    with answering(as_json=as_json) as output:
        if server is None:
            rows = run(_rows)
            if as_json:
                output.json(rows)
            elif rows:
                _show_rows(rows, output)
            else:
                output.say("no tokens are kept")
            return
        account, record = _account(server, config, caller)
        if caller is None and account.auth.per_user:
            note(f"{account.name}: {_FOR_NOBODY}; for one caller, log in with --as CALLER")
        with record.failing("login"):
            found = run(lambda: _logged_in(account, scope, timeout, no_browser=no_browser))
        record.note("login", "logged in", issuer=found.issuer, scopes=[*found.scopes])
        if as_json:
            about = {"caller": account.user} if account.user else {}
            output.json({"server": account.name, **about, "issuer": found.issuer, "scopes": [*found.scopes]})
        else:
            own = "" if caller is None else f", for the caller {caller} alone"
            scopes = f", for {' '.join(found.scopes)}" if found.scopes else ""
            output.say(f"logged in to {account.name} at {found.issuer}{scopes}{own}")


@click.command(
    "logout",
    epilog=options.examples(
        "mcp-toolset logout github",
        "mcp-toolset logout https://host/mcp",
        "mcp-toolset logout notes --as alice",
    ),
)
@click.argument("server", metavar="SERVER|URL", shell_complete=options.complete_word)
@_config_option
@_as_option
@options.dry_run_option
def logout_command(server: str, config: Path | None, caller: str | None, dry_run: bool) -> None:
    """Delete the tokens for a server, and ask its authorization server to revoke them."""
    from mcp_toolset.cli.mount import run
    from mcp_toolset.cli.output import answering, note

    with answering() as output:
        account, record = _account(server, config, caller)
        if caller is None and account.auth.per_user:
            note(f"{account.name}: {_FOR_NOBODY}; to log out one caller, use --as CALLER")
        own = "" if caller is None else f" (the caller {caller} alone)"
        if dry_run:
            outcome = "would be logged out" if run(account.is_kept) else "no tokens are kept"
        else:
            with record.failing("logout"):
                outcome = run(account.logout)
            record.note("logout", outcome)
        output.say(f"{account.name}: {outcome}{own}")


def _account(server: str, config: Path | None, caller: str | None) -> tuple[Account, LoginRecord]:
    from mcp_toolset.cli.callers import LoginRecord
    from mcp_toolset.cli.target import default_name
    from mcp_toolset.config import load_config
    from mcp_toolset.config.keys import USUAL_FILES
    from mcp_toolset.extensions.upstream_access.account import Account
    from mcp_toolset.extensions.upstream_access.server_auth import OAuth

    if "://" in server:
        if not server.startswith(("http://", "https://")):
            raise TargetError(f"{server.partition('://')[0]}: no login to such an address; give an https URL")
        if caller is not None:
            raise TargetError(
                f"--as {caller}: callers have logins where a configuration says `per_user`; give its SERVER"
            )
        return Account(default_name(server), server, OAuth()), LoginRecord({}, server)
    file = config or next((path for path in map(Path, USUAL_FILES) if path.is_file()), None)
    if file is None:
        raise TargetError(f"{server}: no configuration in this folder names it; give --config FILE, or a URL")
    hub = load_config(file)
    account = _configured(hub, server, file, caller)
    return account, LoginRecord(hub.extensions, account.name, account.user)


def _configured(hub: HubConfig, name: str, file: Path, caller: str | None) -> Account:
    from mcp_toolset.cli.callers import known_caller
    from mcp_toolset.cli.mount import run
    from mcp_toolset.config.keys import did_you_mean
    from mcp_toolset.extensions.upstream_access.account import Account
    from mcp_toolset.extensions.upstream_access.server_auth import OAuth
    from mcp_toolset.security.egress import Egress

    servers = {server.name: server for server in hub.servers}
    server = servers.get(name)
    if server is None:
        mend = did_you_mean(name, list(servers)) or f"it has {', '.join(servers) or 'no servers'}"
        raise TargetError(f"{file}: no server {name!r}; {mend}")
    if server.fault:
        raise TargetError(server.fault)
    if server.url is None:
        raise TargetError(
            f"{file}: {name!r} is a program, which needs no login; write secrets into its `env`"
        )
    said = server.extensions.get("access")
    auth = None if said is None or said.auth is None else said.auth.within(Egress(server.egress))
    if auth is None:
        raise TargetError(f'{file}: {name!r} has no `auth`; add "auth": "oauth" to its entry')
    if not isinstance(auth, OAuth):
        raise TargetError(f"{file}: {name!r} needs no login: its entry has the credentials already")
    account = Account(name, server.url, auth, server.headers)
    if caller is None:
        return account
    if not auth.per_user:
        raise TargetError(
            f"{file}: all callers share the login to {name!r}; leave out --as, or "
            'add "per_user": true to its `auth`'
        )
    return replace(account, user=known_caller(caller, hub.callers, str(file), run(account.users)).key)


async def _logged_in(
    account: Account, scopes: Sequence[str], timeout: float, *, no_browser: bool
) -> Credential:
    import anyio

    from mcp_toolset.extensions.upstream_access.account import PastedPage, loopback_page

    port = await account.port()
    try:
        with anyio.fail_after(timeout):
            if no_browser:
                return await account.login(PastedPage(port, _pasted), scopes)
            async with loopback_page(port, _open) as page:
                return await _shown(account, page, scopes)
    except TimeoutError:
        raise TargetError(
            f"{account.name}: no login within {timeout:g} s; allow more with --timeout"
        ) from None
    except OSError as fault:
        raise TargetError(
            f"{account.name}: port {port} of 127.0.0.1 cannot be used ({fault.strerror}); give another "
            "`redirect_port`, or use --no-browser"
        ) from None


async def _shown(account: Account, page: LoginPage, scopes: Sequence[str]) -> Credential:
    """Log in, and tell the browser how that has ended."""
    from mcp_toolset.extensions.upstream_access.account import LoopbackPage

    assert isinstance(page, LoopbackPage)
    try:
        found = await account.login(page, scopes)
    # Whatever it is, the browser is told, and the command tells more.
    except Exception:
        await page.show("The login has failed; the terminal says why. You can close this window.")
        raise
    await page.show(f"You are logged in to {account.name}. You can close this window.")
    return found


async def _open(url: str) -> None:
    import webbrowser

    import anyio.to_thread

    from mcp_toolset.cli.output import note

    note(f"log in with your browser; if none opens, open this address yourself: {url}")
    # Without a display Python would take a browser for terminals, in this one.
    if sys.platform != "linux" or any(os.environ.get(name) for name in _DISPLAYS):
        await anyio.to_thread.run_sync(webbrowser.open, url, abandon_on_cancel=True)


async def _pasted(url: str) -> str:
    import anyio.to_thread

    from mcp_toolset.cli.output import note

    note(f"open this address in a browser, on any machine, and log in: {url}")
    note("then paste the address that the browser ends at (its page need not load), and press Enter")
    pasted = await anyio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True)
    if not pasted.strip():
        raise TargetError("nothing was pasted; log in again")
    return pasted


async def _rows() -> list[dict[str, str]]:
    from mcp_toolset.extensions.upstream_access.account import accounts
    from mcp_toolset.upstream.secrets import blanked_url

    return [
        {"server": blanked_url(key.upstream)}
        | ({"caller": key.user} if key.user else {})
        | {"issuer": found.issuer, "state": _state(found)}
        for key, found in await accounts()
    ]


def _show_rows(rows: Sequence[dict[str, str]], output: Output) -> None:
    from mcp_toolset.cli.output import Column

    names = [name for name in ("server", "caller", "issuer", "state") if any(name in row for row in rows)]
    columns = [Column(name, prose=name == "state") for name in names]
    output.table(columns, [[row.get(name, "") for name in names] for row in rows])


def _state(credential: Credential) -> str:
    now = time.time()
    if not credential.header or (credential.has_expired(now) and not credential.refresh_token):
        return "needs login"
    if credential.refresh_token:
        return "logged in"
    left = None if credential.expires_at is None else credential.expires_at - now
    return "logged in" if left is None else f"logged in for {left / 60:.0f} minutes"
