"""Mistakes in programs that would leave a protection without effect: the name, the program, the error.

The error is raised where the mistake is written, or when the program's `server` is opened.
"""

from __future__ import annotations

PREAMBLE = """
from __future__ import annotations

import mcp_toolset
from mcp_toolset import *
from mcp_toolset.auth import *
from mcp_toolset.middleware import *
from mcp_toolset.policy import *

@tool
def destroy(what: str = "") -> str:
    "Destroy a thing."
    return "destroyed"

hooks = HookSet()
"""

_NO = "return Reject('no')"
_OPEN = "server = ToolsetServer(Toolset(destroy), hooks=hooks)"

DECORATORS: list[tuple[str, str, str]] = (
    [
        (
            f"a bare {kind} hook, {said}",
            f"@hooks.{kind}\nasync def no({parameters}):\n    return None",
            f'write @hooks.{kind}("NAME") above the hook, with parentheses',
        )
        for kind, said, parameters in [
            ("execution", "by its parameter's name", "call"),
            ("execution", "by its annotation", "one: ToolCall, input"),
            ("execution", "by the annotation of a module", "one: mcp_toolset.ToolCall"),
            ("result", "by its parameter's name", "call, result"),
            ("result", "by its annotation", "one: ToolCall, two: ToolResult"),
            ("description", "by its parameter's name", "definition"),
            ("description", "by its annotation", "one: ToolDefinition"),
        ]
    ]
    + [
        (
            f"a bare {kind} hook of which nothing is known",
            f"@hooks.{kind}\nasync def no({parameters}):\n    return None\n{_OPEN}",
            f"hooks.{kind}('no') was given no hook, so no rule applies",
        )
        for kind, parameters in [("execution", "c"), ("result", "c, r"), ("description", "d")]
    ]
    + [
        (
            "a registration that was never finished",
            f"hooks.execution('destroy')\n{_OPEN}",
            "hooks.execution('destroy') was given no hook",
        ),
        (
            "an unfinished registration in a merged set",
            "hooks.execution('destroy')\nHookSet().merged(hooks)",
            "was given no hook",
        ),
        (
            "an unfinished registration in a prefixed set",
            "hooks.execution('destroy')\nhooks.prefixed('x')",
            "was given no hook",
        ),
        (
            "a bare hook of a nested toolset",
            "@hooks.of(Toolset(destroy)).execution\nasync def no(call):\n    return None",
            'write @hooks.execution("NAME") above the hook, with parentheses',
        ),
        (
            "a hook for nothing",
            f"@hooks.execution('')\nasync def no(call):\n    {_NO}",
            "registered for a tool",
        ),
        (
            "a hook for a number",
            f"@hooks.execution(5)\nasync def no(call):\n    {_NO}",
            "registered for a tool",
        ),
        ("a hook that is sync", f"@hooks.execution('*')\ndef no(call):\n    {_NO}", "must be an `async def`"),
        (
            "a hook for a misspelt tool",
            f"@hooks.execution('destory')\nasync def no(call):\n    {_NO}\n{_OPEN}",
            "did you mean destroy?",
        ),
        (
            "a hook for a tool in the wrong case",
            f"@hooks.execution('Destroy')\nasync def no(call):\n    {_NO}\n{_OPEN}",
            "did you mean destroy?",
        ),
        (
            "middleware with empty parentheses",
            "@tool_middleware()\nasync def m(call, context, next):\n    return await next()",
            "tool_middleware",
        ),
    ]
)
"""Hooks and decorators that would register nothing."""

_TYPED = """
from pydantic import BaseModel
class Snippets(BaseModel):
    texts: list[str]
class Other(BaseModel):
    number: int
@tool_input(output=Snippets)
class Search(BaseModel):
    query: str
"""
_NEEDING = """
from typing import Annotated
class Database: ...
@tool
def query(database: Annotated[Database, Injected]) -> str:
    return "asked"
"""


def _default(said: str) -> tuple[str, str, str]:
    name, _, _ = said.partition(":")
    program = f"@tool\ndef f({said}) -> str:\n    return ''"
    return f"a default of another type: {said}", program, f"the default of parameter '{name}' does not fit"


DECLARATIONS: list[tuple[str, str, str]] = [
    (
        "a wrong output type in brackets",
        f"{_TYPED}\nclass App(Toolset[DecodedCall[Search, Other]]):\n    search = Search",
        "the output of 'Search' is Snippets, not Other: write DecodedCall[Search, Snippets]",
    ),
    (
        "a plain output type in brackets",
        f"{_TYPED}\nclass App(Toolset[DecodedCall[Search, str]]):\n    search = Search",
        "the output of 'Search' is Snippets, not str",
    ),
    (
        "a missing call type in brackets",
        f"{_TYPED}\nclass App(Toolset[FunctionCall[..., str]]):\n    search = Search",
        "does not say that it decodes calls of 'Search'",
    ),
    _default('a: int = "x"'),
    _default('a: bool = "maybe"'),
    _default("a: list[int] = {}"),
    _default('a: list[int] = ["x"]'),
    _default('a: float = "fast"'),
    _default('a: dict[str, int] = {"x": "y"}'),
    _default("a: str = 5"),
    *(
        (
            f"the mount's transport {said!r}",
            f"RemoteToolset('https://a.example/mcp', name='a', transport={said!r})",
            f"there is no transport {said!r}; write 'auto', 'http', 'sse' or 'stdio'",
        )
        for said in ("websocket", "HTTP", "streamable-http", "", None)
    ),
    (
        "an unknown transport for a command",
        "RemoteToolset(['x'], name='a', transport='websocket')",
        "there is no transport 'websocket'",
    ),
    ("an unknown transport to serve by", "serve(destroy, transport='websocket')", "unknown transport"),
    *(
        (f"middleware that is {said}", program, "is not async, so its result cannot be awaited")
        for said, program in [
            ("sync", "tool_middleware(destroy.function)"),
            (
                "sync with the right parameters",
                "@tool_middleware\ndef m(call, context, next):\n    return next()",
            ),
            ("sync, in rules", "def m(call, context, next): ...\nRules(middleware=[m])"),
            (
                "sync, for one tool",
                "def m(call, context, next): ...\nRules(tool_middleware={'destroy': [m]})",
            ),
            (
                "a sync object",
                "class M:\n    def __call__(self, call, context, next): ...\nRules(middleware=[M()])",
            ),
            (
                "a sync method",
                "class M:\n    def m(self, call, context, next): ...\nRules(middleware=[M().m])",
            ),
            (
                "sync, of a server",
                "def m(call, context, next): ...\nToolsetServer(Toolset(destroy), middleware=[m])",
            ),
        ]
    ),
    ("a class as middleware", "class M: ...\nRules(middleware=[M])", "not the class M"),
    ("middleware outside of a list", "Rules(middleware='m')", "is a list of middleware"),
    (
        "middleware for a misspelt tool",
        "async def m(call, context, next): ...\n"
        "server = ToolsetServer(Toolset(destroy), rules=Rules(tool_middleware={'destory': [m]}))",
        "did you mean destroy?",
    ),
    ("a permission function that is a text", "PermissionChecker('allow')", "takes a function of a call"),
    (
        "a policy object that is a class",
        "class P:\n    async def destroy_hook(self, call): ...\nhooks.register(P)",
        "P()",
    ),
    ("a policy object without hooks", "class P: ...\nhooks.register(P())", "has no hook"),
    (
        "a policy object with a misspelt hook",
        "class P:\n    async def destroy_hok(self, call): ...\nhooks.register(P())",
        "destroy_hok is not a hook",
    ),
    (
        "a policy object for a misspelt tool",
        f"class P:\n    async def destory_hook(self, call): ...\nhooks.register(P())\n{_OPEN}",
        "did you mean destroy?",
    ),
    (
        "a policy object whose hook is sync",
        "class P:\n    def destroy_hook(self, call): ...\nhooks.register(P())",
        "must be an `async def`",
    ),
    (
        "an injection that nobody provides",
        f"{_NEEDING}\nserver = ToolsetServer(Toolset(query))",
        "which nothing supplies",
    ),
    (
        "an injection under another name",
        f"{_NEEDING}\nserver = ToolsetServer(Toolset(query).injecting({{'databse': Database()}}))",
        "which nothing supplies",
    ),
    (
        "an injection of another type",
        f"{_NEEDING}\nserver = ToolsetServer(Toolset(query).injecting({{str: 'x'}}))",
        "which nothing supplies",
    ),
    ("an injection of a bare value", f"{_NEEDING}\nToolset(query).injecting(5)", "give values by type"),
]
"""Types that are not what they have to be."""


def _policy(said: str) -> str:
    return f"server = ToolsetServer(Toolset(destroy), policy=Policy({said}))"


POLICIES: list[tuple[str, str, str]] = [
    ("a deny as a text", "Policy(deny='destroy')", "policy.deny takes a list of patterns"),
    ("an ask as a text", "Policy(ask='destroy')", "policy.ask takes a list of patterns"),
    ("an allow of numbers", "Policy(allow=[1])", "policy.allow takes a list of patterns"),
    ("a deny of a tool itself", "Policy(deny=[destroy])", "policy.deny takes a list of patterns"),
    ("a deny of nothing", "Policy(deny=[''])", "names no tool"),
    ("a deny with a misspelt hint", "Policy(deny=['destructve:*'])", "did you mean `destructive:*`?"),
    (
        "a deny with a hint in the wrong case",
        "Policy(deny=['Destructive:*'])",
        "did you mean `destructive:*`?",
    ),
    ("a deny of a misspelt tool", _policy("deny=['destory']"), "did you mean destroy?"),
    ("a deny in the wrong case", _policy("deny=['Destroy']"), "there is no such tool"),
    ("a deny with a prefix added", _policy("deny=['a_destroy']"), "there is no such tool"),
    ("an ask of a misspelt tool", _policy("ask=['destory']"), "did you mean destroy?"),
    ("a deny at a server that is not mounted", _policy("deny=['git/destroy']"), "no such server is mounted"),
    (
        "a section of a server that is not mounted",
        _policy("servers={'git': Policy(deny=['*'])}"),
        "no such server",
    ),
    (
        "a section for a role with a misspelt tool",
        _policy("roles={'x': Policy(deny=['destory'])}"),
        "destroy?",
    ),
    (
        "rules for some callers within such rules",
        "Policy(roles={'x': Policy(roles={'y': Policy(deny=['*'])})})",
        "have no such rules themselves",
    ),
    ("limits with a negative rate", "Limits(rate='-1/min')", "write a positive whole number"),
    ("limits with an unknown unit", "Limits(rate='1/fortnight')", "write a positive whole number"),
    ("limits with a misspelt unit", "Limits(rate='5/mins')", "did you mean `5/min`?"),
    ("limits with a number as a rate", "Limits(rate=5)", "write a text such as"),
    ("limits of no calls", "Limits(concurrency=0)", "write a positive whole number"),
    ("limits with a negative timeout", "Limits(timeout=-1)", "write a positive number of seconds"),
    ("limits with an infinite timeout", "Limits(timeout=float('inf'))", "write a positive number of seconds"),
    ("limits with a truth as a number", "Limits(concurrency=True)", "write a positive whole number"),
    ("limits with roles in one text", "Limits(rate='1/s', roles='x')", "write a list of names"),
    ("limits for nobody", "Limits(rate='1/s', roles=[])", "write a list of names"),
    (
        "limits for some callers that limit nothing",
        "Limits(callers=[Limits(roles=['x'])])",
        "limits something",
    ),
    ("limits for a pattern of nothing", "CallLimits({'': Limits(rate='1/s')})", "names no tool"),
    ("an auth of a text", "ToolsetServer(Toolset(destroy), auth='token').http_app()", "verifies no tokens"),
    ("an auth of nothing", "Authenticator([])", "no verifier is given"),
    ("a token of six characters", "StaticTokens({'ci': 'abcdef'})", "16"),
    ("no tokens", "StaticTokens({})", "no token is given"),
    (
        "required scopes in one text",
        "Authenticator(StaticTokens({'a': 'x' * 20}), required_scopes='a')",
        "a list",
    ),
    ("a JWT without an audience", "JWT(issuer='https://i.example', audience='')", "audience"),
    ("a guard that is a policy", "Rules(guards=[Policy(deny=['*'])])", "guards is a list"),
    ("hooks that are a list", "Rules(hooks=[])", "takes a HookSet"),
]
"""Policies, limits and logins of programs."""


_DECIDING = """
async def no(call):
    return Reject('no')
async def layer(call, context, next):
    return ToolResult.of_error('no')
def deciding():
    made = HookSet()
    made.execution('destroy')(no)
    return made
def deny(call):
    return 'deny'
class Guarding:
    async def destroy_hook(self, call):
        return Reject('no')
"""


def _attribute(name: str, value: str, says: str) -> tuple[str, str, str]:
    program = f"{_DECIDING}\nclass App(Toolset):\n    destroy = destroy\n    {name} = {value}\n"
    return f"the class attribute {name} = {value}", program, says


def _method(name: str, parameters: str) -> tuple[str, str, str]:
    program = f"class App(Toolset):\n    destroy = destroy\n    async def {name}({parameters}): ..."
    return f"the method {name}", program, f"App.{name} is never asked"


def _verb(said: str) -> tuple[str, str, str]:
    verb = said.partition("(")[0]
    return (
        f"toolset.{said} as a statement",
        f"{_DECIDING}\ntools = Toolset(destroy)\ntools.{said}\nserver = ToolsetServer(tools)",
        f"{verb}(…) changes nothing in place: it returns a new toolset, which line ",
    )


_NOWHERE = "applies to no tool as an attribute of a class"
NOWHERE: list[tuple[str, str, str]] = [
    _attribute("hooks", "deciding()", f"App.hooks is a HookSet, which {_NOWHERE}"),
    _attribute("checks", "(deciding(),)", f"App.checks is a HookSet, which {_NOWHERE}"),
    _attribute("guard", "Guarding()", f"App.guard is a Guarding, which {_NOWHERE}"),
    _attribute("policy", "Policy(deny=['destroy'])", f"App.policy is a Policy, which {_NOWHERE}"),
    _attribute("policy", "{'deny': ['destroy']}", f"App.policy is a dict, which {_NOWHERE}"),
    _attribute("rules", "Rules(hooks=deciding())", f"App.rules is a Rules, which {_NOWHERE}"),
    _attribute("middleware", "[layer]", f"App.middleware is a list, which {_NOWHERE}"),
    _attribute("check", "PermissionChecker(deny)", f"App.check is a PermissionChecker, which {_NOWHERE}"),
    _attribute("guards", "[PolicyGuard(Policy())]", f"App.guards is a PolicyGuard, which {_NOWHERE}"),
    _attribute("limits", "{'*': Limits(rate='1/min')}", f"App.limits is a Limits, which {_NOWHERE}"),
    _attribute("quota", "{'a': [Limits(rate='1/min')]}", f"App.quota is a Limits, which {_NOWHERE}"),
    _attribute("auth", "StaticTokens({'a': 'x' * 20})", f"App.auth is a StaticTokens, which {_NOWHERE}"),
    _attribute("exclude", "['destroy']", f"App.exclude is a list, which {_NOWHERE}"),
    _attribute("deny", "('destroy',)", f"App.deny is a tuple, which {_NOWHERE}"),
    _attribute(
        "off", "['destroy']", "would take the place of Toolset.off, and has no effect: use App().off("
    ),
    _attribute("deferred", "True", "would take the place of Toolset.deferred, and has no effect"),
    _attribute("filtered", "{'exclude': ['destroy']}", "would take the place of Toolset.filtered"),
    _attribute("carrying", "[layer]", "would take the place of Toolset.carrying"),
    _method("destroy_hook", "self, call"),
    _method("destroy_result_hook", "self, call, result"),
    _method("around", "self, call, context, next"),
    *(
        (
            f"a {kind} set on a toolset",
            f"{_DECIDING}\nToolset(destroy).{name} = {value}",
            "to no tool: give it to",
        )
        for kind, name, value in [
            ("hook set", "hooks", "deciding()"),
            ("policy", "policy", "Policy(deny=['destroy'])"),
            ("list of guards", "guards", "[PolicyGuard(Policy(deny=['destroy']))]"),
            ("policy object", "guard", "Guarding()"),
        ]
    ),
    *(
        (
            f"{name} set on a server",
            f"{_DECIDING}\nToolsetServer(Toolset(destroy)).{name} = {value}",
            f"server.{name} = … applies to no call: write ToolsetServer(…, {name}=…)",
        )
        for name, value in [
            ("hooks", "deciding()"),
            ("middleware", "[layer]"),
            ("rules", "[no]"),
            ("limits", "{'*': Limits(rate='1/min')}"),
            ("guard", "PolicyGuard(Policy(deny=['destroy']))"),
        ]
    ),
    (
        "a policy set on a server",
        "ToolsetServer(Toolset(destroy)).policy = Policy(deny=['*'])",
        "server.policy = … applies to no call",
    ),
    ("a rule set on a policy", "Policy().deny = ['destroy']", "no attribute 'deny'"),
    *map(
        _verb,
        [
            "off('destroy')",
            "off()",
            "deferred()",
            "filtered(exclude='destroy')",
            "filtered(lambda one: False)",
            "carrying(deciding())",
            "carrying(PolicyGuard(Policy(deny=['destroy'])))",
            "prefixed('a')",
            "renamed({'destroy': 'wipe'})",
            "tagged('money')",
            "prepared(lambda binding: None)",
            "with_arguments({})",
        ],
    ),
    ("merged hooks thrown away", f"{_DECIDING}\nhooks.merged(deciding())", "it returns a new HookSet"),
    ("prefixed hooks thrown away", f"{_DECIDING}\ndeciding().prefixed('a')", "it returns a new HookSet"),
    ("nested hooks thrown away", f"{_DECIDING}\nhooks.nested('a', deciding())", "it returns a new HookSet"),
    ("merged rules thrown away", f"{_DECIDING}\nRules().merged(deciding())", "it returns a new Rules"),
]
"""Rules where nothing would apply them, and results that nothing uses."""
