"""`mcp-toolset explain`: what permissions and limits say of a tool and a caller, and which rule decides."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from mcp_toolset._records import replace
from mcp_toolset.cli.callers import caller_of_key
from mcp_toolset.cli.display.tables import Column
from mcp_toolset.cli.options import Reach, json_option, reach_options, target_and_words, target_command
from mcp_toolset.cli.target import parse_target
from mcp_toolset.errors import TargetError

if TYPE_CHECKING:
    from mcp_toolset.cli.display.output import Output
    from mcp_toolset.server.server import ToolsetServer
    from mcp_toolset.tools.core.identity import Identity
    from mcp_toolset.tools.view.view import ToolBinding

__all__ = ["explain_command"]

DENIED: Final = 1
_COLUMNS: Final = (
    Column("tool"),
    Column("verdict", state=True, label=False),
    Column("rule", prose=True, label=False),
)
_NO_RULE: Final = "no rule is about it"


@target_command(
    "explain",
    "TARGET [TOOL] | [TOOL] -- COMMAND…",
    "mcp-toolset explain mcp.json",
    "mcp-toolset explain mcp.json github_delete_repo --as ann --role staff",
)
@click.option(
    "--as",
    "name",
    metavar="NAME",
    help="The caller's name or key; without it a caller that is not logged in.",
)
@click.option("--role", "roles", metavar="ROLE", multiple=True, help="A role of the caller; repeatable.")
@click.option("--scope", "scopes", metavar="SCOPE", multiple=True, help="A scope of the caller; repeatable.")
@json_option
@reach_options
@click.pass_context
def explain_command(
    ctx: click.Context,
    words: Sequence[str],
    name: str | None,
    roles: Sequence[str],
    scopes: Sequence[str],
    as_json: bool,
    reach: Reach,
) -> int:
    """Say whether a caller may use TOOL, which rule of the permissions decides, and which limits apply.

    Without TOOL it shows every tool. Without a name, role or scope the caller is a client on stdio. A name
    from `auth.tokens` has the roles and scopes of the file. The exit code is 1 if TOOL is denied.
    """
    target, command, rest = target_and_words(ctx, words, more=True)
    if len(rest) > 1:
        raise click.UsageError(f"{rest[1]!r} is one word too many; explain one tool at a time", ctx)
    place = parse_target(target, command)

    from mcp_toolset.cli.display.output import answering
    from mcp_toolset.cli.mount import run_on

    reach.log()

    async def explain(mounted: ToolsetServer) -> dict[str, Any]:
        caller = _caller(mounted, name, roles, scopes)
        told = {"caller": None if caller is None else caller.subject or caller.client or "", **_file(mounted)}
        if caller is not None:
            told |= {"roles": sorted(caller.roles), "scopes": sorted(caller.scopes)}
        if not rest:
            return {**told, "tools": [_said(mounted, one, caller) for one in _tools(mounted)]}
        return {**told, **_said(mounted, _tool(mounted, rest[0]), caller)}

    with answering() as output:
        found = run_on(place, reach.mounting(), explain)
        if as_json:
            output.json(found)
        elif rest:
            _show(found, output)
        else:
            rows = [[one["tool"], one["verdict"], one["rule"] or _NO_RULE] for one in found["tools"]]
            output.table(_COLUMNS, rows)
    return DENIED if found.get("verdict") == "deny" else 0


def _caller(
    mounted: ToolsetServer, name: str | None, roles: Sequence[str], scopes: Sequence[str]
) -> Identity | None:
    """The caller that the options describe."""
    from mcp_toolset.tools.core.identity import Identity

    if name is None and not roles and not scopes:
        return None
    callers = None if mounted.configured is None else mounted.configured.config.callers
    token = None if callers is None or name is None else callers.named.get(name)
    if token is not None:
        return Identity.of(name, roles=roles or token.roles, scopes=scopes or token.scopes)
    found = caller_of_key(name or "") or Identity.of(None, name or "")
    return replace(found, roles=frozenset(roles), scopes=frozenset(scopes))


def _file(mounted: ToolsetServer) -> dict[str, Any]:
    return {} if mounted.configured is None else {"file": str(mounted.configured.config.path)}


def _tools(mounted: ToolsetServer) -> list[ToolBinding]:
    """Every tool, those included that the permissions hide."""
    from mcp_toolset.cli.mount import without_fixed

    return without_fixed(mounted.bindings())


def _tool(mounted: ToolsetServer, name: str) -> ToolBinding:
    """The tool of a public name, or of `server/tool`."""
    from mcp_toolset.tools.binding.selector import near_names

    tools = _tools(mounted)
    for binding in tools:
        if name in (
            binding.name,
            binding.asked,
            f"{binding.source}/{binding.definition.name}",
            f"{binding.source}/{binding.name}",
        ):
            return binding
    near = near_names(name, {one.name: one for one in tools})
    mend = f"did you mean {' or '.join(near)}?" if near else "explain without TOOL shows every tool"
    raise TargetError(f"there is no tool {name!r}; {mend}")


def _said(mounted: ToolsetServer, binding: ToolBinding, caller: Identity | None) -> dict[str, Any]:
    told: dict[str, Any] = {"tool": binding.name}
    if binding.source:
        told |= {"server": binding.source, "own": binding.definition.name}
    limits = [
        {"limit": one.key, "value": one.value, "place": one.place}
        for one in mounted.limits_of(binding, caller)
    ]
    policy = mounted.policy
    if policy is None:
        return {**told, "verdict": "allow", "rule": "", "looked": [], "limits": limits}
    verdict = policy.decide(binding, caller)
    looked = [
        {"place": look.section.place, "verdict": look.kind, "pattern": look.pattern or None}
        for look in policy.looks(policy.facts(binding), policy.group(caller))
    ]
    return {**told, "verdict": verdict.kind, "rule": verdict.rule, "looked": looked, "limits": limits}


def _show(found: dict[str, Any], output: Output) -> None:
    own = f" ({found['server']}/{found['own']})" if "server" in found else ""
    output.say(f"{found['tool']}{own}: {found['verdict']}")
    output.say(f"  rule: {found['rule'] or _NO_RULE}")
    for line in _facts(found):
        output.say(f"  {line}")
    if found["looked"]:
        output.say("Asked, in this order:")
    for look in found["looked"]:
        fits = "no pattern fits" if look["verdict"] is None else f"{look['verdict']}: {look['pattern']}"
        output.say(f"  {look['place']}: {fits}")
    if found["limits"] and found["verdict"] != "deny":
        output.say("Limits:")
        for one in found["limits"]:
            output.say(f"  {one['limit']} {one['value']}: {one['place']}")


def _facts(found: dict[str, Any]) -> Iterator[str]:
    if "file" in found:
        yield f"file: {found['file']}"
    if found["caller"] is None:
        yield "caller: a caller without a name (standard input, no authentication)"
        return
    yield f"caller: {found['caller'] or 'without a name'}"
    for kind in ("roles", "scopes"):
        if found[kind]:
            yield f"{kind}: {', '.join(found[kind])}"
