"""Mistakes in programs that would leave a protection without effect: the name, the program, the error.

The error is raised where the mistake is written, or when the program's `server` is opened.
"""

from __future__ import annotations

PREAMBLE = """
from __future__ import annotations

import mcp_toolset
from mcp_toolset import *
from mcp_toolset.arguments import *
from mcp_toolset.errors import *
from mcp_toolset.grants import *
from mcp_toolset.journal import *
from mcp_toolset.rounds import *
from mcp_toolset.shared import *
from mcp_toolset.audit import *
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
    _attribute("middleware", "[layer]", f"App.middleware is a layer of middleware, which {_NOWHERE}"),
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


def _ruled(said: str) -> str:
    return f"{_DECIDING}\nserver = ToolsetServer(Toolset(destroy), {said})"


def _guarded(guard: str) -> str:
    return _ruled(f"rules=Rules(guards=[{guard}])")


def _hooked(selector: str, tools: str = "Toolset(destroy)") -> str:
    return f"{_DECIDING}\nhooks.execution({selector!r})(no)\nserver = ToolsetServer({tools}, hooks=hooks)"


_NO_TOOL = "has no effect: there is no such tool"
_NEAR = "did you mean destroy?"
NAMES: list[tuple[str, str, str]] = [
    ("a guard for a misspelt tool", _guarded("PolicyGuard(Policy(deny=['destory']))"), _NEAR),
    ("a guard for a tool in the wrong case", _guarded("PolicyGuard(Policy(ask=['Destroy']))"), _NEAR),
    ("a guard with a prefix", _guarded("PolicyGuard(Policy(deny=['a_destroy']))"), _NO_TOOL),
    ("a guard at a server", _guarded("PolicyGuard(Policy(deny=['git/destroy']))"), _NO_TOOL),
    ("a guard with a hint and a slip", _guarded("PolicyGuard(Policy(deny=['destructive:Destroy']))"), _NEAR),
    ("a guard with a pattern and a slip", _guarded("PolicyGuard(Policy(deny=['destory*']))"), _NEAR),
    ("a guard for an unknown tag", _guarded("PolicyGuard(Policy(deny=['tag:money']))"), _NO_TOOL),
    ("a guard of limits for a misspelt tool", _guarded("CallLimits({'destory': Limits(rate='1/s')})"), _NEAR),
    ("a guard of limits with a slip", _guarded("CallLimits({'Dest*': Limits(rate='1/s')})"), _NEAR),
    ("a guard as a rule, misspelt", _ruled("rules=PolicyGuard(Policy(deny=['destory']))"), _NEAR),
    ("a carried guard, misspelt", "Toolset(destroy).carrying(PolicyGuard(Policy(deny=['destory'])))", _NEAR),
    (
        "a carried guard by the later name",
        "Toolset(destroy).carrying(PolicyGuard(Policy(deny=['wipe']))).renamed({'destroy': 'wipe'})",
        _NO_TOOL,
    ),
    (
        "a carried guard of limits, misspelt",
        "Toolset(destroy).carrying(CallLimits({'destory': Limits(rate='1/s')}))",
        _NEAR,
    ),
    ("limits for a misspelt tool", _ruled("limits={'destory': Limits(rate='1/s')}"), _NO_TOOL),
    ("limits with a pattern in the wrong case", _ruled("limits={'DES*': Limits(rate='1/s')}"), _NEAR),
    *(
        (f"a policy with the pattern {pattern}", _policy(f"deny=[{pattern!r}]"), says)
        for pattern, says in [
            ("destory*", _NEAR),
            ("Des*", _NEAR),
            ("*TROY", _NEAR),
            ("destroyy*", _NEAR),
            ("destoy*", _NEAR),
            ("des.*", _NEAR),
            ("destructive:Des*", _NEAR),
            ("!look", "which a pattern does not have"),
            ("not look", "which a pattern does not have"),
            ("destructive:!look", "which a pattern does not have"),
            ("[^l]*", "which a pattern does not have"),
            ("^destroy$", "which a pattern does not have"),
            ("^des.*", "which a pattern does not have"),
            ("destroy$", "which a pattern does not have"),
            ("destroy|look", "which a pattern does not have"),
            ("(destroy)", "which a pattern does not have"),
            ("des\\w+", "which a pattern does not have"),
            ("destroy,look", "which a pattern does not have"),
            ("{destroy,look}", "which a pattern does not have"),
        ]
    ),
    *(
        (f"a hook for {selector!r}", _hooked(selector), says)
        for selector, says in [
            ("destory*", _NEAR),
            ("DEST*", _NEAR),
            ("des.*", _NEAR),
            ("!look", "excludes nothing here"),
            ("[^x]*", "write `[!x]*`"),
            ("^destroy$", "is a regular expression"),
            ("destroy|look", "is a regular expression"),
            ("destroy, look", "is several names in one"),
            ("destructive:*", "hints are for policies and limits"),
            ("tag:money", 'write tagged("money")'),
            (" destroy", "has blanks at an end"),
            (" *", "has blanks at an end"),
            ("destroy\u200b", "hidden characters"),
            ("a/destroy", _NEAR),
            ("a_destroy", _NEAR),
            ("Data.destroy", _NEAR),
        ]
    ),
    (
        "a hook with a pattern for the former names",
        _hooked("dest*", "Toolset(destroy).prefixed('a')"),
        "the names are a_destroy now",
    ),
    (
        "a hook by a name that two mounts had",
        _hooked("destroy", "Toolset(Toolset(destroy).prefixed('a'), Toolset(destroy).prefixed('b'))"),
        "use a_destroy or b_destroy",
    ),
    (
        "a hook for the tool of another toolset",
        f"{_DECIDING}\n@tool\ndef other() -> str:\n    'Other.'\n    return ''\n"
        "hooks.execution(other)(no)\nserver = ToolsetServer(Toolset(destroy), hooks=hooks)",
        "hooks.execution('other') has no effect",
    ),
    ("a timeout for a misspelt tool", _ruled("middleware=[Timeout(5, per_tool={'destory': 1})]"), _NEAR),
    (
        "a round with a misspelt guard",
        "import anyio\nround = ToolRound.from_calls([], Toolset(destroy).view())\n"
        "anyio.run(round.apply, PolicyGuard(Policy(deny=['destory'])))",
        _NEAR,
    ),
    (
        "a call with a misspelt guard",
        "import anyio\nfrom functools import partial\n"
        "guard = PolicyGuard(Policy(ask=['destory']))\n"
        "anyio.run(partial(Toolset(destroy).execute, 'destroy', {}, rules=guard))",
        _NEAR,
    ),
    *(
        (f"{verb} with {given}", f"Toolset(destroy).{verb}({given})", says)
        for verb, given, says in [
            ("off", "'destory'", _NEAR),
            ("off", "'Destroy'", _NEAR),
            ("off", "'!look'", "excludes nothing here"),
            ("off", "'destroy|look'", "is a regular expression"),
            ("filtered", "exclude='destory'", _NEAR),
            ("filtered", "exclude=['[^l]*']", "write `[!l]*`"),
            ("filtered", "exclude='destructive:*'", "hints are for policies and limits"),
            ("renamed", "{'destory': 'wipe'}", _NEAR),
            ("described", "{'Destroy': 'x'}", _NEAR),
        ]
    ),
    *(
        (f"a policy with {said}", f"Policy({said})", says)
        for said, says in [
            ("roles={'adm*': Policy(deny=['*'])}", "is compared exactly"),
            ("scopes={'pay?': Policy(deny=['*'])}", "is compared exactly"),
            ("roles={'': Policy(deny=['*'])}", "is empty"),
            ("roles={'admin ': Policy(deny=['*'])}", "has blanks at an end"),
            ("principals={'': Policy(deny=['*'])}", "is empty"),
            ("principals={' ann': Policy(deny=['*'])}", "has blanks at an end"),
            ("principals={'a\\u200bnn': Policy(deny=['*'])}", "hidden characters"),
        ]
    ),
    (
        "limits for a pattern of roles",
        "CallLimits({'*': Limits(rate='1/s', roles=['adm*'])})",
        "is compared exactly",
    ),
]
"""Names and patterns that fit no tool or no caller."""

FORMS: list[tuple[str, str, str]] = [
    *(
        (
            f"an execution hook {said}",
            f"@hooks.execution('destroy')\nasync def f({parameters}){answer}: ...",
            says,
        )
        for said, parameters, answer, says in [
            ("by name alone", "*, call", "", "gets no arguments by name, such as call"),
            ("of keywords", "**call", "", "gets no arguments by name, such as call"),
            ("with a result", "call, result", "", "must take (call), (call, input) or"),
            ("of no parameters", "", "", "must take (call)"),
            ("of four", "a, b, c, d", "", "must take (call)"),
            ("of self", "self, call", "", "is a method"),
            ("that answers nothing", "call", " -> None", "must return RunNormally or Complete or Reject"),
            ("that answers yes", "call", " -> bool", "must return RunNormally or Complete or Reject"),
            ("that answers a result", "call", " -> ToolResult", "not ToolResult"),
        ]
    ),
    *(
        (f"a result hook {said}", f"@hooks.result('destroy')\nasync def f({parameters}){answer}: ...", says)
        for said, parameters, answer, says in [
            ("with an input", "call, input", "", "must take (call, result)"),
            ("of the call alone", "call", "", "must take (call, result)"),
            ("that rejects", "call, result", " -> Reject", "must return ToolResult or None, not Reject"),
            ("that answers a text", "call, result", " -> str", "must return ToolResult or None, not str"),
        ]
    ),
    (
        "a description hook of a call",
        "@hooks.description('destroy')\nasync def f(call): ...",
        "must take (definition)",
    ),
    (
        "a description hook of an annotated call",
        "@hooks.description('destroy')\nasync def f(one: ToolCall): ...",
        "must take (definition)",
    ),
    *(
        (f"a deadline of hooks that is {value}", f"HookSet(timeout={value})", "timeout is a positive number")
        for value in ("0", "-1", "None", "'5'")
    ),
    *(
        (f"a permission function {said}", f"{program}\nPermissionChecker(f)", says)
        for said, program, says in [
            ("of two parameters", "def f(call, context): ...", "takes a function of (call)"),
            ("of none", "def f(): ...", "takes a function of (call)"),
            ("by name alone", "def f(*, call): ...", "takes a function of (call)"),
            ("that says yes", "def f(call) -> bool: ...", 'returns "allow", "deny" or "ask"'),
            ("that says nothing", "def f(call) -> None: ...", 'returns "allow", "deny" or "ask"'),
            ("that is a class", "class f: ...", "takes a function of a call"),
            ("that is a policy", "f = Policy(deny=['*'])", "takes a function of a call"),
            ("that was called", f"{_DECIDING}\nf = deny(None)", "takes a function of a call"),
        ]
    ),
    *(
        (f"{name}={value}", _ruled(f"{name}={value}"), says)
        for name, value, says in [
            ("hooks", "no", "takes a HookSet"),
            ("hooks", "[no]", "takes a HookSet"),
            ("hooks", "HookSet", "takes a HookSet"),
            ("hooks", "Guarding()", "takes a HookSet"),
            ("hooks", "Rules()", "takes a HookSet"),
            ("hooks", "False", "takes a HookSet"),
            ("middleware", "layer", "is a list of middleware"),
            ("middleware", "[no]", "no takes (call)"),
            ("middleware", "[deciding()]", "not <mcp_toolset.calls.hooks.HookSet"),
            ("middleware", "[Guarding()]", "middleware is an `async def` of (call, context, next)"),
            ("middleware", "[PolicyGuard(Policy())]", "middleware is an `async def`"),
            ("middleware", "[Policy(deny=['*'])]", "middleware is an `async def`"),
            ("middleware", "[CallLimits({})]", "middleware is an `async def`"),
            ("middleware", "[PermissionChecker]", "not the class PermissionChecker"),
            ("middleware", "{'destroy': layer}", "not 'destroy'"),
            ("middleware", "False", "is a list of middleware"),
            ("tool_middleware", "[layer]", "takes lists by tool"),
            ("tool_middleware", "{'destroy': layer}", "is a list of middleware"),
            ("policy", "[Policy(deny=['*'])]", "policy takes Policy("),
            ("policy", "{'deny': ['*']}", "policy takes Policy("),
            ("policy", "PolicyGuard(Policy())", "policy takes Policy("),
            ("policy", "Policy", "policy takes Policy("),
            ("policy", "False", "policy takes Policy("),
            ("rules", "Policy(deny=['*'])", "middleware is an `async def`"),
            ("rules", "[Policy(deny=['*'])]", "middleware is an `async def`"),
            ("rules", "{'destroy': no}", "middleware is an `async def`"),
            ("rules", "{no}", "middleware is an `async def`"),
            ("rules", "False", "middleware is an `async def`"),
            ("rules", "'deny'", "not 'deny'"),
            ("rules", "Limits(rate='1/s')", "middleware is an `async def`"),
            ("rules", "HookSet", "not the class HookSet"),
            ("rules", "Guarding", "not the class Guarding"),
            ("rules", "deciding", "is not a rule"),
            ("rules", "deny", "is not a rule"),
            ("limits", "[Limits(rate='1/s')]", "limits takes limits by pattern"),
            ("limits", "Limits(rate='1/s')", "limits takes limits by pattern"),
            ("limits", "{'*': '1/s'}", "takes Limits("),
        ]
    ),
    *(
        (f"guards={value}", f"Rules(guards={value})", "guards is a list such as [PolicyGuard(policy)]")
        for value in ("PolicyGuard(Policy())", "'deny'", "[PolicyGuard]", "[HookSet()]", "[Policy()]")
    ),
    *(
        (f"PolicyGuard({value})", f"PolicyGuard({value})", says)
        for value, says in [
            ("{'deny': ['*']}", "PolicyGuard takes Policy("),
            ("['destroy']", "PolicyGuard takes Policy("),
            ("Policy", "PolicyGuard takes Policy("),
            ("Policy(), approvals='a.sqlite'", "PolicyGuard takes approvals=Approvals(PATH)"),
        ]
    ),
    (
        "a policy object with a hook set",
        f"{_DECIDING}\nclass P(Guarding):\n    more = deciding()\nhooks.register(P())",
        "more is not a hook",
    ),
    (
        "a policy object with a list of hooks",
        f"{_DECIDING}\nclass P(Guarding):\n    destroy_hooks = [no]\nhooks.register(P())",
        "destroy_hooks is not a hook",
    ),
]
"""Rules of another kind, another type or another signature than a place takes."""


def _class(base: str, body: str, says: str) -> tuple[str, str, str]:
    return f"a class of {base} with {body}", f"{_DECIDING}\nclass Own({base}):\n    {body}", says


ARGUMENTS: list[tuple[str, str, str]] = [
    *(
        (f"PinPolicy({given})", f"PinPolicy({given})", f"PinPolicy({name}=…) is one of {known}, not {value}")
        for name, known, values in [
            ("changed", "accept, warn, quarantine", ("'Quarantine'", "'hold'", "'refuse'", "True")),
            ("new", "accept, warn, quarantine", ("'Quarantine'", "'hold'", "False")),
            ("hidden_text", "strip, flag, refuse", ("'Refuse'", "'reject'", "True", "None")),
        ]
        for value in values
        for given in (f"{name}={value}",)
    ),
    *(
        (
            f"pins={value} of a mount",
            f"RemoteToolset(['x'], name='a', pins={value})",
            "pins takes PinPolicy(…)",
        )
        for value in ("PinPolicy", "'quarantine'", "{'changed': 'quarantine'}")
    ),
    (
        "a lock file of a mount that is not there",
        "RemoteToolset(['x'], name='a', lock='typo.lock.json')",
        "there is no lock file typo.lock.json, so nothing is pinned; make it with `mcp-toolset pin`",
    ),
    _class("ToolsetServer", "policy = Policy(deny=['destroy'])", "give it to super().__init__(…)"),
    _class("ToolsetServer", "hooks = deciding()", "give it to super().__init__(…)"),
    _class("ToolsetServer", "rules = [no]", "give it to super().__init__(…)"),
    _class("ToolsetServer", "async def middleware(self, call, context, next): ...", "applies to nothing"),
    _class("HookSet", "async def destroy_hook(self, call): ...", "applies to nothing as an attribute"),
    _class("HookSet", "middleware = [layer]", "applies to nothing as an attribute"),
    _class("Rules", "middleware = [layer]", "give it to the object, when it is made"),
    _class("Rules", "hooks = deciding()", "give it to the object, when it is made"),
    _class("Policy", "deny = ['destroy']", "give it to the object, when it is made"),
    _class("PolicyGuard", "policy = Policy(deny=['destroy'])", "give it to the object, when it is made"),
    *(
        (
            f"hooks.{name} = {value}",
            f"{_DECIDING}\nhooks.{name} = {value}",
            f"hooks.{name} = … registers nothing",
        )
        for name, value in [("destroy_hook", "no"), ("execution", "no"), ("middleware", "[layer]")]
    ),
    *(
        (f"{name}={value} of a server", _ruled(f"{name}={value}"), says)
        for name, value, says in [
            ("access", "lambda binding, context: None", "use toolset.deferred()"),
            ("access", "'deny'", "access takes a function of (binding, context)"),
            ("access", "Guarding", "access takes a function of (binding, context)"),
            ("access", "lambda: None", "access takes a function of (binding, context)"),
            ("access", "no", "cannot be an async def"),
            ("approvals", "True", "approvals takes Approvals, the path of its file or False"),
            ("approvals", "5", "approvals takes Approvals, the path of its file or False"),
            ("journal", "5", "the journal of calls is kept at a path, at a URL, or in a Store, not in"),
            (
                "journal",
                "{'destroy': 'always'}",
                "the journal of calls is kept at a path, at a URL, or in a Store, not in",
            ),
            ("audit", "True", "does not say where to"),
            ("audit", "5", "audit takes an AuditLog or the path of its file"),
            ("audit", "'.'", "is a folder, so no line could be written"),
            ("audit", "AuditLog('.')", "is a folder, so no line could be written"),
            ("audit", "AuditLog('')", "is a folder, so no line could be written"),
            ("auth", "StaticTokens", "StaticTokens is a class, which verifies no tokens"),
            ("auth", "{'ci': 'x' * 20}", "verifies no tokens"),
            ("auth", "no", "verifies no tokens"),
            ("auth", "[]", "no verifier is given"),
            ("auth", "False", "verifies no tokens"),
            ("capabilities", "'ask'", "capabilities is a list of names"),
            ("capabilities", "['aks']", "there is no capability 'aks'"),
            ("limits", "{destroy: Limits(rate='1/s')}", "takes limits by pattern"),
            ("limits", "{'*': Limits(callers=Limits(rate='1/s'))}", "takes a list of Limits"),
            ("policy", "Policy(roles=['x'])", "policy.roles takes"),
            ("policy", "Policy(roles=Policy(deny=['*']))", "policy.roles takes"),
            ("policy", "Policy(roles={'x': ['destroy']})", "takes a Policy("),
            ("rules", "Rules(strict='yes')", "Rules(strict=…) takes True, False or None"),
            ("rules", "Rules(strict=0)", "Rules(strict=…) takes True, False or None"),
            ("rules", "Rules(observers=[no])", "an observer is called, not awaited"),
            ("rules", "Rules(descriptions={'destory': 'x'})", _NEAR),
        ]
    ),
    (
        "a verifier that is sync",
        "class V:\n    def verify(self, token): ...\nToolsetServer(Toolset(destroy), auth=V())",
        "V.verify is not async, so nobody could log in",
    ),
    (
        "a verifier of two parameters",
        "class V:\n    async def verify(self, token, request): ...\nAuthenticator(V())",
        "V.verify takes a token alone",
    ),
    (
        "a verifier with a misspelt method",
        "class V:\n    async def verfy(self, token): ...\nToolsetServer(Toolset(destroy), auth=V())",
        "V verifies no tokens",
    ),
    *(
        (
            f"filtered({given}) of another form",
            f"{_DECIDING}\nserver = ToolsetServer(Toolset(destroy).filtered({given}))",
            says,
        )
        for given, says in [
            ("no", "takes a plain function of (binding)"),
            ("'destroy'", "takes a plain function of (binding), or names"),
            ("['destroy']", "takes a plain function of (binding), or names"),
            ("False", "takes a plain function of (binding), or names"),
            ("lambda: False", "this one takes ()"),
            ("lambda one: 'no'", "returns True or False, not 'no'"),
        ]
    ),
    *(
        (
            f"a hook that is the method {said}",
            f"class G:\n    async def f(self{more}): ...\n{program}",
            "is a method",
        )
        for said, more, program in [
            ("of a class", ", call", "hooks.execution('destroy')(G.f)"),
            ("with another name", ", c", "hooks.execution('destroy')(G.f)"),
            ("alone", "", "hooks.execution('destroy')(G.f)"),
            ("of results", ", result", "hooks.result('destroy')(G.f)"),
        ]
    ),
    *(
        (f"Policy({said}) of another form", f"Policy({said})", says)
        for said, says in [
            ("deny=None", "policy.deny takes a list of patterns"),
            ("deny={'destroy': True}", "policy.deny takes a list of patterns"),
            ("deny=[b'destroy']", "policy.deny takes a list of patterns"),
            ("ask=5", "policy.ask takes a list of patterns"),
            ("roles={'x': None}", "takes a Policy("),
        ]
    ),
    ("limits that limit nothing", "CallLimits({'*': Limits()})", "Limits() limits nothing"),
    ("limits of a server that limit nothing", _ruled("limits={'*': Limits()}"), "Limits() limits nothing"),
    ("off with a list", "Toolset(destroy).off(['destroy'])", "off() takes tools one by one"),
    ("off with nothing", "Toolset(destroy).off(None)", "a tool is selected by its public name"),
    (
        "a hint that is a text",
        "@tool(read_only='no')\ndef f() -> str:\n    return ''",
        "read_only is True, False or None",
    ),
    (
        "a destructive hint of 0",
        "@tool(destructive=0)\ndef f() -> str:\n    return ''",
        "destructive is True, False",
    ),
    (
        "tags in one text",
        "@tool(tags='money')\ndef f() -> str:\n    return ''",
        "tags are several non-empty texts",
    ),
    (
        "a capability misspelt",
        "server = ToolsetServer(Toolset(destroy).granting('aks'))",
        "no capability 'aks'",
    ),
    ("a timeout of a text", "Timeout('5')", "Timeout: seconds is a positive number"),
    (
        "a deadline of an answer",
        f"{_DECIDING}\nPermissionChecker(deny, ask_timeout=-1)",
        "PermissionChecker: ask_timeout is a positive number",
    ),
]
"""Arguments and classes that say what protects, in a form that would not."""
