"""The options of `mcp-toolset search` for what a search has learnt from use: show it, or forget it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mcp_toolset._index import marked
from mcp_toolset.cli.options import agreed, refuse_given, target_and_words
from mcp_toolset.tools.screen import counted

if TYPE_CHECKING:
    from mcp_toolset.config.models import HubConfig


def SEARCH_OPTION(function: Callable[..., Any]) -> Callable[..., Any]:
    """`--learned` and `--forget`, with which `search` does this instead of searching."""

    @click.option("--learned", is_flag=True, help="Without QUERY: show how much search has learnt of FILE.")
    @click.option("--forget", is_flag=True, help="Without QUERY: delete what search has learnt of FILE.")
    @click.option(
        "--as", "caller", metavar="NAME", help="With --forget: what one caller has taught, by name or key."
    )
    @click.option("--yes", is_flag=True, help="With --forget: delete it without asking.")
    @wraps(function)
    def searched(*args: Any, learned: bool, forget: bool, caller: str | None, yes: bool, **given: Any) -> Any:
        ctx = click.get_current_context()
        if not forget:
            refuse_given(ctx, ("caller", "yes"), "is for --forget; add it, or leave this out")
        if not learned and not forget:
            return function(*args, **given)
        if learned and forget:
            raise click.UsageError("--forget deletes what --learned shows; leave one of them out", ctx)
        _answer(ctx, given["words"], given["as_json"], forget=forget, name=caller, yes=yes)

    return searched


def _answer(
    ctx: click.Context, words: Sequence[str], as_json: bool, *, forget: bool, name: str | None, yes: bool
) -> None:
    from mcp_toolset.cli.output import answering, log_to_stderr
    from mcp_toolset.cli.target import configuration_file
    from mcp_toolset.config import load_config
    from mcp_toolset.extensions.learning.extension import SearchLearning
    from mcp_toolset.extensions.learning.settings import LearningSettings, learning_path
    from mcp_toolset.security.vault import Vault

    of_query = ("limit", "server", "header", "token_env", "timeout", *marked("view_option"))
    refuse_given(ctx, of_query, "is for a QUERY; leave it out")
    file = configuration_file(target_and_words(ctx, words)[0] or "", "--forget" if forget else "--learned")
    log_to_stderr(0, quiet=False)
    config = load_config(Path(file), vault=Vault(), lookups="skip")
    stated: LearningSettings = config.extensions.get("learning") or LearningSettings()
    path, tenant = stated.path or learning_path(str(config.path)), _tenant(config, name)
    known = SearchLearning.stated(stated, str(config.path)) if path.exists() else None
    if known is not None and forget:
        if not agreed(f"Forget what {name or 'every caller'} has taught?", yes=yes, as_json=as_json):
            return
        known.forget(tenant)
    callers, pairs = (0, 0) if known is None else known.learnt
    on = bool(config.extensions.get("learning"))
    with answering(as_json=as_json) as output:
        if as_json:
            output.json({"file": str(path), "on": on, "callers": callers, "pairs": pairs})
        elif known is not None and forget:
            output.say(f"forgotten: {name or 'every caller'}; {path}")
        elif not pairs:
            off = "" if on else '; to switch it on, write `"learning": true` into `toolset`'
            output.say(f"nothing is learnt yet{off}")
        else:
            told = f"{counted(callers, 'caller')}, {counted(pairs, 'pair')} of a word and a tool"
            output.say(f"{told}; {path}")


def _tenant(config: HubConfig, name: str | None) -> str | None:
    from mcp_toolset.cli.callers import known_caller

    return None if name is None else known_caller(name, config.callers, str(config.path), ()).key
