"""A rule of a program applies, or the program does not start: mistakes of places, names, forms and types."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest
from tests.cli.commandline import CommandLine, line
from tests.protections.programs import ARGUMENTS, DECLARATIONS, DECORATORS, FORMS, NAMES, NOWHERE, POLICIES
from tests.protections.test_silently_off import Row, named, raises

from mcp_toolset import HookSet, Reject, Rules, ToolCall, Toolset, ToolsetServer, tool
from mcp_toolset.errors import UnknownToolError

pytestmark = pytest.mark.needs("*")


__all__ = ["line"]


@tool
def destroy() -> str:
    """Destroy everything."""
    return "destroyed"


def test_u75_every_mistake_of_programs_has_a_name_of_its_own() -> None:
    every = [*DECORATORS, *DECLARATIONS, *POLICIES, *NOWHERE, *NAMES, *FORMS, *ARGUMENTS]
    names = [row[0] for row in every]
    assert len(names) == len({*names}) >= 300


@named(NOWHERE)
def test_u75_a_rule_at_a_place_where_nothing_applies_it_raises(row: Row) -> None:
    raises(row)


@named(NAMES)
def test_u73_a_name_or_a_pattern_of_a_program_that_fits_nothing_raises(row: Row) -> None:
    raises(row)


@named(ARGUMENTS)
def test_u75_an_argument_that_would_protect_nothing_raises(row: Row) -> None:
    raises(row)


@named(FORMS)
def test_u75_a_rule_of_another_form_than_its_place_takes_raises(row: Row) -> None:
    raises(row)


TOOLS = """
from mcp_toolset import *
from mcp_toolset.arguments import *
from mcp_toolset.errors import *
from mcp_toolset.grants import *
from mcp_toolset.rounds import *
from mcp_toolset.shared import *
from mcp_toolset.audit import *
from mcp_toolset.auth import *
from mcp_toolset.journal import *
from mcp_toolset.middleware import *
from mcp_toolset.policy import *

async def _layer(call, context, next):
    return await next()

@tool
def destroy() -> str:
    "Destroy everything."
    return "destroyed"

async def no(call):
    return Reject("no")

_all = Toolset(destroy)
def deciding():
    made = HookSet()
    made.execution("destroy")(no)
    return made
"""

IDLE = {
    "by_tool": "Limits",
    "around": "middleware",
    "rate": "RateLimit",
    "guarding": "JournalGuard",
    "auth": "StaticTokens",
    "known": "Authenticator",
    "audit": "AuditLog",
    "hooks": "HookSet",
    "rules": "Rules",
    "policy": "Policy",
    "guard": "PolicyGuard",
    "limits": "CallLimits",
    "inner": "Policy",
    "listed": "PolicyGuard",
    "pair": "Policy",
    "deep": "HookSet",
}
VALUES = {
    "by_tool": "{'destroy': Limits(calls=1)}",
    "around": "tool_middleware(_layer)",
    "rate": "RateLimit(1, 60)",
    "guarding": "JournalGuard('j')",
    "auth": "StaticTokens({'ann': 'x' * 20})",
    "known": "Authenticator([StaticTokens({'ann': 'x' * 20})])",
    "audit": "AuditLog('a.jsonl')",
    "hooks": "deciding()",
    "rules": "Rules(hooks=deciding())",
    "policy": "Policy(deny=['destroy'])",
    "guard": "PolicyGuard(Policy(deny=['destroy']))",
    "limits": "CallLimits({'*': Limits(rate='1/min')})",
    "inner": "Policy(ask=['destroy'])",
    "listed": "[PolicyGuard(Policy(deny=['destroy']))]",
    "pair": "(Policy(deny=['destroy']), 5)",
    "deep": "{'rules': [deciding()]}",
}


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("served", ["app.py", "app.py:tools"])
def test_u75_a_program_with_a_rule_that_nothing_applies_is_not_served(
    name: str, served: str, line: CommandLine
) -> None:
    line.write("app.py", f"{TOOLS}\n{name} = {VALUES[name]}\ntools = _all\n")
    for command in ("serve", "list"):
        ran = line.here(command, served)
        assert ran.returncode != 0
        assert f"app.py: {name} is a {IDLE[name]} that nothing applies" in ran.stderr.replace(":tools", "")


TAKEN = {
    "given to a server": "hooks = deciding()\nserver = ToolsetServer(_all, hooks=hooks)",
    "merged": "hooks = deciding()\nserver = ToolsetServer(_all, rules=[hooks])",
    "in rules": "hooks = deciding()\nrules = Rules(hooks=hooks)\nserver = ToolsetServer(_all, rules=rules)",
    "carried": "hooks = deciding()\ntools = _all.carrying(hooks)",
    "in a guard": "policy = Policy(ask=['*'])\nguard = PolicyGuard(policy)\ntools = _all.carrying(guard)",
    "in a policy": "a = Policy(deny=['destroy'])\nb = Policy(roles={'x': a}, ask=['destroy'])\n"
    "server = ToolsetServer(_all, policy=b)",
    "a later hook of a copy": "hooks = HookSet()\nserver = ToolsetServer(_all, rules=[hooks])\n"
    "hooks.execution('destroy')(no)",
    "a server under a name of its own": "tools = _all\nbridge = ToolsetServer(tools, hooks=deciding())\n"
    "server = bridge",
    "a server beside its toolset": "tools = _all\nserver = ToolsetServer(tools, hooks=deciding())",
    "for another use": "_hooks = deciding()\ntools = _all.carrying(no)",
    "an empty one": "hooks = HookSet()\npolicy = Policy()\ntools = _all.carrying(no)",
}


@pytest.mark.parametrize("name", TAKEN)
def test_u75_the_rules_of_a_program_apply_where_the_command_line_serves_it(
    name: str, line: CommandLine
) -> None:
    line.write("app.py", f"{TOOLS}\n{TAKEN[name]}\n")
    ran = line.run("call", "app.py", "destroy")
    told = ran.stdout + ran.stderr
    assert "destroyed" not in told and ("Rejected: no" in told or "needs an approval" in told), told


PASSED_OVER = {
    "a server under a name of its own": "tools = _all\nbridge = ToolsetServer(tools, hooks=deciding())",
    "a server beside tools": "bridge = ToolsetServer(_all, hooks=deciding())",
    "a toolset with rules": "tools = _all\nbridge = tools.carrying(deciding())",
    "a toolset with rules beside tools": "bridge = _all.carrying(deciding())",
    "a toolset that is off": "tools = _all\nbridge = tools.off('destroy')",
    "a toolset behind search": "tools = _all\nbridge = tools.deferred()",
    "a toolset that is filtered": "tools = _all\nbridge = tools.filtered(include=[])",
}


@pytest.mark.parametrize("name", PASSED_OVER)
def test_u75_a_copy_with_rules_is_not_passed_over(name: str, line: CommandLine) -> None:
    line.write("app.py", f"{TOOLS}\n{PASSED_OVER[name]}\n")
    ran = line.run("call", "app.py", "destroy")
    assert ran.returncode != 0 and "name one as app.py:bridge" in ran.stderr


UNRUN = {
    "serve in a function that nothing runs": "def main():\n    serve(tools, policy=Policy(deny=['destroy']))",
    "a server in the main block": "import asyncio\nif __name__ == '__main__':\n"
    "    asyncio.run(ToolsetServer(tools, policy=Policy(deny=['destroy'])).run_stdio())",
    "an application": "app = ToolsetServer(tools, hooks=deciding()).http_app()",
    "serve in a function of another module": "from other import main\n"
    "if __name__ == '__main__':\n    main(tools)",
}


@pytest.mark.parametrize("name", UNRUN)
def test_u75_tools_are_not_served_without_the_rules_of_a_line_that_is_not_run(
    name: str, line: CommandLine
) -> None:
    line.write("other.py", f"{TOOLS}\ndef main(tools):\n    serve(tools, policy=Policy(deny=['destroy']))\n")
    line.write("app.py", f"{TOOLS}\ntools = _all\n{UNRUN[name]}\n")
    ran = line.run("call", "app.py", "destroy")
    assert ran.returncode != 0 and "whose rules would not apply, as that line is not run here" in ran.stderr


def test_u75_a_named_toolset_is_not_served_without_the_rules_of_its_serve(line: CommandLine) -> None:
    block = "if __name__ == '__main__':\n    serve(tools, policy=Policy(deny=['destroy']))"
    line.write("app.py", f"{TOOLS}\ntools = _all\nother = Toolset(destroy)\n{block}\n")
    for target in ("app:tools", "app.py:tools"):
        ran = line.run("call", target, "destroy")
        assert ran.returncode != 0 and "serve(…, policy=…), whose rules would not apply" in ran.stderr
    assert "destroyed" in line.run("call", "app.py:other", "destroy").stdout


NARROWED = {
    "a verb": "if __name__ == '__main__':\n    serve(tools.off('destroy'))",
    "a verb in a list": "if __name__ == '__main__':\n    serve(Toolset(tools.filtered(exclude=['destroy'])))",
    "a verb by keyword": "def main():\n    serve(target=tools.carrying(deciding()))",
    "a name of a function": "def main():\n    safe = tools + no\n    safe = safe.off()\n    serve(safe)",
    "a name of the main block": "if __name__ == '__main__':\n    tools = tools.deferred()\n    serve(tools)",
    "a function": "def made():\n    return tools.off('destroy')\ndef main():\n    serve(made())",
    "a server": "def main():\n    server = ToolsetServer(tools, hooks=deciding())\n    serve(server)",
    "a server of the main block": "import asyncio\nif __name__ == '__main__':\n"
    "    asyncio.run(ToolsetServer(tools.off('destroy')).run_stdio())",
    "a name of the program": "safe = tools.off('destroy')\ndef main():\n    serve(safe)",
    "a server of the program": "server = ToolsetServer(tools, policy=Policy(deny=['destroy']))\n"
    "if __name__ == '__main__':\n    serve(server)",
    "another name of serve": "from mcp_toolset import serve as start\ndef main():\n    start(tools.off())",
    "rules that are spread": "options = {'access': print}\ndef main():\n    serve(tools, **options)",
    "rules of a dict": "def main():\n    serve(tools, **dict(policy=Policy(deny=['destroy'])))",
    "a toolset around": "def main():\n    serve(Toolset(tools), hooks=deciding())",
}
WIDE = {
    "verbs that leave tools as they are": "def main():\n    serve(tools.prefixed('x').tagged('a'))",
    "a verb of another toolset": "def main():\n    serve(Toolset(tools, Toolset(no).off()))",
    "the same name in another function": "def main():\n    serve(tools)\n"
    "def other():\n    tools = Toolset(destroy).off('destroy')",
    "a toolset that is made in steps": "tools = Toolset(Toolset(destroy).prefixed('x').off(), tools)\n"
    "def main():\n    serve(tools)",
    "a server of a test": "def test():\n    return ToolsetServer(tools, hooks=deciding())",
    "options without rules": "def main():\n    serve(tools, **{'name': 'x'})",
    "a name of its own": "_spare = tools.off('destroy')\ndef main():\n    serve(tools)",
}


@pytest.mark.parametrize("name", NARROWED)
def test_u75_a_named_toolset_is_not_served_where_the_program_serves_less_of_it(
    name: str, line: CommandLine
) -> None:
    line.write("app.py", f"{TOOLS}\ntools = _all\n{NARROWED[name]}\n")
    for target in ("app.py:tools", "app:tools"):
        ran = line.run("call", target, "destroy")
        assert ran.returncode != 0 and "whose rules would not apply" in ran.stderr, ran.stdout + ran.stderr


def test_u75_tools_are_not_served_where_a_line_that_is_not_run_serves_less(line: CommandLine) -> None:
    line.write("app.py", f"{TOOLS}\ntools = _all\ndef main():\n    serve(tools.off('destroy'))\n")
    ran = line.run("call", "app.py", "destroy")
    assert ran.returncode != 0 and "has serve(….off(…)), whose rules would not apply" in ran.stderr


@pytest.mark.parametrize("name", WIDE)
def test_u75_a_named_toolset_is_served_where_the_program_serves_no_less_of_it(
    name: str, line: CommandLine
) -> None:
    line.write("app.py", f"{TOOLS}\ntools = _all\n{WIDE[name]}\n")
    assert "destroyed" in line.run("call", "app.py:tools", "destroy").stdout


def by_itself(line: CommandLine) -> str:
    """What `app.py` logs when it is run, rather than served by the command line."""
    ran = subprocess.run(
        line.script(line.folder / "app.py"),
        cwd=line.folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )
    return ran.stderr


def test_u75_a_program_that_serves_itself_logs_a_rule_that_nothing_applies(line: CommandLine) -> None:
    line.write("app.py", f"{TOOLS}\nhooks = deciding()\nserve(Toolset(destroy))\n")
    assert "hooks is a HookSet that nothing applies" in by_itself(line)


def test_u75_serve_under_another_name_applies_its_rules(line: CommandLine) -> None:
    block = "if __name__ == '__main__':\n    start(tools, policy=Policy(deny=['destroy']))"
    line.write("app.py", f"{TOOLS}\nfrom mcp_toolset import serve as start\ntools = _all\n{block}\n")
    ran = line.run("call", "app.py", "destroy")
    assert ran.returncode != 0 and "destroyed" not in ran.stdout


REPLACED = {
    "the audit log": (["--audit", "b.jsonl"], "the program gives audit=…, which --audit would replace"),
    "the grants": (["--grants", "b.db"], "the program gives grants=…, which --grants would replace"),
    "the state": (["--state", "b.json"], "the program gives state=…, which --state would replace"),
    "who may call": (
        ["--transport", "http", "--port", "0", "--auth-token-env", "CI_TOKEN"],
        "the program gives auth=…, which the options that say who may call would replace",
    ),
}
TWICE = {
    "--audit": ["a.jsonl", "b.jsonl"],
    "--state": ["a.json", "b.json"],
    "--grants": ["a.db", "b.db"],
    "--issuer": ["https://a.example", "https://b.example"],
    "--log": ["off", "logs"],
    "--timeout": ["5", "5"],
}


@pytest.mark.parametrize("name", REPLACED)
@pytest.mark.parametrize("served", ["serve(_all, {})", "server = ToolsetServer(_all, {})"])
def test_u75_an_option_does_not_replace_a_protection_of_the_program(
    served: str, name: str, line: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI_TOKEN", "x" * 30)
    made = served.format(
        "audit=AuditLog('a.jsonl'), auth=StaticTokens({'ann': 'x' * 20}), grants='a.db', state='a.json'"
    )
    line.write("app.py", f"{TOOLS}\n{made}\n")
    options, says = REPLACED[name]
    ran = line.here("serve", "app.py", *options)
    assert ran.returncode != 0 and says in ran.stderr, ran.stderr


@pytest.mark.parametrize("option", TWICE)
def test_u75_an_option_of_one_value_is_not_given_twice(option: str, line: CommandLine) -> None:
    line.write("app.py", f"{TOOLS}\ntools = _all\n")
    given = [word for value in TWICE[option] for word in (option, value)]
    ran = line.here("serve", "app.py", *given)
    assert ran.returncode == 2 and f"{option} is given twice, and has one value" in ran.stderr, ran.stderr


BESIDE = {
    "a server": "safe = ToolsetServer(tools, policy=Policy(deny=['destroy']))",
    "a toolset that is off": "safe = tools.off('destroy')",
    "a toolset with rules": "safe = Toolset(tools).carrying(deciding())",
}


@pytest.mark.parametrize("name", BESIDE)
def test_u75_a_program_that_serves_tools_beside_a_safer_value_logs_it(name: str, line: CommandLine) -> None:
    block = "if __name__ == '__main__':\n    serve(tools)"
    line.write("app.py", f"{TOOLS}\ntools = _all\n{BESIDE[name]}\n{block}\n")
    says = "safe has rules for its tools, which do not apply, as another one is served"
    assert says in by_itself(line) and says in line.run("serve", "app.py").stderr


def test_u75_a_set_without_hooks_that_a_program_serves_is_logged(line: CommandLine) -> None:
    line.write("app.py", f"{TOOLS}\nhooks = HookSet()\nserve(_all, hooks=hooks)\n")
    ran = line.run("serve", "app.py")
    assert 'hooks has no hooks, so it protects nothing: write @hooks.execution("NAME")' in ran.stderr


LOST = {
    "a set for one hook alone": "@HookSet().execution('destroy')",
    "a set for one result hook alone": "@HookSet().result('destroy')",
    "a copy of the set": "@hooks.merged().execution('destroy')",
    "a set with a prefix": "@hooks.prefixed('x').execution('destroy')",
    "a set whose name is used again": "@hooks.execution('destroy')",
}
_AGAIN = "hooks = HookSet()\nhooks.execution('destroy')(no)\nserve(_all, hooks=hooks)"


@pytest.mark.parametrize("name", LOST)
def test_u75_a_hook_whose_set_a_program_has_lost_is_not_passed_over(name: str, line: CommandLine) -> None:
    hook = (
        f"hooks = HookSet()\n{LOST[name]}\nasync def other(call{', result' * ('result(' in LOST[name])}): ..."
    )
    line.write("app.py", f"{TOOLS}\n{hook}\n{_AGAIN}\n")
    ran = line.run("call", "app.py", "destroy")
    assert ran.returncode != 0 and "other is a hook of a HookSet that nothing applies" in ran.stderr
    assert "other is a hook of a HookSet that nothing applies" in by_itself(line)


KEPT = {
    "in a set for another use": "_hooks = deciding()\nserve(_all, policy=Policy(deny=['destroy']))",
    "in two sets": "spare = HookSet()\nspare.execution('destroy')(no)\ndel spare\n"
    "serve(_all, hooks=deciding())",
    "in a set of a class": "class Conf:\n    hooks = HookSet()\n@Conf.hooks.execution('destroy')\n"
    "async def other(call):\n    return Reject('no')\nserve(_all, hooks=Conf.hooks)",
    "in a copy": "made = deciding().merged()\nserve(_all, hooks=made)",
    "of a set that is served already": "made = HookSet()\ntools = _all.carrying(made)\n"
    "@made.execution('destroy')\nasync def other(call):\n    return Reject('no')\nserve(tools)",
}


@pytest.mark.parametrize("name", KEPT)
def test_u75_a_hook_that_something_applies_is_no_lost_one(name: str, line: CommandLine) -> None:
    line.write("app.py", f"{TOOLS}\n{KEPT[name]}\n")
    ran = line.run("call", "app.py", "destroy")
    told = ran.stdout + ran.stderr
    assert "nothing applies" not in told and ("Rejected: no" in told or "destroy" in told), told


def test_u75_a_toolset_that_is_named_beside_a_server_with_rules_is_logged(line: CommandLine) -> None:
    line.write("app.py", f"{TOOLS}\ntools = _all\nserver = ToolsetServer(tools, hooks=deciding())\n")
    ran = line.run("serve", "app.py:tools")
    assert "server has rules for its tools, which do not apply, as another one is served" in ran.stderr
    assert "which do not apply" not in line.run("serve", "app.py:server").stderr


def test_u75_what_is_served_is_no_safer_value_of_the_program(line: CommandLine) -> None:
    inside = "base = _all.carrying(deciding())\ntools = Toolset(base.prefixed('x'), _all.off('destroy'))"
    line.write("app.py", f"{TOOLS}\n{inside}\n_safe = tools.off('x_destroy')\nserve(tools)\n")
    ran = line.run("serve", "app.py")
    assert "which do not apply" not in ran.stderr


@pytest.mark.anyio
@pytest.mark.parametrize("copied", ["merged", "prefixed", "nested", "rules", "list", "carried", "twice"])
async def test_u75_a_hook_that_is_registered_late_applies_to_every_copy(copied: str) -> None:
    hooks, tools = HookSet(), Toolset(destroy)
    made: Any = {
        "merged": lambda: HookSet().merged(hooks),
        "prefixed": lambda: hooks.prefixed("a"),
        "nested": lambda: HookSet().nested("a", hooks),
        "rules": lambda: Rules(hooks=hooks).merged(Rules()),
        "list": lambda: [hooks],
        "carried": HookSet,
        "twice": lambda: HookSet().merged(HookSet().merged(hooks)),
    }[copied]()
    if copied == "carried":
        tools = tools.carrying(hooks)
    if copied in ("prefixed", "nested"):
        tools = tools.prefixed("a")
    server = ToolsetServer(tools, rules=made)
    name = tools.names()[0]
    async with server:
        assert (await server.call_tool(name)).text == "destroyed"

        @hooks.execution("destroy")
        async def no(call: ToolCall) -> Reject:
            return Reject("no")

        assert (await server.call_tool(name)).text == "Rejected: no"


RIGHT = {
    "a class of servers that passes its rules on": """
class Own(ToolsetServer):
    hooks = deciding()
    def __init__(self, tools):
        super().__init__(tools, hooks=self.hooks)
server = Own(Toolset(destroy))
""",
    "a policy that passes its lists on": """
class Own(Policy):
    deny = ["destroy"]
    def __init__(self):
        super().__init__(deny=self.deny)
server = ToolsetServer(Toolset(destroy), policy=Own())
""",
    "a checker with data of its own": """
class Own(PermissionChecker):
    allow = ["look"]
    async def __call__(self, call, context, next):
        return await next() if call.name in self.allow else ToolResult.of_error("no")
server = ToolsetServer(Toolset(destroy), middleware=[Own(lambda call: "allow")])
""",
    "a toolset that keeps its rules under a name of its own": """
class App(Toolset):
    destroy = destroy
    _hooks = deciding()
server = ToolsetServer(App().carrying(App._hooks))
""",
    "a verb whose result is used later": """
tools = Toolset(destroy)
_ = tools.off("destroy")
tools = [tools.carrying(deciding()) for _ in range(1)][0]
server = ToolsetServer(tools)
""",
    "a pattern for tools that may come": """
server = ToolsetServer(Toolset(destroy), policy=Policy(deny=["destroy", "wipe_*", "tag:mon*", "[!a-z]*"]))
""",
    "a pattern with an asterisk behind a dot": """
@tool(name="files.destroy")
def other() -> str:
    "Destroy a file."
    return "destroyed"
hooks = HookSet()
hooks.execution("files.*")(no)
server = ToolsetServer(Toolset(other), hooks=hooks)
""",
    "hooks with typed answers": """
from typing import Any
async def typed(call: ToolCall, input: Any) -> Reject:
    return Reject("no")
hooks = HookSet(timeout=1.5)
hooks.execution(destroy)(typed)
server = ToolsetServer(Toolset(destroy), hooks=hooks)
""",
    "a verifier that is a mock": """
server = ToolsetServer(Toolset(destroy), hooks=deciding(), auth=StaticTokens({"a": "x" * 20}))
""",
    "access to a deferred tool": """
server = ToolsetServer(Toolset(destroy).deferred(), access=lambda binding, context: AccessDenied("filtered"))
""",
}


@pytest.mark.anyio
@pytest.mark.parametrize("name", RIGHT)
async def test_u75_a_right_program_is_not_refused(name: str) -> None:
    space: dict[str, Any] = {"__name__": "program"}
    more = "\n".join(f"from mcp_toolset.{room} import *" for room in ("auth", "middleware", "grants"))
    exec(compile(f"{TOOLS}\n{more}\n{RIGHT[name]}", "program.py", "exec", dont_inherit=True), space)
    async with space["server"] as server:
        for called in ("destroy", "files.destroy"):
            try:
                assert "destroyed" not in (await server.call_tool(called)).text
            except UnknownToolError:
                pass
