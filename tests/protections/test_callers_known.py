"""Rules for some callers need somebody who says who calls; a file keeps its guards beside others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.cli.commandline import CommandLine, line
from tests.protections.files import JWT, LONG, SERVER

from mcp_toolset import Identity, Rules, Toolset, ToolsetServer, load_toolset, serve, tool
from mcp_toolset.auth import StaticTokens
from mcp_toolset.errors import ConfigError, DefinitionError
from mcp_toolset.policy import Policy
from mcp_toolset.rounds import RoundContext

pytestmark = pytest.mark.needs("inbound_auth")

__all__ = ["line"]


@tool
def look() -> str:
    """Look."""
    return "looked"


RULES: dict[str, dict[str, Any]] = {
    "permissions": {"permissions": {"for": [{"roles": ["intern"], "deny": ["a/*"]}]}},
    "limits": {"limits": {"*": {"for": [{"principals": ["ci"], "rate": "1/min"}]}}},
}
SAYS = "is for some callers, and nothing says who calls; add `toolset.auth`"


def written(folder: Path, name: str = "mcp.json", **toolset: Any) -> Path:
    path = folder / name
    path.write_text(
        json.dumps({"mcpServers": {"b" if name == "b.json" else "a": SERVER}, "toolset": toolset})
    )
    return path


@pytest.mark.needs("limits")
@pytest.mark.parametrize("rules", RULES)
@pytest.mark.parametrize("over", [(), ("--transport", "http", "--port", "0")], ids=["stdio", "http"])
def test_u73_rules_for_some_callers_need_auth(line: CommandLine, rules: str, over: tuple[str, ...]) -> None:
    written(line.folder, **RULES[rules])
    checked = line.run("check", "mcp.json")
    assert checked.returncode == 1 and SAYS in checked.stderr
    served = line.here("serve", "mcp.json", *over)
    assert served.returncode == 1 and SAYS in served.stderr


@pytest.mark.needs("limits")
def test_u73_limits_of_an_entry_for_some_callers_need_auth(line: CommandLine) -> None:
    line.write("mcp.json", json.dumps({"mcpServers": {"a": {**SERVER, **RULES["limits"]}}}))
    served = line.here("serve", "mcp.json")
    assert served.returncode == 1 and SAYS in served.stderr
    assert "mcpServers.a.limits" in served.stderr


def test_u73_serve_in_python_refuses_them_too(tmp_path: Path) -> None:
    path = written(tmp_path, **RULES["permissions"])
    with pytest.raises(ConfigError, match="nothing says who calls"):
        serve(str(path))
    with pytest.raises(ConfigError, match="nothing says who calls"):
        ToolsetServer(load_toolset(path)).http_app()
    known = ToolsetServer(load_toolset(path), auth=StaticTokens({"ci": LONG}))
    assert known.http_app()


def test_u73_a_reload_that_gains_them_changes_nothing(tmp_path: Path) -> None:
    path = written(tmp_path)

    async def reloaded() -> None:
        server = ToolsetServer(load_toolset(path))
        server.http_app()
        with anyio.fail_after(30):
            async with server:
                written(tmp_path, **RULES["permissions"])
                with pytest.raises(ConfigError, match="nothing says who calls"):
                    await server.reload()
                assert server.policy is None
                auth = {"tokens": {"ci": {"token": LONG, "roles": ["intern"]}}}
                written(tmp_path, auth=auth, **RULES["permissions"])
                await server.reload()
                assert server.policy is not None and server.auth is not None

    anyio.run(reloaded)


def test_u73_options_do_not_replace_the_auth_of_a_file(line: CommandLine) -> None:
    written(line.folder, auth={"jwt": JWT, "required_scopes": ["mcp"]})
    http = ("--transport", "http", "--port", "0", "--auth-token-env", "CI_TOKEN")
    served = line.run("serve", "mcp.json", *http, env={"CI_TOKEN": LONG})
    assert served.returncode == 2 and "mcp.json has `auth`, which the options" in served.stderr


@pytest.mark.parametrize("words", [("search",), ("pin", "--accept"), ("explain",), ("call",)])
def test_u73_a_file_beside_a_command_is_not_left_out(line: CommandLine, words: tuple[str, ...]) -> None:
    written(line.folder)
    done = line.here(*words, "mcp.json", "--", "some-program")
    assert done.returncode == 2
    assert "mcp.json and a command after -- are two targets" in done.stderr


@pytest.mark.needs("audit", "journal")
@pytest.mark.parametrize(
    "key, value", [("auth", {"jwt": JWT}), ("audit", "audit.jsonl"), ("journal", {"path": "calls.sqlite3"})]
)
def test_u73_the_guards_of_a_second_file_are_not_left_out(tmp_path: Path, key: str, value: Any) -> None:
    first, second = written(tmp_path, "a.json"), written(tmp_path, "b.json", **{key: value})
    ToolsetServer(Toolset(load_toolset(second), load_toolset(first)))
    with pytest.raises(DefinitionError, match=rf"b\.json: toolset\.{key} would have no effect beside"):
        ToolsetServer(Toolset(load_toolset(first), load_toolset(second)))


def test_u73_a_reload_whose_lock_is_not_there_changes_nothing(tmp_path: Path) -> None:
    path = written(tmp_path)

    async def reloaded() -> None:
        server = ToolsetServer(load_toolset(path))
        with anyio.fail_after(30):
            async with server:
                written(tmp_path, lock="gone.lock.json", permissions={"allow": ["*"]})
                with pytest.raises(ConfigError, match="so nothing is pinned; make it with `mcp-toolset pin"):
                    await server.reload()
                assert server.policy is None

    anyio.run(reloaded)


@pytest.mark.needs("journal", "limits")
def test_u73_check_warns_of_what_applies_to_nobody(line: CommandLine) -> None:
    auth = {"tokens": {"ci": {"token": LONG, "roles": ["robot"]}}}
    rules = {"for": [{"roles": ["intern"], "deny": ["a/*"]}]}
    whole = {"mcpServers": {"a": {**SERVER, "journal": {"destroy": "once"}}}}
    line.write("mcp.json", json.dumps({**whole, "toolset": {"auth": auth, "permissions": rules}}))
    checked = line.run("check", "mcp.json", "--strict")
    assert checked.returncode == 1
    told = checked.stdout + checked.stderr
    assert "toolset.permissions.for[0].roles[0]: no token has it, so this applies to nobody" in told
    assert "mcpServers.a.journal: has no effect without `journal`" in told


HTTP = ("--transport", "http", "--port", "0", "--auth-token-env")


@pytest.mark.needs("limits")
@pytest.mark.parametrize(
    "key, callers, says",
    [
        ("permissions", {"principals": ["CI"]}, "principals[0]: no token has it; did you mean `ci`?"),
        ("permissions", {"roles": ["intern"]}, "roles[0]: no token has it, so this applies to nobody"),
        ("permissions", {"scopes": ["write"]}, "scopes[0]: no token has it, so this applies to nobody"),
        ("limits", {"principals": [["Ci", None, None]]}, "no token has it, so this applies to nobody"),
        ("limits of an entry", {"roles": ["intern"]}, "no token has it, so this applies to nobody"),
    ],
)
def test_u73_rules_for_callers_without_a_token_of_the_options_are_named(
    line: CommandLine, key: str, callers: dict[str, Any], says: str
) -> None:
    some = {"for": [{**callers, **({"deny": ["a/*"]} if key == "permissions" else {"rate": "1/min"})}]}
    limits = {"limits": {"*": some}}
    entry = limits if key == "limits of an entry" else {}
    section = {"permissions": some} if key == "permissions" else {} if entry else limits
    # What no option can serve ends the command after the warning.
    whole = {"mcpServers": {"a": {**SERVER, **entry}}, "toolset": section}
    line.write("mcp.json", json.dumps(whole))
    served = line.run(
        "serve", "mcp.json", *HTTP, "ci=CI_TOKEN", "--host", "no.such.host.invalid", env={"CI_TOKEN": LONG}
    )
    assert served.returncode != 0 and says in served.stderr


def test_u73_check_names_a_key_of_a_caller_that_no_token_has(line: CommandLine) -> None:
    rules = {"for": [{"principals": [[None, None, "ci"]], "deny": ["a/*"]}]}
    written(line.folder, auth={"tokens": {"ci": LONG}}, permissions=rules)
    checked = line.run("check", "mcp.json", "--strict")
    assert checked.returncode == 1
    assert "for[0].principals[0]: no token has it" in checked.stdout + checked.stderr


@pytest.mark.needs("limits")
def test_u73_check_names_callers_of_an_entrys_limits(line: CommandLine) -> None:
    limits = {"*": {"for": [{"roles": ["Robot"], "rate": "1/min"}]}}
    auth = {"tokens": {"ci": {"token": LONG, "roles": ["robot"]}}}
    whole = {"mcpServers": {"a": {**SERVER, "limits": limits}}, "toolset": {"auth": auth}}
    line.write("mcp.json", json.dumps(whole))
    checked = line.run("check", "mcp.json")
    assert checked.returncode == 1 and "did you mean `robot`?" in checked.stdout + checked.stderr


def test_u73_an_empty_scope_is_not_required(line: CommandLine) -> None:
    written(line.folder)
    served = line.run("serve", "mcp.json", *HTTP, "CI_TOKEN", "--required-scope", "", env={"CI_TOKEN": LONG})
    assert served.returncode == 2 and "--required-scope is empty" in served.stderr


@pytest.mark.needs("audit")
def test_u73_an_option_does_not_replace_the_audit_log_of_a_file(line: CommandLine) -> None:
    written(line.folder, audit={"path": "a.jsonl", "key": LONG})
    served = line.here("serve", "mcp.json", "--audit", "b.jsonl")
    assert served.returncode == 2 and "mcp.json has `audit`, which --audit would replace" in served.stderr


def test_u73_check_and_serve_name_a_server_that_the_lock_file_does_not_pin(line: CommandLine) -> None:
    written(line.folder)
    assert line.run("pin", "mcp.json").returncode == 0
    line.write("mcp.json", json.dumps({"mcpServers": {"renamed": SERVER}}))
    says = "mcp.lock.json has no pins of the server 'renamed'"
    checked = line.run("check", "mcp.json", "--strict")
    assert checked.returncode == 1 and says in checked.stdout + checked.stderr
    assert says in line.here("serve", "mcp.json").stderr


def test_u73_a_bundle_is_not_made_without_the_lock_file_that_is_named(line: CommandLine) -> None:
    line.write(
        "mcp.json",
        json.dumps({"mcpServers": {"a": {"command": "some-program"}}, "toolset": {"lock": "p.json"}}),
    )
    packed = line.run("pack", "mcp.json", "--name", "a", "--author", "me")
    assert packed.returncode == 1 and "so nothing is pinned" in packed.stderr


@pytest.mark.needs("journal")
def test_u73_check_warns_of_what_has_no_effect_in_an_entry(line: CommandLine) -> None:
    line.write(
        "mcp.json", json.dumps({"mcpServers": {"a": {**SERVER, "journal": True, "sandboxEnabled": True}}})
    )
    checked = line.run("check", "mcp.json", "--strict")
    assert checked.returncode == 1
    told = checked.stdout + checked.stderr
    assert "mcpServers.a.journal: has no effect without `journal`" in told
    line.write("mcp.json", json.dumps({"mcpServers": {"a": {**SERVER, "idempotency": "_meta.key"}}}))
    only = line.run("check", "mcp.json", "--strict")
    assert (
        only.returncode == 1
        and "mcpServers.a.idempotency: has no effect without" in only.stdout + only.stderr
    )
    assert "mcpServers.a.sandboxEnabled: is of another client: here the server runs without a sandbox" in told


def adopted(line: CommandLine, client: str, file: str, text: str) -> dict[str, Any]:
    (line.folder / file).parent.mkdir(parents=True, exist_ok=True)
    (line.folder / file).write_text(text)
    home = str(line.folder)
    done = line.run(
        "install",
        client,
        "--adopt",
        "--yes",
        "--json",
        env={"HOME": home, "XDG_CONFIG_HOME": f"{home}/.config"},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_u73_a_server_that_its_client_protects_is_not_adopted(line: CommandLine) -> None:
    settings = {"mcpServers": {"a": SERVER, "b": SERVER}, "mcp": {"excluded": ["b"]}}
    told = adopted(line, "gemini", ".gemini/settings.json", json.dumps(settings))
    assert told["left"] == {"b": "the client has switched it off, in mcp.excluded"}
    boxed = {"servers": {"a": SERVER, "b": {**SERVER, "sandboxEnabled": True}}}
    told = adopted(line, "vscode", ".vscode/mcp.json", json.dumps(boxed))
    assert told["left"] == {"b": "the client runs it in a sandbox"}


OFF_ELSEWHERE: dict[str, tuple[str, str, Any]] = {
    "the project's settings": (".claude/settings.json", "disabledMcpjsonServers", ["b"]),
    "the user's settings for the project": (".claude/settings.local.json", "disabledMcpjsonServers", ["b"]),
    "a denied server": (".claude/settings.json", "deniedMcpServers", [{"serverName": "b"}]),
    "what the client has noted for the folder": (".claude.json", "disabledMcpServers", ["b"]),
    "settings of another scope": (".gemini/settings.json", "mcp", {"excluded": ["b"]}),
}


@pytest.mark.parametrize("name", OFF_ELSEWHERE)
def test_u73_a_server_that_another_file_of_its_client_switches_off_is_not_adopted(
    name: str, line: CommandLine
) -> None:
    file, key, value = OFF_ELSEWHERE[name]
    home, client, own = line.folder / "home", "claude-code", ".mcp.json"
    if file.startswith(".gemini"):
        client, own = "gemini", ".gemini/settings.json"
    there = home / file if file in (".claude.json", ".gemini/settings.json") else line.folder / file
    said = {key: value}
    if file == ".claude.json":
        said = {"projects": {str(line.folder.resolve()): said}}
    for path, text in ((there, said), (line.folder / own, {"mcpServers": {"a": SERVER, "b": SERVER}})):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(text))
    env = {"HOME": str(home), "XDG_CONFIG_HOME": f"{home}/.config"}
    listed = json.loads(line.run("list", "--clients", "--json", env=env).stdout)
    assert {one["server"]: one["note"] for one in listed} == {"a": "", "b": "disabled"}
    done = line.run("install", client, "--adopt", "--yes", "--json", "--scope", "project", env=env)
    assert done.returncode == 0, done.stderr
    left = json.loads(done.stdout)["left"]
    assert [*left] == ["b"] and "the client has switched it off, in " in left["b"] and key in left["b"]


def test_u73_a_server_that_claude_code_switches_off_in_its_settings_is_a_warning(line: CommandLine) -> None:
    (line.folder / ".claude").mkdir()
    line.write(".claude/settings.local.json", json.dumps({"disabledMcpjsonServers": ["b", "c"]}))
    off = {"c": {**SERVER, "disabled": True}}
    line.write(".mcp.json", json.dumps({"mcpServers": {"a": SERVER, "b": SERVER, **off}}))
    says = "mcpServers.b: is switched off there, in disabledMcpjsonServers of .claude/settings.local.json"
    checked = line.run("check", ".mcp.json", "--strict")
    assert checked.returncode == 1 and checked.stdout.count("is switched off there") == 1
    assert says in checked.stdout and says in line.here("serve", ".mcp.json").stderr
    line.write("mcp.json", json.dumps({"mcpServers": {"b": SERVER}}))
    assert "switched off" not in line.here("serve", "mcp.json").stderr


def test_u73_the_tools_that_goose_takes_are_those_that_are_adopted(line: CommandLine) -> None:
    entry = {
        "type": "stdio",
        "enabled": True,
        "cmd": SERVER["command"],
        "args": SERVER["args"],
        "timeout": 300,
    }
    some = {"a": {**entry, "available_tools": ["look"]}, "b": {**entry, "available_tools": []}}
    told = adopted(line, "goose", ".config/goose/config.yaml", json.dumps({"extensions": some}))
    servers = json.loads(Path(told["file"]).read_text())["mcpServers"]
    assert servers["a"]["includeTools"] == ["look"] and "includeTools" not in servers["b"]
    assert not any("available_tools" in one for one in servers.values())


FOR_NOBODY: dict[str, dict[str, Any]] = {
    "an allow for a name that no token has": {"principals": ["bob"], "allow": ["a/look"]},
    "a role of one token and the name of another": {
        "roles": ["intern"],
        "principals": ["ann"],
        "deny": ["a/*"],
    },
    "a role in the place of a name": {"principals": ["intern"], "allow": ["a/look"]},
    "a role of one and a scope of another": {"roles": ["intern"], "scopes": ["mcp"], "ask": ["a/*"]},
}
_HOLDERS = {
    "tokens": {
        "ci": {"token": LONG, "roles": ["intern"]},
        "ann": {"token": LONG + "2", "roles": ["boss"], "scopes": ["mcp"]},
    }
}


@pytest.mark.needs("limits")
@pytest.mark.parametrize("name", FOR_NOBODY)
def test_u73_a_section_for_callers_that_no_token_is_is_a_warning(name: str, line: CommandLine) -> None:
    limit = {key: value for key, value in FOR_NOBODY[name].items() if key[0] in "prs"} | {"calls": 1}
    rules: dict[str, Any] = {"permissions": {"for": [FOR_NOBODY[name]]}, "limits": {"*": {"for": [limit]}}}
    for key in rules:
        written(line.folder, auth=_HOLDERS, **{key: rules[key]})
        checked = line.run("check", "mcp.json", "--strict")
        assert checked.returncode == 1 and "applies to nobody" in checked.stdout, checked.stdout


def test_u73_a_section_that_some_token_is_for_is_no_warning(line: CommandLine) -> None:
    later = {"roles": ["admin"], "allow": ["*"]}  # gives callers to come more, and takes nothing away
    some = {"roles": ["intern", "boss"], "principals": ["a*", "c*"], "deny": ["a/look"]}
    written(line.folder, auth=_HOLDERS, permissions={"for": [some, later]})
    assert line.run("check", "mcp.json", "--strict").returncode == 0


@pytest.mark.parametrize(
    "wider",
    [
        {"principals": ["c*"], "allow": ["a/*"]},
        {"roles": ["intern"], "allow": ["a/l*"]},
        {"roles": ["intern", "boss"], "principals": ["ci", "ann"], "allow": ["*"]},
    ],
)
def test_u73_a_section_behind_a_wider_one_for_all_of_its_tokens_is_a_warning(
    wider: dict[str, Any], line: CommandLine
) -> None:
    narrow = {"roles": ["intern"], "principals": ["ci"], "deny": ["a/look"]}
    written(line.folder, auth=_HOLDERS, permissions={"for": [wider, narrow]})
    checked = line.run("check", "mcp.json", "--strict")
    assert checked.returncode == 1 and "never applies, as `for[0].allow` is asked before it" in (
        checked.stdout + checked.stderr
    )
    written(line.folder, auth=_HOLDERS, permissions={"for": [narrow, wider]})
    assert line.run("check", "mcp.json", "--strict").returncode == 0


@pytest.mark.needs("limits")
def test_u73_limits_that_wider_ones_before_them_hide_are_refused(line: CommandLine) -> None:
    from mcp_toolset.policy import Limits

    wide, narrow = {"principals": ["*"], "calls": 100, "rate": "9/min"}, {"roles": ["intern"], "calls": 1}
    written(line.folder, auth=_HOLDERS, limits={"*": {"for": [wide, narrow]}})
    checked = line.run("check", "mcp.json")
    says = "toolset.limits[*].for[1].calls: never applies, as `for[0]` is for the same callers and has one"
    assert checked.returncode == 1 and says in checked.stderr.replace('"', ""), checked.stderr
    with pytest.raises(DefinitionError, match="the calls of number 1 never applies"):
        Limits(callers=[Limits(calls=9, roles=["a", "b"]), Limits(calls=1, roles=["a"])])
    written(line.folder, auth=_HOLDERS, limits={"*": {"for": [narrow, wide]}})
    assert line.run("check", "mcp.json", "--strict").returncode == 0


@pytest.mark.needs("limits")
def test_u73_limits_behind_wider_ones_for_all_of_their_tokens_are_a_warning(line: CommandLine) -> None:
    of_interns = {**_HOLDERS["tokens"], "bob": {"token": LONG + "3", "roles": ["intern"]}}
    wide, narrow = {"roles": ["intern"], "calls": 100}, {"principals": ["ci"], "calls": 1}
    written(line.folder, auth={"tokens": of_interns}, limits={"*": {"for": [wide, narrow]}})
    checked = line.run("check", "mcp.json", "--strict")
    says = "for[1].calls: never applies, as `for[0]` is asked before it and has one: every token"
    assert checked.returncode == 1 and says in checked.stdout, checked.stdout
    for order in ([narrow, wide], [{"roles": ["boss"], "calls": 100}, narrow]):
        written(line.folder, auth={"tokens": of_interns}, limits={"*": {"for": order}})
        assert line.run("check", "mcp.json", "--strict").returncode == 0
    apart = {"a/look": {"for": [wide]}, "*": {"for": [narrow]}}
    written(line.folder, auth={"tokens": of_interns}, limits=apart)
    assert line.run("check", "mcp.json", "--strict").returncode == 0


def test_u73_a_rule_for_everybody_that_each_token_is_allowed_past_is_a_warning(line: CommandLine) -> None:
    past = [{"roles": [role], "allow": ["*"]} for role in ("intern", "boss")]
    says = "deny[0]: never applies, as a section in `for` is asked before it for every token and has `*`"
    written(line.folder, auth=_HOLDERS, permissions={"deny": ["a/look"], "for": past})
    checked = line.run("check", "mcp.json", "--strict")
    assert checked.returncode == 1 and f"toolset.permissions.{says}" in checked.stdout, checked.stdout
    of_entry = {"mcpServers": {"a": {**SERVER, "permissions": {"deny": ["look"]}}}}
    whole = {**of_entry, "toolset": {"auth": _HOLDERS, "permissions": {"for": past}}}
    line.write("mcp.json", json.dumps(whole))
    checked = line.run("check", "mcp.json", "--strict")
    assert checked.returncode == 1 and f"mcpServers.a.permissions.{says}" in checked.stdout, checked.stdout
    for some in (past[:1], [{**one, "deny": ["a/look"]} for one in past]):
        written(line.folder, auth=_HOLDERS, permissions={"deny": ["a/look"], "for": some})
        assert line.run("check", "mcp.json", "--strict").returncode == 0
    with pytest.raises(DefinitionError, match=r"policy.deny: 'look' never applies"):
        Policy(deny=["look"], principals={"*": Policy(allow=["*"])})


@pytest.mark.needs("approvals", "limits")
@pytest.mark.anyio
@pytest.mark.parametrize(
    "guard",
    [
        lambda of: of.PolicyGuard(Policy(roles={"x": Policy(deny=["look"])})),
        lambda of: of.CallLimits({"*": of.Limits(calls=9, roles=["x"])}),
    ],
    ids=["policy", "limits"],
)
async def test_u73_rules_for_some_callers_of_a_loop_that_names_nobody_are_a_warning(
    guard: Any, caplog: pytest.LogCaptureFixture
) -> None:
    from mcp_toolset import policy

    rules, tools = Rules(guards=[guard(policy)]), Toolset(look)
    known = RoundContext(principal=Identity.of("ann", roles=["y"]))
    await tools.execute("look", {}, known, rules=rules)
    assert "match nobody here" not in caplog.text
    for _ in range(2):
        await tools.execute("look", {}, rules=rules)
    assert caplog.text.count("match nobody here: give RoundContext(principal=Identity.of(…))") == 1


RULES_OF_A_FILE: dict[str, dict[str, Any]] = {
    "permissions": {"permissions": {"deny": ["a/look"]}},
    "limits": {"limits": {"*": {"rate": "1/min"}}},
    "audit": {"audit": "calls.jsonl"},
    "journal": {"journal": True},
}


@pytest.mark.needs("audit", "journal", "limits")
@pytest.mark.anyio
@pytest.mark.parametrize("rules", RULES_OF_A_FILE)
async def test_u73_rules_of_a_file_are_not_left_out_where_no_server_applies_them(
    rules: str, tmp_path: Path
) -> None:
    loaded = load_toolset(written(tmp_path, **RULES_OF_A_FILE[rules]))
    says = f"mcp.json has {rules}, which hold where a server serves its tools"
    for toolset in (loaded, loaded.prefixed("x"), Toolset(look, loaded)):
        with pytest.raises(DefinitionError, match=says):
            toolset.view()
        with pytest.raises(DefinitionError, match=says):
            await toolset.execute("a_look", {})
    load_toolset(written(tmp_path)).view()


@pytest.mark.needs("audit", "journal", "limits")
@pytest.mark.anyio
async def test_u73_settings_for_a_whole_server_are_not_attached_to_one_that_is_open(tmp_path: Path) -> None:
    async with ToolsetServer(Toolset(look)) as server:
        for key in ("audit", "journal"):
            loaded = load_toolset(written(tmp_path, **RULES_OF_A_FILE[key]))
            with pytest.raises(
                DefinitionError, match=f"toolset.{key} would have no effect: it is for the whole"
            ):
                await server.attach(loaded)
        handle = await server.attach(Toolset(name="later"))
        with pytest.raises(DefinitionError, match="toolset.audit would have no effect"):
            await server.replace(handle, load_toolset(written(tmp_path, **RULES_OF_A_FILE["audit"])))
