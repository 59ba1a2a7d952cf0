"""Careless programs, in which a rule was silently ignored: the name, the program, the error.

`LOUD` are raised where the mistake is written, when the `server` is opened, or when `main` runs.
"""

from __future__ import annotations

PRELUDE = """
from __future__ import annotations

from pydantic import BaseModel

import mcp_toolset
from mcp_toolset import *
from mcp_toolset.shared import *
from mcp_toolset.arguments import *
from mcp_toolset.audit import *
from mcp_toolset.auth import *
from mcp_toolset.errors import *
from mcp_toolset.grants import *
from mcp_toolset.journal import *
from mcp_toolset.middleware import *
from mcp_toolset.policy import *
from mcp_toolset.rounds import *
from mcp_toolset.testing import *

ran = []

@tool
async def pay(amount: int = 1) -> str:
    "Pay an amount."
    ran.append(amount)
    return f"paid {amount}"

@tool(read_only=True)
async def look() -> str:
    "Look."
    return "looked"

async def no(call):
    return Reject("no")

async def layer(call, context, next):
    return ToolResult.of_error("no")

def deciding(name="pay"):
    made = HookSet()
    made.execution(name)(no)
    return made

ANY = [ToolCall("pay", {"amount": 1}, "c1")]
VIEW = Toolset(pay).view()

def round_of(view, amount=5000, name="pay"):
    return ToolRound.from_calls([ToolCall(name, {"amount": amount}, "c1")], view)
"""

_SERVED = "Toolset(pay)"
_REPLACED = "takes the place of"


def _replaced(base: str, method: str, kept: str = "") -> tuple[str, str, str]:
    program = f"class Own({base}):\n    def {method}(self, *given, **named):\n        raise PermissionError"
    return f"{base}.{method} in a subclass{kept}", program, f"Own.{method} {_REPLACED} {base}.{method}"


def _main(program: str) -> str:
    return "async def main():\n" + "\n".join(f"    {line}" for line in program.splitlines())


_FILE = """
from pathlib import Path
denied = '"toolset": {"permissions": {"deny": ["*"]}}'
Path('mcp.json').write_text('{"mcpServers": {"a": {"command": "none"}}, %s}' % denied)
"""
_EXTENDING = """
from mcp_toolset.extending import Extension
DENY = Policy(deny=["pay"])
class X(Extension):
    key = "x"
"""

LOUD: list[tuple[str, str, str]] = [
    *(
        _replaced(base, method)
        for base, methods in {
            "HookSet": ("about", "describe", "description_hook", "execution_hooks", "result_hooks"),
            "Policy": ("decide", "decide_facts", "facts", "group", "looks"),
            "PolicyGuard": ("denies", "__call__"),
            "CallLimits": ("facts", "of", "__call__"),
            "Rules": ("around", "denies", "describe", "run"),
            "ToolsetServer": ("bindings", "call_as_host", "call_tool", "search", "tools"),
        }.items()
        for method in methods
    ),
    *(
        (f"a tool that is off, executed by {given}", _main(f"await {given}"), "pay; it is switched off")
        for given in (
            "Toolset(pay).off('pay').execute('pay')",
            "Toolset(pay, look).off(pay).prefixed('a').execute('a_pay')",
            "Toolset(pay).off('pay').execute(pay, rules=Rules())",
        )
    ),
    *(
        (
            f"{base} with {method.splitlines()[0]}",
            f"class Own({base}):\n    {method}\n        return 'deny'",
            "is asked by no call, so it would protect nothing: write a hook",
        )
        for base, methods in {
            "HookSet": ("async def pay(self, call, input):", "async def execution(self, call, input):"),
            "HookSet ": ("async def __call__(self, call, input):", "def check_pay(self, call):"),
            "PermissionChecker": ("def policy(self, call):", "async def check(self, call):"),
            "Policy": ("def verdict(self, call):", "def __call__(self, call):"),
            "PolicyGuard": ("async def check(self, name):",),
            "CallLimits": ("def allow(self, call):",),
            "Rules": ("def decide(self, call):",),
        }.items()
        for method in methods
    ),
    *(
        (
            f"self.{name} = {value} in a provider",
            "class Own(ToolProvider):\n"
            "    async def list_definitions(self): return []\n"
            "    async def execute(self, call, context): ...\n"
            f"    def __init__(self):\n        self.{name} = {value}\nOwn()",
            f"provider.{name} = … applies the ",
        )
        for name, value in [
            ("rules", "Rules(hooks=deciding())"),
            ("hooks", "deciding()"),
            ("checks", "[layer]"),
        ]
    ),
    *(
        (f"filtered({given})", f"Toolset(pay, look).filtered({given}).view()", says)
        for given, says in [
            ("", "filtered() keeps every tool"),
            ("None", "filtered() keeps every tool"),
            ("lambda one: 'no'", "returns True or False, not 'no'"),
            ("lambda one: [False]", "returns True or False, not [False]"),
        ]
    ),
    *(
        (
            f"JWT(leeway={value})",
            f"JWT(issuer='https://a.example', audience='b', leeway={value})",
            f"JWT(leeway=…) takes a number of seconds up to 600, not {value}",
        )
        for value in ("30000", "-1", "'30'", "None")
    ),
    (
        "an empty answer to a question of yes or no",
        _main(
            "plan = await round_of(VIEW).apply(PermissionChecker(lambda call: 'ask'))\n"
            "await plan.run_pending()\n"
            "plan.answer('c1', {})"
        ),
        "is answered with True or False",
    ),
    *(
        (
            f"{form} with a method that is named as a hook is, {given}",
            f"class Own:\n    async def pay_hook(self, call): ...\n{body}\nmade = {given}",
            "Own decides itself, so no call asks Own.pay_hook: give them apart",
        )
        for form, body, places in [
            (
                "a hook",
                "    async def __call__(self, call, input):\n        return RunNormally(input)",
                (
                    "ToolsetServer(Toolset(pay), rules=Own())",
                    "Rules().merged(Own())",
                    "Toolset(pay).carrying(Own())",
                ),
            ),
            (
                "middleware",
                "    async def __call__(self, call, context, next):\n        return await next()",
                (
                    "ToolsetServer(Toolset(pay), rules=[Own()])",
                    "ToolsetServer(Toolset(pay), middleware=[Own()])",
                    "Rules(tool_middleware={'pay': [Own()]})",
                ),
            ),
            (
                "a guard",
                "    def gate(self, binding):\n        return None\n"
                "    def layers(self, binding):\n        return ()",
                ("Rules(guards=[Own()])", "Rules.of(Own())"),
            ),
        ]
        for given in places
    ),
    (
        "a policy as a property of a server",
        "class Own(ToolsetServer):\n    policy = property(lambda self: Policy(deny=['*']))",
        f"Own.policy {_REPLACED} ToolsetServer.policy",
    ),
    *(
        (
            f"{name} as a method of a server",
            f"class Own(ToolsetServer):\n    def {name}(self, *given):\n        return None",
            f"Own.{name} applies to nothing: give {name}=…",
        )
        for name in ("access", "limits", "middleware", "rules")
    ),
    *(
        (
            f"{name} of a server that is made",
            f"ToolsetServer(Toolset(pay)).{name} = {value}",
            f"server.{name} = … applies to no call",
        )
        for name, value in [
            ("audit", "AuditLog('a.jsonl')"),
            ("audit", "'a.jsonl'"),
            ("grants", "GrantLedger(bearer_uses=1)"),
            ("toolset", "Toolset(look)"),
            ("call_tool", "no"),
            ("quota", "RateLimit(1, 60)"),
            ("quota", "[RetryLimit(1)]"),
            ("around", "layer"),
        ]
    ),
    *(
        (
            f"{value} as an attribute of a class of {base}",
            f"class Own({base}):\n    rule = {value}",
            "Own.rule is a ",
        )
        for base in ("ToolProvider", "ToolsetServer")
        for value in (
            "deciding()",
            "Policy(deny=['*'])",
            "RateLimit(1, 60)",
            "layer",
            "StaticTokens({'a': 'x' * 20})",
        )
    ),
    (
        "a hook as a method of a provider",
        "class Own(ToolProvider):\n    async def pay_hook(self, call): return Reject('no')",
        "Own.pay_hook is a hook",
    ),
    *(
        (
            f"{value} as an attribute of a class of toolsets",
            f"class App(Toolset):\n    pay = pay\n    rule = {value}",
            "App.rule is a ",
        )
        for value in ("RateLimit(1, 60)", "RetryLimit(1)", "JournalGuard('j')", "AuditLog('a')")
    ),
    *(
        (
            f"Toolset.{name} in a subclass",
            f"class App(Toolset):\n    pay = pay\n    def {name}(self, *given):\n        raise KeyError",
            f"App.{name} would take the place of Toolset.{name}",
        )
        for name in ("definitions", "execute", "find", "names", "view")
    ),
    *(
        (
            f"{name} as a {kind} of a class of toolsets",
            f"class App(Toolset):\n    pay = pay\n    {made}",
            f"App.{name} is never asked, as methods of a toolset are no rules",
        )
        for name in ("rules", "hooks", "middleware", "guards", "policy", "permissions")
        for kind, made in [
            ("method", f"def {name}(self):\n        return deciding()"),
            ("property", f"{name} = property(lambda self: deciding())"),
        ]
    ),
    *(
        (f"a rule for some callers that never applies, {where}", made, f" never applies, as policy.{before}")
        for where, made, before in [
            (
                "behind one for everybody",
                "Policy(principals={'*': Policy(allow=['*'])}, roles={'x': Policy(deny=['pay'])})",
                "principals['*'].allow",
            ),
            (
                "behind one for all names",
                "Policy(principals={'*': Policy(allow=['pay']), 'bob': Policy(ask=['pay'])})",
                "principals['*'].allow",
            ),
            (
                "behind that of its server",
                "Policy(deny=['git/push'], servers={'git': Policy(allow=['*'])})",
                "servers['git'].allow",
            ),
        ]
    ),
    *(
        (
            f"the members of {made}",
            f"{file}made = {made}\nserver = ToolsetServer(Toolset(*made.members()))",
            "give the toolset itself, Toolset(tools)",
        )
        for file, made in [
            ("", "Toolset(pay, look).off('pay')"),
            ("", "Toolset(pay).filtered(exclude=['pay'])"),
            ("", "Toolset(pay).deferred()"),
            ("", "Toolset(pay).carrying(deciding()).prefixed('x')"),
            (_FILE, "load_toolset('mcp.json')"),
        ]
    ),
    *(
        (
            f"an extension with {name}",
            f"{_EXTENDING}    {body}\nserver = ToolsetServer(Toolset(pay), extensions=[X()])",
            f"X.{name} is asked by no call, so it would protect nothing: {mend}",
        )
        for name, body, mend in [
            ("send", "def send(self, call, context): raise CallError('no')", "did you mean `sent`?"),
            ("answerd", "def answerd(self, r, c, x): raise CallError('no')", "did you mean `answered`?"),
            ("guards", "def guards(self): return [PolicyGuard(DENY)]", "did you mean `guard`?"),
            ("gaurd", "@property\n    def gaurd(self): return PolicyGuard(DENY)", "did you mean `guard`?"),
            ("policy", "def policy(self): return DENY", "return a rule from `guard`"),
            ("middleware", "def middleware(self): return [layer]", "return a rule from `guard`"),
            ("hooks", "def hooks(self): return hooks", "return a rule from `guard`"),
            ("rules", "rules = Rules(guards=[PolicyGuard(DENY)])", "return a rule from `guard`"),
            ("deny", "deny = ['pay']", "return a rule from `guard`"),
            ("around", "async def around(self, call, context, next): ...", "return a rule from `guard`"),
            ("first", "@staticmethod\n    async def first(call, context, next): ...", "return a rule"),
            ("pay_hook", "async def pay_hook(self, call): return Reject('no')", "return a rule"),
            ("intercept_tool_call", "async def intercept_tool_call(self, params, ctx, call_next): ...", ""),
        ]
    ),
    *(
        (
            f"an extension whose method is set {where}",
            f"{_EXTENDING}{body}\nToolsetServer(Toolset(pay), extensions=[x])",
            "X.sent is set on the object, where no call asks for it: define sent in the class",
        )
        for where, body in {
            "in __init__": "    def __init__(self): self.sent = lambda call, context: None\nx = X()",
            "later": "    ...\nx = X()\nx.sent = lambda call, context: None",
        }.items()
    ),
    (
        "a tool of a class that is set on the instance",
        "class App(Toolset):\n    pay = pay\nApp().pay = look",
        "toolset.pay = … leaves the tools of the class as they are",
    ),
    (
        "a toolset of a class that is narrowed in __init__",
        "class Data(Toolset):\n    pay = pay\nclass App(Toolset):\n    data = Data()\n"
        "    def __init__(self):\n        super().__init__()\n        self.data = self.data.off()\nApp()",
        "toolset.data = … leaves the tools of the class as they are",
    ),
    *(
        (f"{made} that is not returned", _main(made), "decides nothing, as line ")
        for made in ("Reject('no')", "Complete('no')", "AccessDenied()", "ToolResult.of_error('no')")
    ),
    *(
        (f"{key} as one text, in {made}", f"{made}({given}{key}='admin')", f"{key} is a list of names")
        for key in ("roles", "scopes")
        for made, given in [("Identity.of", "'ann', "), ("StaticToken", "'x' * 20, ")]
    ),
    (
        "roles as one text, from the environment",
        "StaticTokens.from_env('a=A', roles='admin', environ={'A': 'x' * 20})",
        "roles is a list of names",
    ),
    (
        "a choice of tools that is a text",
        _main("async with ToolsetServer(Toolset(pay)) as server:\n    await server.choose({'pay': 'off'})"),
        "is chosen by True, False or None, not 'off'",
    ),
    *(
        (
            f"rules in the place of the context, {where}",
            _main(
                f"await {where}({{}}, deciding())"
                if where == "pay.execute"
                else f"await {where}(pay, {{}}, deciding())"
            ),
            "give rules as rules=…",
        )
        for where in ("Toolset(pay).execute", "Toolset(pay).view().execute", "pay.execute")
    ),
    *(
        (
            f"rules in the place of the context of {what}",
            _main(program),
            "give rules as rules=…, to round.apply",
        )
        for what, program in {
            "apply": "await round_of(Toolset(pay).view()).apply(context=deciding())",
            "run_pending": "await round_of(Toolset(pay).view()).plan.run_pending(context=deciding())",
            "a typed call": "await Toolset(pay).decode(ANY[0], VIEW).call(deciding())",
            "the hook of a typed call": "call = Toolset(pay).decode(ANY[0], VIEW)\n"
            "await call.hook(no, context=Policy(deny=['pay']))",
            "the testing of a tool": "await execute(Toolset(pay).view()['pay'], {}, deciding())",
        }.items()
    ),
    *(
        (
            f"rules behind the view of ToolRound.{made}",
            _main(f"ToolRound.{made}(ANY, VIEW, deciding())"),
            says,
        )
        for made, says in [
            *((f"from_{one}", "positional arguments") for one in ("calls", "openai", "anthropic", "state")),
            ("from_openai_responses", "positional arguments"),
            ("of", "positional arguments"),
        ]
    ),
    *(
        (
            f"{name} of a round",
            _main(f"round_of(Toolset(pay).view()).{name} = deciding()"),
            f"'ToolRound' object {says} {name!r}",
        )
        for name, says in [
            ("rules", "has no attribute"),
            ("hooks", "has no attribute"),
            ("apply", "attribute"),
        ]
    ),
    (
        "rules that are applied to calls that have run",
        _main("plan = round_of(VIEW).plan\nawait plan.run_pending()\nawait plan.apply(deciding())"),
        "every call of this round has run, so rules would protect nothing",
    ),
    ("a tool as an observer", "Rules(observers=[pay])", "an observer is a function of a CallReport"),
    (
        "middleware by tool as observers",
        "Rules(observers={pay: [layer]})",
        "observers is a list of functions",
    ),
    *(
        (
            f"{rule} by the name that a tool had before {verb}, {where}",
            f"tools = Toolset(pay).{verb}\nserver = ToolsetServer({served})",
            "has no effect: there is no such tool; did you mean ",
        )
        for verb in ("prefixed('shop')", "renamed({'pay': 'pay_out'})", "prefixed('a').prefixed('b')")
        for rule, given in [
            ("a limit", "CallLimits({'pay': Limits(calls=1)})"),
            ("what is allowed", "PolicyGuard(Policy(allow=['pay']))"),
            ("a mode of a journal", "JournalGuard('j', {'pay': 'once'})"),
        ]
        for where, served in [
            ("of the server", f"tools, rules=Rules(guards=[{given}])"),
            ("of its host", f"Toolset(tools), rules=Rules(guards=[{given}])"),
            ("that it carries", f"tools.carrying(Rules(guards=[{given}]))"),
        ]
    ),
    (
        "a typed call that goes around carried rules",
        _main(
            "tools = Toolset(pay).carrying(deciding())\n"
            "call = round_of(tools.view()).plan.pending[0]\n"
            "await tools.decode(call, tools.view()).call()"
        ),
        "has rules that its toolset carries",
    ),
    (
        "the result of a call with carried rules, from elsewhere",
        _main(
            "tools = Toolset(pay).carrying(deciding())\n"
            "plan = round_of(tools.view()).plan\n"
            "call = tools.decode(plan.pending[0], tools.view())\n"
            "plan.commit([call.complete('paid')])"
        ),
        "or rules that its toolset carries",
    ),
    *(
        (
            f"a typed call that goes on after its hooks {what}",
            _main(
                "async def other(call):\n"
                f"    return {decision}\n"
                "tools = Toolset(pay)\n"
                "call = tools.decode(round_of(tools.view()).plan.pending[0], tools.view())\n"
                "await call.hook(other)\n"
                "await call.call()"
            ),
            "go on with what call.hook(…) returned",
        )
        for what, decision in [
            ("refused it", "Reject('no')"),
            ("answered it", "Complete('paid')"),
            ("changed it", "RunNormally({'amount': 1})"),
        ]
    ),
    (
        "a carried hook whose argument the outside renames",
        """
class Amount(BaseModel):
    amount: int = 0
async def small(call, input):
    return Reject("no") if input.amount > 1000 else RunNormally(input)
small.__annotations__["input"] = Amount
hooks = HookSet()
hooks.execution("pay")(small)
tools = Toolset(pay).carrying(hooks).with_arguments({"pay": {"amount": rename("sum")}})
server = ToolsetServer(tools)
""",
        "its input Amount has 'amount', and tool 'pay' has 'sum'",
    ),
    *(
        (
            f"{what} of {name}",
            f"server = ToolsetServer(Toolset(pay).deferred(), {given})",
            "it calls another tool, and rules are asked about that one",
        )
        for name in ("call_tool", "call_read_only_tool")
        for what, given in [
            ("a hook", f"hooks=deciding({name!r})"),
            ("middleware", f"tool_middleware={{{name!r}: [layer]}}"),
        ]
    ),
    (
        "a misspelt tool in the rules of a journal",
        "guard = JournalGuard('j', {'lok': 'once'})\nserver = ToolsetServer(Toolset(look), journal=guard)",
        "journal('lok') has no effect",
    ),
    (
        "a misspelt tool in the rules of a journal of a loop",
        _main(
            "guard = JournalGuard('j', {'lok': 'once'})\n"
            "await round_of(Toolset(look).view(), name='look').apply(Rules(guards=[guard]))"
        ),
        "journal('lok') has no effect",
    ),
    (
        "a misspelt tool of a hook that a toolset carries, registered later",
        "hooks = HookSet()\ntools = Toolset(pay).carrying(hooks)\nhooks.execution('pya')(no)\n"
        "server = ToolsetServer(tools)",
        "hooks.execution('pya') has no effect",
    ),
]
"""Programs that raise."""

_MOUNT = "RemoteToolset(ScriptedServer('shop', pay), name='shop')"
_TYPED = """
class Amount(BaseModel):
    amuont: int = 0
async def small(call, input):
    return Reject("no") if input.amuont > 1000 else RunNormally(input)
small.__annotations__["input"] = Amount
hooks = HookSet()
hooks.execution("pay")(small)
"""

WARNED: list[tuple[str, str, str]] = [
    *(
        (
            f"{rule} that a mounted toolset carries, for {said}",
            f"server = ToolsetServer({_MOUNT}.carrying({given}).prefixed('shop'))",
            f"{where}('{said}') has no effect: there is no such tool",
        )
        for said in ("pya", "shop_pay")
        for rule, given, where in [
            ("a hook", f"deciding('{said}')", "hooks.execution"),
            ("a policy", f"PolicyGuard(Policy(deny=['{said}']))", "policy.deny"),
        ]
    ),
    *(
        (
            f"{rule} by a mounted tool's name before {verb}",
            f"server = ToolsetServer({_MOUNT}.{verb}, rules=Rules(guards=[{given}]))",
            "('pay') has no effect: there is no such tool; did you mean ",
        )
        for verb in ("prefixed('b')", "renamed({'pay': 'pay_out'})", "prefixed('b').prefixed('c')")
        for rule, given in [
            ("a limit", "CallLimits({'pay': Limits(calls=1)})"),
            ("a mode of a journal", "JournalGuard('j', {'pay': 'once'})"),
        ]
    ),
    *(
        (
            f"a general rule, {given}, behind rules of the only server, {by}",
            f"policy = Policy({given}, servers={{'shop': Policy(allow=['*'])}})\n"
            f"server = ToolsetServer(Toolset({_MOUNT}, look), {by})",
            "has no effect: the rules of each server are asked before it and allow '*': write it there",
        )
        for by in ("policy=policy", "rules=PolicyGuard(policy)")
        for given in ("deny=['pay']", "deny=['look', 'p*']", "ask=['pay']")
    ),
    (
        "a typed hook of a mounted tool that lacks its fields",
        f"{_TYPED}server = ToolsetServer({_MOUNT}, hooks=hooks)",
        "its input Amount has 'amuont', and tool 'pay' has 'amount'",
    ),
    (
        "a typed hook that a mounted toolset carries",
        f"{_TYPED}server = ToolsetServer({_MOUNT}.carrying(hooks))",
        "its input Amount has 'amuont', and tool 'pay' has 'amount'",
    ),
    (
        "a hook for a misspelt tool, registered while calls are served",
        _main(
            "hooks = HookSet()\n"
            "async with ToolsetServer(Toolset(pay), hooks=hooks):\n"
            "    hooks.execution('pya')(no)"
        ),
        "hooks.execution('pya') has no effect: there is no such tool; did you mean pay?",
    ),
]
"""Programs that log a warning."""

QUIET: dict[str, str] = {
    "a method of a mixin in the place of a tool": """
class App(Toolset):
    pay = pay
class Mixin:
    async def pay(self): raise PermissionError
class Safe(Mixin, App): ...
async def main():
    assert Safe().names() == []
""",
    "hooks for a round that was stored before hooks were applied": """
async def main():
    view = Toolset(pay).view()
    for rules in (deciding(), Rules(deciding(), guards=[PolicyGuard(Policy(allow=["*"]))])):
        state = round_of(view).to_state()
        for _ in range(2):
            plan = ToolRound.from_state(state, view, rules=rules).plan
            state = plan.to_state()
        await plan.run_pending()
        assert plan.results[0].result.text == "Rejected: no"
""",
    "rules that an iterator gives": """
from mcp_toolset.extending import Extension
class Refusing(Extension):
    key = "refusing"
    def sent(self, call, context): raise CallError("no")
class Told(Extension):
    key = "told"
    def observer(self): return lambda report: None
def own(): return {"pay": iter([layer])}
async def calls(server):
    async with Client(server, mode="legacy") as client:
        if "pay" in [one.name for one in (await client.list_tools()).tools]:
            assert (await client.call_tool("pay", {})).is_error
async def main():
    for given in (
        {"extensions": iter([Refusing()])},
        {"tool_middleware": own(), "extensions": [Told()]},
        {"rules": [Rules(tool_middleware=own())]},
        {"rules": Rules(middleware=iter([layer]))},
    ):
        server = ToolsetServer(Toolset(pay), **given)
        await calls(server)
        await calls(server.derived(name="again"))
    await calls(ToolsetServer(Toolset(pay).filtered(exclude=iter(["pay"]))))
    await calls(ToolsetServer(Toolset(pay).carrying(Rules(tool_middleware=own()))))
    assert Authenticator(StaticTokens({"a": "x" * 20}), required_scopes=iter(["b"])).required_scopes == ("b",)
""",
    "a manual call whose toolset carries rules": """
@tool(manual=True)
def sign() -> str: ...
async def main():
    view = Toolset(sign).carrying(deciding("sign")).view()
    plan = ToolRound.from_calls([ToolCall("sign", {}, "c1")], view).plan
    assert not plan.manual
    await plan.run_pending()
    assert plan.results[0].result.text == "Rejected: no"
""",
}
"""Programs whose rules apply now; none of them pays."""

RIGHT: dict[str, str] = {
    "a rule that asks its own methods": """
class Checker(PermissionChecker):
    def __init__(self):
        super().__init__(self.decide)
    def decide(self, call):
        return "deny"
class Set(HookSet):
    def __init__(self):
        super().__init__()
        self.execution("pay")(self.pay)
    async def pay(self, call):
        return Reject("no")
class Own(PermissionChecker):
    def cost(self, call):
        return call.arguments["amount"]
    async def __call__(self, call, context, next):
        return await next() if self.cost(call) < 9 else ToolResult.of_error("no")
class Named(HookSet):
    def names(self):
        return [use.name for use in self.uses()]
""",
    "a filter of nothing": """
server = ToolsetServer(Toolset(pay).filtered(exclude=()).filtered(include=("*",)))
""",
    "a class of servers with an access function that it passes on": """
class Own(ToolsetServer):
    def __init__(self, tools):
        super().__init__(tools, access=self.access)
    def access(self, binding, context): return None
async def main():
    async with Own(Toolset(pay).deferred()) as server:
        assert (await server.call_as_host("pay")).text == "paid 1"
""",
    "a set of hooks that registers its own": """
class Own(HookSet):
    def __init__(self):
        super().__init__()
        self.execution("pay")(self.allow)
    async def allow(self, call): return RunNormally(call.arguments)
async def main():
    assert (await Toolset(pay).execute("pay", rules=Own())).text == "paid 1"
""",
    "a verifier made of static tokens": """
class Own(StaticTokens):
    async def verify(self, token): return await super().verify(token)
own = Own({"ann": "x" * 20})
server = ToolsetServer(Toolset(pay), auth=own)
async def main():
    assert own.is_taken and await own.verify("x" * 20)
""",
    "decisions that are made before they are returned": """
async def main():
    hooks = HookSet()
    @hooks.execution("pay")
    async def decide(call):
        yes, refused = RunNormally(call.arguments), Reject("no")
        return [yes, refused][0]
    assert (await Toolset(pay).execute("pay", rules=hooks)).text == "paid 1"
""",
    "a typed call after hooks that let it run": """
async def main():
    async def allow(call): return RunNormally(call.arguments)
    tools = Toolset(pay)
    call = tools.decode(round_of(tools.view()).plan.pending[0], tools.view())
    await call.hook(allow)
    assert await call.call() == "paid 5000"
""",
    "an extension with parts of its own": """
from mcp_toolset.extending import Extension
class Base(Extension):
    key = "x"
    policy = Policy()
    def rules(self): return PolicyGuard(self.policy)
class X(Base):
    policy = Policy(deny=["pay"])
    def __init__(self): self.limits, self.hooks = {}, []
    def guard(self): return self.rules()
    def tools(self): return [self.tool()]
    def tool(self): return look
    def set(self, key, value): self.limits[key] = value
    def events(self): return self.hooks
    def ask(self, question): return question
server = ToolsetServer(Toolset(pay), extensions=[X()])
""",
    "a general rule beside rules of a server": f"""
server = ToolsetServer(
    Toolset({_MOUNT}, look),
    policy=Policy(deny=["lo*", "destructive:*"], servers={{"shop": Policy(allow=["*"])}}),
    rules=Rules(strict=True),
)
""",
    "an attribute of a toolset that no tool has": """
class App(Toolset):
    pay = pay
    def __init__(self):
        super().__init__()
        self.inner = Toolset(look)
        self.limit = 5
async def main():
    assert App().names() == ["pay"]
""",
    "policies whose sections apply one after the other": """
Policy(principals={"bob": Policy(deny=["pay"]), "*": Policy(allow=["*"])}, roles={"x": Policy(allow=["*"])})
Policy(roles={"x": Policy(allow=["*"]), "y": Policy(deny=["pay"])}, scopes={"x": Policy(ask=["pay"])})
Policy(deny=["push", "git/*"], servers={"git": Policy(allow=["pull"]), "hub": Policy(allow=["*"])})
async def main(): pass
""",
    "tools of a class with the names of rules": """
class App(Toolset):
    @tool
    def policy(self) -> str:
        "Say the policy."
        return "be kind"
    rules = look
    def _hooks(self): return deciding()
async def main():
    assert App().names() == ["policy", "look"]
    assert (await App().execute("policy", {})).text == "be kind"
""",
    "a typed hook of a compact listing": """
class Amount(BaseModel):
    amount: int
async def allow(call, input):
    return RunNormally(input)
allow.__annotations__["input"] = Amount
hooks = HookSet()
hooks.execution("pay")(allow)
async def main():
    async with ToolsetServer(Toolset(pay).compact(), hooks=hooks) as server:
        assert (await server.call_tool("pay", {"amount": 2})).text == "paid 2"
""",
    "a hook for every tool of a deferred toolset": """
async def main():
    async def allow(call): return RunNormally(call.arguments)
    async with ToolsetServer(Toolset(pay).deferred(), rules=allow) as server:
        grant = (await server.call_tool("resolve_tools", {"ids": ["pay"]})).structured["tools"][0]["grant"]
        result = await server.call_tool("call_tool", {"grant": grant, "arguments": {"amount": 2}})
        assert result.text == "paid 2"
""",
    "a round that was stored after its hooks": """
seen = []
async def allow(call):
    seen.append(call.id)
    return RunNormally(call.arguments)
async def main():
    view = Toolset(pay).view()
    state = (await round_of(view).apply(allow)).to_state()
    plan = ToolRound.from_state(state, view, rules=allow).plan
    await plan.run_pending()
    assert seen == ["c1"] and plan.results[0].result.text == "paid 5000"
""",
}
"""Programs that nothing may refuse."""
