"""Mistakes in a configuration file that would leave a protection without effect.

A row is the name of the mistake, what the file has beside its server `a` (or the whole text of the file), and
what the refusal says. `FILES` are refused whole; of `ENTRIES` only the server `a` cannot be used.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from tests.support.configured import PLAIN

SERVER: dict[str, Any] = {
    "command": sys.executable,
    "args": [PLAIN, json.dumps({"tools": ["destroy", "look"]})],
}
RULES = {"deny": ["a_destroy"]}
TOKENS = {"tokens": {"ci": {"token": "a-token-of-many-letters-0123456789"}}}


def _moved(right: str) -> str:
    return f"is in the wrong place, where it has no effect; move it to `{right}`"


def _top(key: str, value: Any, right: str) -> tuple[str, dict[str, Any], str]:
    return f"{key} at the top level", {key: value}, f"{key}: {_moved(right)}"


LIMITED = {"*": {"rate": "1/min"}}


def _entry(**more: Any) -> dict[str, Any]:
    return {"mcpServers": {"a": {**SERVER, **more}}}


MISPLACED: list[tuple[str, Any, str]] = [
    _top("permissions", RULES, "toolset.permissions"),
    _top("limits", {"*": {"rate": "1/min"}}, "toolset.limits"),
    _top("audit", "audit.jsonl", "toolset.audit"),
    _top("approvals", ["a_destroy"], "toolset.permissions.ask"),
    _top("tokens", TOKENS["tokens"], "toolset.auth.tokens"),
    _top("trusted_proxies", [], "toolset.http.trusted_proxies"),
    _top("exclude", ["destroy"], "mcpServers.NAME.exclude"),
    _top("Permissions", RULES, "toolset.permissions"),
    _top("permission", RULES, "toolset.permissions"),
    _top("permisions", RULES, "toolset.permissions"),
    _top("limit", {}, "toolset.limits"),
    _top("AUDIT", "audit.jsonl", "toolset.audit"),
    _top("required-scopes", [], "toolset.auth.required_scopes"),
    _top("hiddenText", "refuse", "toolset.hidden_text"),
    ("toolset in capitals", {"TOOLSET": {"permissions": RULES}}, "did you mean `toolset`?"),
    ("toolset in two words", {"tool_set": {"permissions": RULES}}, "did you mean `toolset`?"),
    ("toolset in the plural", {"toolsets": {"permissions": RULES}}, "did you mean `toolset`?"),
    ("toolset with letters swapped", {"toolste": {"permissions": RULES}}, "did you mean `toolset`?"),
    ("toolset by the package's name", {"mcp-toolset": {"permissions": RULES}}, "did you mean `toolset`?"),
    ("toolset called settings", {"settings": {"permissions": RULES}}, f"settings: {_moved('toolset')}"),
    ("toolset called hub, with a journal", {"hub": {"journal": True}}, f"hub: {_moved('toolset')}"),
    ("journal in the plural", {"journals": True}, f"journals: {_moved('toolset.journal')}"),
    ("toolset called bridge", {"bridge": {"auth": TOKENS}}, f"bridge: {_moved('toolset')}"),
    ("toolset called policy", {"policy": {"limits": {}}}, f"policy: {_moved('toolset')}"),
    ("toolset in mcp", {"mcp": {"toolset": {"permissions": RULES}}}, f"mcp.toolset: {_moved('toolset')}"),
    ("permissions in mcp", {"mcp": {"permissions": RULES}}, _moved("toolset.permissions")),
    ("toolset twice nested", {"toolset": {"toolset": {"permissions": RULES}}}, "move it to `toolset`"),
    ("tokens beside auth", {"toolset": TOKENS}, "toolset.tokens: unknown option; move it to `toolset.auth."),
    ("deny beside permissions", {"toolset": RULES}, "move it to `toolset.permissions.deny`"),
    ("approvals in toolset", {"toolset": {"approvals": ["a"]}}, "move it to `toolset.permissions.ask`"),
    ("exclude in toolset", {"toolset": {"exclude": ["a"]}}, "move it to `mcpServers.NAME.exclude`"),
    ("include in toolset", {"toolset": {"include": ["a"]}}, "move it to `mcpServers.NAME.include`"),
    ("audience in auth", {"toolset": {"auth": {**TOKENS, "issuer": "x"}}}, "`toolset.auth.jwt.issuer`"),
    ("deny in auth", {"toolset": {"auth": {**TOKENS, **RULES}}}, "`toolset.permissions.deny`"),
    ("auth in permissions", {"toolset": {"permissions": {"auth": TOKENS}}}, "move it to `toolset.auth`"),
    ("max_bytes in toolset", {"toolset": {"max_bytes": 5}}, "move it to `toolset.audit.max_bytes`"),
    ("rate in toolset", {"toolset": {"rate": "1/min"}}, "move it to `toolset.limits.PATTERN.rate`"),
    (
        "roles beside deny",
        {"toolset": {"permissions": {**RULES, "roles": ["x"]}}},
        "move it to `toolset.permissions.for.roles`",
    ),
    (
        "permissions among the servers",
        {"mcpServers": {"a": SERVER, "permissions": RULES}},
        f"mcpServers.permissions: {_moved('toolset.permissions')}",
    ),
    ("toolset among the servers", {"mcpServers": {"a": SERVER, "toolset": {}}}, _moved("toolset")),
    ("limits among the servers", {"mcpServers": {"a": SERVER, "limits": {}}}, _moved("toolset.limits")),
    ("audit among the servers", {"mcpServers": {"a": SERVER, "audit": "x"}}, _moved("toolset.audit")),
    ("auth among the servers", {"mcpServers": {"a": SERVER, "auth": TOKENS}}, _moved("toolset.auth")),
    ("toolset in an entry", {"mcpServers": {"a": {**SERVER, "toolset": {}}}}, _moved("toolset")),
    ("audit in an entry", {"mcpServers": {"a": {**SERVER, "audit": "x"}}}, _moved("toolset.audit")),
    ("lock in an entry", {"mcpServers": {"a": {**SERVER, "lock": "x"}}}, _moved("toolset.lock")),
    (
        "tokens in an entry",
        {"mcpServers": {"a": {"url": "https://a.example/mcp", "auth": TOKENS}}},
        _moved("toolset.auth.tokens"),
    ),
    ("a wrapper with more in it", {"x": {"permissions": RULES, "y": 1}}, "x.permissions: is in the wrong"),
    ("a wrapper within a wrapper", {"x": {"y": {"limits": LIMITED}}}, "x.y: is in the wrong place"),
    ("a wrapper that is a list", {"x": [{"permissions": RULES}]}, "is in the wrong place"),
    ("a client's own key as a wrapper", {"sandbox": {"permissions": RULES}}, "sandbox: is in the wrong"),
    ("permissions under a dotted name", {"toolset.permissions": RULES}, _moved("toolset.permissions")),
    ("permissions called policy", {"policy": {"deny": ["a"], "ask": []}}, _moved("toolset.permissions")),
    (
        "permissions in letters that look alike",
        {"permi\u0455\u0455ion\u0455": RULES},
        "`toolset.permissions`",
    ),
    ("permissions with a hidden letter", {"permis\u200bsions": RULES}, "`toolset.permissions`"),
    ("limits called quota", {"quota": LIMITED}, f"quota: {_moved('toolset.limits')}"),
    ("audit called auditLog", {"auditLog": "audit.jsonl"}, _moved("toolset.audit")),
    ("auth called login", {"login": TOKENS}, _moved("toolset.auth")),
    ("egress", {"egress": {"allow": []}}, _moved("toolset.egress")),
    ("rules in a second section", {"servers": {"a": {**SERVER, "exclude": ["a"]}}}, "`mcpServers.a.exclude`"),
    ("rules in Zed's section", {"context_servers": {"b": {"permissions": RULES}}}, "in the wrong place"),
    ("permissions in an input", {"inputs": [{"id": "a", "permissions": RULES}]}, "inputs[0].permissions: is"),
    (
        "permissions in settings of an entry",
        _entry(settings={"permissions": RULES}),
        "a.settings: is in the wrong",
    ),
    (
        "auth in options of an entry",
        _entry(options={"auth": TOKENS, "x": 1}),
        "a.options.auth: is in the wrong",
    ),
    ("limits in oauth of an entry", _entry(oauth={"limits": LIMITED}), "a.oauth: is in the wrong place"),
]
"""What protects, at a place where it would be ignored."""


def _section(name: str, section: Any, says: str) -> tuple[str, Any, str]:
    return name, {"toolset": section}, says


def _rules(name: str, permissions: Any, says: str) -> tuple[str, Any, str]:
    return _section(f"permissions: {name}", {"permissions": permissions}, says)


def _login(name: str, auth: Any, says: str) -> tuple[str, Any, str]:
    return _section(f"auth: {name}", {"auth": auth}, says)


def _limit(name: str, limits: Any, says: str) -> tuple[str, Any, str]:
    return _section(f"limits: {name}", {"limits": limits}, says)


LONG = "a-token-of-many-letters-0123456789"
NULL = "is null, so it would protect nothing; give it a value, or remove it"
JWT = {"issuer": "https://i.example", "audience": "https://a.example/mcp"}
MALFORMED: list[tuple[str, Any, str]] = [
    *(
        _section(f"{key} is null", {key: None}, f"toolset.{key}: {NULL}")
        for key in ("permissions", "limits", "audit", "pins", "new_tools", "hidden_text", "lock", "arguments")
    ),
    _section("audit is a folder", {"audit": "."}, "is a folder, so no line could be written"),
    _section("auth is null", {"auth": None}, NULL),
    _rules("a caller with a blank", {"for": [{"roles": ["x "], **RULES}]}, "blanks at an end"),
    *(_rules(f"{key} is null", {key: None}, NULL) for key in ("allow", "ask", "deny", "for")),
    *(
        _rules(f"{key} of callers is null", {"for": [{"scopes": ["x"], "deny": ["*"], key: None}]}, NULL)
        for key in ("principals", "roles")
    ),
    ("toolset is null", {"toolset": None}, "toolset: must be an object"),
    ("toolset is a list", {"toolset": [{"permissions": RULES}]}, "toolset: must be an object"),
    ("toolset is a text", {"toolset": "strict"}, "toolset: must be an object"),
    _rules("a list", ["a_destroy"], "must be an object"),
    _rules("true", True, "must be an object"),
    _rules("a text", "deny", "must be an object"),
    _rules("deny is a text", {"deny": "a_destroy"}, "write `deny` as a list of strings"),
    _rules("deny is an object", {"deny": {"a_destroy": True}}, "write `deny` as a list of strings"),
    _rules("deny has a list", {"deny": [["a_destroy"]]}, "write `deny` as a list of strings"),
    _rules("deny has null", {"deny": [None]}, "write `deny` as a list of strings"),
    _rules("deny has nothing", {"deny": [""]}, "names no tool"),
    _rules("deny has blanks", {"deny": ["  "]}, "names no tool"),
    _rules("deny has a hint alone", {"deny": ["destructive:"]}, "names no tool"),
    _rules("denied", {"denied": ["a_destroy"]}, "unknown option"),
    _rules("Deny", {"Deny": ["a_destroy"]}, "did you mean `deny`?"),
    _rules("dney", {"dney": ["a_destroy"]}, "did you mean `deny`?"),
    _rules("exclude", {"exclude": ["destroy"]}, "move it to `mcpServers.NAME.exclude`"),
    _rules("a misspelt hint", {"deny": ["destuctive:*"]}, "did you mean `destructive:*`?"),
    _rules("a hint in snake case", {"deny": ["open_world:*"]}, "did you mean `openWorld:*`?"),
    _rules("a hint in capitals", {"ask": ["DESTRUCTIVE:*"]}, "did you mean `destructive:*`?"),
    _rules("an unknown server", {"deny": ["git/*"]}, "there is no server `git`; correct its name"),
    _rules("a misspelt server", {"deny": ["aa/*"]}, "there is no server `aa`"),
    _rules("a server in the wrong case", {"deny": ["A/destroy"]}, "there is no server `A`"),
    _rules("an unknown server behind a hint", {"ask": ["destructive:git/*"]}, "there is no server `git`"),
    _rules("an unknown pattern of servers", {"deny": ["g*/destroy"]}, "there is no server `g*`"),
    _rules("an unknown server to allow", {"allow": ["git/*"]}, "there is no server `git`"),
    _rules(
        "an unknown server for callers", {"for": [{"roles": ["x"], "deny": ["git/*"]}]}, "no server `git`"
    ),
    _rules("a server's name with a blank", {"deny": ["a /destroy"]}, "there is no server `a `"),
    _rules("mcpServers before the server", {"deny": ["mcpServers/a/destroy"]}, "no server `mcpServers`"),
    _rules("for is an object", {"for": {"roles": ["x"], "deny": ["*"]}}, "write `for` as a list of objects"),
    _rules("for has no callers", {"for": [{"deny": ["*"]}]}, "does not say for which callers it is"),
    _rules("for has no rules", {"for": [{"roles": ["x"]}]}, "has no rules"),
    _rules("for has empty roles", {"for": [{"roles": [], "deny": ["*"]}]}, "`roles`"),
    _rules("for has a role as a text", {"for": [{"roles": "x", "deny": ["*"]}]}, "write `roles` as a list"),
    _rules("for has role", {"for": [{"role": ["x"], "deny": ["*"]}]}, "did you mean `roles`?"),
    _rules("for has principal", {"for": [{"principal": ["x"], "deny": ["*"]}]}, "did you mean `principals`?"),
    _rules("for in for", {"for": [{"roles": ["x"], "for": []}]}, "unknown option"),
    _login("empty", {}, "accepts no caller"),
    _login("true", True, "toolset.auth"),
    _login("a text", "oauth", "toolset.auth"),
    _login("a short token", {"tokens": {"ci": "abcdef"}}, "16"),
    _login("an empty token", {"tokens": {"ci": ""}}, "toolset.auth.tokens"),
    _login("a token with a blank", {"tokens": {"ci": "a token with blanks in it"}}, "toolset.auth.tokens"),
    _login("one token for two", {"tokens": {"a": LONG, "b": LONG}}, "toolset.auth.tokens"),
    _login("a token that is a list", {"tokens": {"ci": [LONG]}}, "toolset.auth.tokens.ci: must be an object"),
    _login("tokens in a list", {"tokens": [LONG]}, "write `tokens` as an object"),
    _login("token", {"token": LONG}, "did you mean `tokens`?"),
    _login(
        "a variable that is not set", {"tokens": {"ci": "${NOT_SET_AT_ALL}"}}, "NOT_SET_AT_ALL is not set"
    ),
    _login(
        "a role beside a token", {"tokens": {"ci": {"token": LONG, "role": "x"}}}, "did you mean `roles`?"
    ),
    _login("no audience", {"jwt": {"issuer": "https://i.example"}}, "write `audience` as"),
    _login("an empty audience", {"jwt": {**JWT, "audience": []}}, "write `audience` as"),
    _login("a null audience", {"jwt": {**JWT, "audience": None}}, NULL),
    _login("no issuer", {"jwt": {"audience": "x"}}, "write `issuer` as"),
    _login("an issuer over http", {"jwt": {**JWT, "issuer": "http://i.example"}}, "https"),
    _login("the algorithm none", {"jwt": {**JWT, "algorithms": ["none"]}}, "none"),
    _login("a leeway of a day", {"jwt": {**JWT, "leeway": 86400}}, "up to 600"),
    _login("scope", {**TOKENS, "scope": ["x"]}, "unknown option"),
    _login("required_scope", {**TOKENS, "required_scope": ["x"]}, "did you mean `required_scopes`?"),
    _login("null required_scopes", {**TOKENS, "required_scopes": None}, NULL),
    _login("required_scopes as a number", {**TOKENS, "required_scopes": 5}, "write `required_scopes` as"),
    _section("audit is true", {"audit": True}, "the path of a file"),
    _section("audit is empty", {"audit": ""}, "toolset.audit: must be"),
    _section("audit has file", {"audit": {"file": "a.jsonl"}}, "unknown option"),
    _section(
        "audit has a short key", {"audit": {"path": "a.jsonl", "key": "short"}}, "at least 16 characters"
    ),
    _section("audit keeps nothing", {"audit": {"path": "a.jsonl", "max_files": 0}}, "at least 1"),
    _section(
        "audit has a negative size", {"audit": {"path": "a.jsonl", "max_bytes": -1}}, "a positive number"
    ),
    _section("pins with a wrong word", {"pins": "strict"}, "toolset.pins"),
    _section("pins in capitals", {"pins": "Quarantine"}, "toolset.pins"),
    _section("pins is true", {"pins": True}, "toolset.pins"),
    _section("new_tools with a wrong word", {"new_tools": "deny"}, "toolset.new_tools"),
    _section("hidden_text with a wrong word", {"hidden_text": "block"}, "toolset.hidden_text"),
    _section("arguments with a wrong word", {"arguments": "Strict"}, "toolset.arguments"),
    _section("lock is true", {"lock": True}, "toolset.lock"),
    _section("deferred with a wrong word", {"deferred": "search"}, "toolset.deferred"),
    _section("permission in toolset", {"permission": RULES}, "did you mean `permissions`?"),
    _section("audits in toolset", {"audits": "a.jsonl"}, "did you mean `audit`?"),
    _section(
        "authentication in toolset", {"authentication": TOKENS}, "toolset.authentication: unknown option"
    ),
    _section("trusted proxies that are names", {"http": {"trusted_proxies": ["proxy"]}}, "trusted_proxies"),
    _limit("true", True, "toolset.limits"),
    _limit("a list", [{"rate": "1/min"}], "toolset.limits"),
    _limit("a limit without a pattern", {"rate": "1/min"}, 'write it as {"rate": "60/min"}'),
    _limit("an unknown unit", {"*": {"rate": "1/fortnight"}}, "write a positive whole number per s"),
    _limit("a misspelt unit", {"*": {"rate": "5/mins"}}, "did you mean `5/min`?"),
    _limit("a negative rate", {"*": {"rate": "-5/min"}}, "write a positive whole number per s"),
    _limit("no calls", {"*": {"rate": "0/min"}}, "write a positive whole number per s"),
    _limit("a rate that is a number", {"*": {"rate": 60}}, "write a text such as `60/min`"),
    _limit("a rate with a blank", {"*": {"rate": "60 / min"}}, "60"),
    _limit("negative calls", {"*": {"calls": -1}}, "write a positive whole number"),
    _limit("a concurrency of none", {"*": {"concurrency": 0}}, "write a positive whole number"),
    _limit("a concurrency that is true", {"*": {"concurrency": True}}, "write a positive whole number"),
    _limit("a timeout that is negative", {"*": {"timeout": -5}}, "write a positive number of seconds"),
    _limit("a timeout in words", {"*": {"timeout": "5 s"}}, "write a positive number of seconds"),
    _limit("result_bytes in words", {"*": {"result_bytes": "1 MB"}}, "write a positive whole number"),
    _limit("a misspelt limit", {"*": {"rates": "5/min"}}, "did you mean `rate`?"),
    _limit("an unknown limit", {"*": {"requests": 5}}, "unknown limit; use one of"),
    _limit("nothing", {"*": {}}, "limits nothing"),
    _limit("null", {"*": {"rate": None}}, "limits nothing"),
    _limit("a null pattern", {"*": None}, "must be an object"),
    _limit("an empty pattern", {"": {"rate": "5/min"}}, "names no tool"),
    _limit("an unknown server", {"git/*": {"rate": "5/min"}}, "there is no server `git`"),
    _limit("callers without limits", {"*": {"for": [{"roles": ["x"]}]}}, "limits nothing"),
    _limit("limits without callers", {"*": {"for": [{"rate": "5/min"}]}}, "does not say for which callers"),
    _limit("for is an object", {"*": {"for": {"roles": ["x"]}}}, "must be a list"),
    _section("journal of an unknown server", {"journal": {"tools": {"git/x": "once"}}}, "no server `git`"),
    _section("journal with a wrong word", {"journal": {"tools": {"*": "always"}}}, '"once"'),
    ("no servers", '{"toolset": {"permissions": {"deny": ["*"]}}}', "names no servers"),
    ("servers in a list", '{"mcpServers": [], "toolset": {}}', "mcpServers: must be an object"),
]
"""Protections of a wrong type, for nobody, or for a server that is not there."""


def _twice(where: str, text: str, key: str) -> tuple[str, str, str]:
    return f"{where} twice", text, f"{key}: this key is written twice; keep one of them"


_A = json.dumps(SERVER)
_ANY = f'"mcpServers": {{"a": {_A}}}'
TWICE: list[tuple[str, Any, str]] = [
    _twice("a server", f'{{"mcpServers": {{"a": {_A},\n"a": {_A}}}}}', "mcpServers.a"),
    _twice("mcpServers", f"{{{_ANY},\n{_ANY}}}", "mcpServers"),
    _twice(
        "toolset", f'{{{_ANY}, "toolset": {{"permissions": {{"deny": ["*"]}}}},\n"toolset": {{}}}}', "toolset"
    ),
    _twice(
        "permissions",
        f'{{{_ANY}, "toolset": {{"permissions": {{"deny": ["*"]}},\n"permissions": {{}}}}}}',
        "toolset.permissions",
    ),
    _twice(
        "deny",
        f'{{{_ANY}, "toolset": {{"permissions": {{"deny": ["*"], /* twice */ "deny": []}}}}}}',
        "toolset.permissions.deny",
    ),
    _twice(
        "deny of the second callers",
        f'{{{_ANY}, "toolset": {{"permissions": {{"for": [{{}}, {{"deny": ["*"], "deny": []}}]}}}}}}',
        "toolset.permissions.for[1].deny",
    ),
    _twice(
        "a limit",
        f'{{{_ANY}, "toolset": {{"limits": {{"*": {{"rate": "1/min"}}, "*": {{"rate": "9/s"}}}}}}}}',
        'toolset.limits["*"]',
    ),
    _twice(
        "exclude",
        '{"mcpServers": {"a": {"command": "x", "exclude": ["y"], "exclude": []}}}',
        "mcpServers.a.exclude",
    ),
]
"""Keys that are written twice: the first would be ignored."""

OTHER_WORDS: list[tuple[str, Any, str]] = [
    _top("forbidden", ["a_destroy"], "toolset.permissions.deny"),
    _top("allowlist", ["a_look"], "toolset.permissions.allow"),
    _top("readOnly", True, 'toolset.permissions.allow: ["readOnly:*"]'),
    _top("requireApproval", ["a_destroy"], "toolset.permissions.ask"),
    _top("acl", {"a_destroy": "deny"}, "toolset.permissions"),
    _top("rateLimit", {"*": "1/min"}, "toolset.limits"),
    _top("quarantine", True, "toolset.pins"),
    _top("disabledServers", ["a"], "mcpServers.NAME.disabled"),
    _top("security", {"deny": "a_destroy"}, "toolset.permissions"),
    ("exclude in defaults", {"defaults": {"exclude": ["destroy"]}}, _moved("mcpServers.NAME.exclude")),
    _section("readOnly", {"readOnly": True}, "toolset.readOnly: unknown option"),
    _section("rate_limit", {"rate_limit": "1/min"}, "`toolset.limits`"),
]
"""Words of other programs for a rule."""

NO_PATTERN = "which a pattern does not have; use `*`, `?` and `[abc]`"
EXACTLY = "is compared exactly, so a pattern or a list fits nothing"
CALLERS = {"tokens": {"ci": {"token": LONG, "roles": ["robot"], "scopes": ["read"]}}}


def _for(name: str, callers: dict[str, Any], says: str) -> tuple[str, Any, str]:
    rules = {"for": [{**callers, "deny": ["a_destroy"]}]}
    return _section(f"for: {name}", {"auth": CALLERS, "permissions": rules}, says)


NOTATIONS: list[tuple[str, Any, str]] = [
    *(
        _rules(f"deny {one}", {"deny": [one]}, NO_PATTERN)
        for one in (
            *("!a_destroy", "![ab]_x", "[^x]*", "{a,b}_destroy", "a_{destroy,look}", "a_(destroy|look)"),
            *("^a_destroy$", "a_destroy$", "^a_", "a_.*", ".*", "a_.+", "a_\\w+", "a_destroy|a_look", "a_%"),
            *("a_destroy,a_look", "a_destroy a_look", "a_destroy;a_look", "-a_destroy", "~a_destroy"),
            *("a_destroy()", '"a_destroy"', "'a_destroy'", "`a_destroy`", "<tool>", "$DENIED", "{{DENIED}}"),
            *("destructive:!x", "a\\destroy", "a/{destroy,look}"),
        )
    ),
    _rules("ask with a list in a text", {"ask": ["a_destroy,a_look"]}, NO_PATTERN),
    *(
        _rules(f"deny {one}", {"deny": [one]}, says)
        for one, says in (
            ("tool:a_destroy", "there is no hint `tool`; use one of `destructive:`"),
            ("a:destroy", "there is no hint `a`"),
            ("re:a_.*", "which a pattern does not have"),
            ("dangerous:*", "there is no hint `dangerous`"),
            ("write:*", "there is no hint `write`"),
            ("not:readOnly:*", "there is no hint `not`"),
            ("destructive:openWorld:*", "has two hints; write a pattern for each"),
            ("readOnly:tag:money", "has two hints"),
        )
    ),
    _limit("an excluding pattern", {"!a_destroy": {"rate": "1/min"}}, NO_PATTERN),
    _limit("alternatives", {"{a,b}": {"rate": "1/min"}}, NO_PATTERN),
    _limit("a regular expression", {"^a_": {"rate": "1/min"}}, NO_PATTERN),
    _section("journal with alternatives", {"journal": {"tools": {"a|b": "once"}}}, NO_PATTERN),
    *(
        _for(f"{key} {one}", {key: [one]}, EXACTLY)
        for key in ("roles", "scopes")
        for one in ("admin*", "*", "!guest", "ad?in", "[ab]x", "{a,b}", "a|b", "admin,robot", "$ROLE")
    ),
    _for("an empty role", {"roles": [""]}, "is empty, and so fits nothing"),
    _for("two scopes in a text", {"scopes": ["read write"]}, "is more than one scope"),
    _for("an empty principal", {"principals": [""]}, "is empty, and so fits nothing"),
    _for("an excluded principal", {"principals": ["!ci"]}, "is no pattern of names"),
    _for("alternative principals", {"principals": ["{ci,ann}"]}, "is no pattern of names"),
    _for("a principal as a regular expression", {"principals": ["[^a]*"]}, "is no key of a caller"),
    _for("a key of two", {"principals": ['["ci", null]']}, "is no key of a caller; write it as"),
    _for("a key of nobody", {"principals": [[None, None, None]]}, "is no key of a caller"),
    _limit("a role as a pattern", {"*": {"for": [{"roles": ["ad*"], "rate": "1/min"}]}}, EXACTLY),
    _login("a role of a token as a pattern", {"tokens": {"ci": {"token": LONG, "roles": ["*"]}}}, EXACTLY),
    _login(
        "a role of a token as a reference",
        {"tokens": {"ci": {"token": LONG, "roles": ["${ROLE}"]}}},
        "a reference, which is not replaced",
    ),
    _login("roles of a token in a text", {"tokens": {"ci": {"token": LONG, "roles": "a,b"}}}, EXACTLY),
    _login("a required scope as a pattern", {**TOKENS, "required_scopes": ["tools:*"]}, EXACTLY),
    _login("required scopes in a text", {**TOKENS, "required_scopes": "read,write"}, EXACTLY),
    _login("a token's name with a blank", {"tokens": {" ci": LONG}}, "blanks at an end"),
    *(
        _login(f"a token written {one}", {"tokens": {"ci": one}}, "is the token itself, not a reference")
        for one in ("$CI_TOKEN_OF_THE_BUILD", "%CI_TOKEN_OF_THE_BUILD%", "{{CI_TOKEN_OF_THE_BUILD}}")
    ),
]
"""Notations that other programs have, and that mean nothing here."""

NEARLY = "is no name that a tool has here; did you mean `a/destroy`?"


def _order(name: str, *sections: dict[str, Any], says: str = "never applies, as `for[0].allow`") -> Any:
    return _section(f"order: {name}", {"auth": CALLERS, "permissions": {"for": [*sections]}}, says)


NAMES: list[tuple[str, Any, str]] = [
    *(
        _rules(f"{kind} {one}", {kind: [one]}, says)
        for kind in ("deny", "ask", "allow")
        for one, says in (
            ("a__destroy", NEARLY),
            ("A_destroy", NEARLY),
            ("mcp__a__destroy", NEARLY),
            ("mcp__a_destroy", NEARLY),
            ("destructive:mcp__a__destroy", NEARLY),
            ("mcp__git__log", "is a client's name of a tool; write `SERVER/TOOL`"),
            ("a", "is the name of a server; write `a/*`, or `*/a` for a tool of that name"),
            ("a//destroy", "names no tool"),
        )
    ),
    _limit("a server's name", {"a": {"rate": "1/min"}}, "is the name of a server; write `a/*`"),
    _limit("a client's name", {"mcp__a__destroy": {"rate": "1/min"}}, NEARLY),
    _limit("a server's name in capitals", {"A_destroy": {"rate": "1/min"}}, NEARLY),
    _section("journal of a client's name", {"journal": {"tools": {"mcp__a__destroy": "once"}}}, NEARLY),
    _section("journal of a server's name", {"journal": {"tools": {"a": "once"}}}, "is the name of a server"),
    *(
        _rules(f"{key} is empty", {key: []}, "is empty, so it protects nothing")
        for key in ("ask", "deny", "for")
    ),
    _limit("for is empty", {"*": {"rate": "1/min", "for": []}}, "is empty, so it limits nothing"),
    _login(
        "required_scopes is empty", {**TOKENS, "required_scopes": []}, "is empty, so no scope is required"
    ),
    _for("a role in capitals", {"roles": ["Robot"]}, "no token has it; did you mean `robot`?"),
    _for("a misspelt role", {"roles": ["robots"]}, "no token has it; did you mean `robot`?"),
    _for("a scope in capitals", {"scopes": ["READ"]}, "no token has it; did you mean `read`?"),
    _for("a principal in capitals", {"principals": ["CI"]}, "no token has it; did you mean `ci`?"),
    _section(
        "limits for a misspelt role",
        {"auth": CALLERS, "limits": {"*": {"for": [{"roles": ["robt"], "rate": "1/min"}]}}},
        "no token has it; did you mean `robot`?",
    ),
    _order("all allowed before", {"roles": ["robot"], "allow": ["*"]}, {"roles": ["robot"], **RULES}),
    _order(
        "the same allowed before", {"roles": ["robot"], "allow": RULES["deny"]}, {"roles": ["robot"], **RULES}
    ),
    _order(
        "a pattern before", {"roles": ["robot"], "allow": ["a_*"]}, {"roles": ["robot"], "ask": ["a_look"]}
    ),
    _order("all callers before", {"principals": ["*"], "allow": ["*"]}, {"roles": ["robot"], **RULES}),
    _order(
        "more callers before",
        {"roles": ["robot", "x"], "allow": ["*"]},
        {"roles": ["robot"], "scopes": ["read"], "deny": ["destructive:*"]},
    ),
    *(
        (
            f"order: {one} after the entry's own {wide}",
            {
                "mcpServers": {"a": {**SERVER, "permissions": {"allow": [wide]}}},
                "toolset": {"permissions": {"deny": [one]}},
            },
            "never applies, as `mcpServers.a.permissions.allow` is asked before it",
        )
        for one, wide in [
            *(("a/destroy", "*"), ("a_destroy", "*"), ("a/destroy", "destroy"), ("a/*", "*")),
            *(
                ("destroy", "*"),
                ("destroy", "destr*"),
                ("destructive:*", "*"),
                ("tag:money", "*"),
                ("*", "*"),
            ),
        ]
    ),
    *(
        (
            f"order: {name} after one for every caller",
            {
                "mcpServers": {"a": {**SERVER, **({"permissions": entry} if entry else {})}},
                "toolset": {
                    "auth": CALLERS,
                    "permissions": {**general, "for": [{"principals": ["*"], "allow": ["*"]}]},
                },
            },
            "never applies, as `toolset.permissions.for[0].allow` is asked before it",
        )
        for name, entry, general in [
            ("a general deny", {}, RULES),
            ("a general ask", {}, {"ask": ["a_*"]}),
            ("the entry's own deny", {"deny": ["destroy"]}, {}),
        ]
    ),
    (
        "order: a general ask after the entries of all servers",
        {
            "mcpServers": {
                "a": {**SERVER, "permissions": {"allow": ["*"]}},
                "b": {**SERVER, "permissions": {"allow": ["destructive:*"]}},
            },
            "toolset": {"permissions": {"ask": ["destructive:*"]}},
        },
        "never applies, as `mcpServers.a.permissions.allow`, `mcpServers.b.permissions.allow` is asked",
    ),
]
"""Names that no tool or caller has, and rules that another one decides before."""

VALUES: list[tuple[str, Any, str]] = [
    *(
        _section(f"audit {one}", {"audit": one}, "is no path of a file")
        for one in (
            "  ",
            "audit.jsonl ",
            "-",
            "stdout",
            "stderr",
            "$HOME/a.jsonl",
            "%TEMP%/a",
            "https://a.example/a",
        )
    ),
    _section("audit is a number", {"audit": 1}, "the path of a file"),
    _section("audit is a device", {"audit": "/dev/null"}, "is a device, which keeps no line"),
    _section("audit has a null key", {"audit": {"path": "a.jsonl", "key": None}}, NULL),
    _section("audit has a blank key", {"audit": {"path": "a.jsonl", "key": " " * 16}}, "would not be keyed"),
    *(
        _section(
            f"audit has {one!r} for {key}", {"audit": {"path": "a.jsonl", key: one}}, f"write `{key}` as"
        )
        for key in ("max_bytes", "max_files")
        for one in ("1000", True)
    ),
    _section("journal for true seconds", {"journal": {"ttl": True}}, "write `ttl` as"),
    _section("journal for seconds in a text", {"journal": {"ttl": "604800"}}, "write `ttl` as"),
    *(
        _section(f"egress to {one}", {"egress": {"allow": [one]}}, "is no host and no network")
        for one in ("!a.example", "[^a]", "{a,b}.example", "a,b", "$HOST", "${HOST}", "10.0", ".", "-")
    ),
    _section("egress to a range", {"egress": {"allow": ["10.0.0.1-10.0.0.9"]}}, "is no host and no network"),
    _section("egress denies", {"egress": {"deny": ["10.0.0.0/8"]}}, "unknown option"),
    *(
        _rules(f"deny {one}", {"deny": [one]}, NO_PATTERN)
        for one in ("a_[destroy", "a_destroy]", "a_[]", "@a", "a_destroy=true", "a_x&b_x", "a_x+a_y", "# a_x")
    ),
    *(
        _login(f"roles_claim {one!r}", {"jwt": {**JWT, "roles_claim": one}}, says)
        for one, says in (
            ("", "write `roles_claim` as"),
            (None, NULL),
            (" roles", "blanks at an end"),
            ("${CLAIM}", "which is not replaced here"),
        )
    ),
    _login("leeway is true", {"jwt": {**JWT, "leeway": True}}, "write `leeway` as"),
    _section("a lock that is not there", {"lock": "no.lock.json"}, "so nothing is pinned; make it with"),
    _section("a lock in no folder", {"lock": "no/x.lock.json"}, "so nothing is pinned"),
    _section("a lock that is a folder", {"lock": "."}, "toolset.lock: "),
    _section("a lock that is the configuration", {"lock": "mcp.json"}, "not a lock file of mcp-toolset"),
    _section("a lock with a reference", {"lock": "${LOCK}"}, "which is not replaced here"),
    _section("a lock with a blank", {"lock": "mcp.lock.json "}, "has blanks at an end"),
]
"""Values that would keep or hold nothing."""

_ANOTHER = "is a rule for another server, which would not apply"


def _beside(**more: Any) -> dict[str, Any]:
    return {"mcpServers": {"a": {**SERVER, **more}, "b": SERVER}}


OF_ANOTHER: list[tuple[str, Any, str]] = [
    ("a deny of another server", _beside(permissions={"deny": ["b/destroy"]}), _ANOTHER),
    ("an ask of another server by hint", _beside(permissions={"ask": ["destructive:b/*"]}), _ANOTHER),
    ("limits of another server", _beside(limits={"b/*": {"rate": "5/min"}}), _ANOTHER),
    ("a journal of another server", _beside(journal={"b/destroy": "once"}), _ANOTHER),
    ("exclude of another server", _beside(exclude=["b/destroy"]), _ANOTHER),
    ("disabledTools of another server", _beside(disabledTools=["b/destroy"]), _ANOTHER),
]
"""Rules in the entry of `a` for the tools of `b`, which would be served without them."""

OF_CLIENTS: list[tuple[str, Any, str]] = [
    ("excluded by Gemini CLI", {"mcp": {"excluded": ["a"]}}, "mcp.excluded: switches the server `a` off"),
    ("not allowed by Gemini CLI", {"mcp": {"allowed": ["b"]}}, "mcp.allowed: switches the server `a` off"),
    ("excluded by name", {"excludeMCPServers": ["a"]}, "switches the server `a` off in another client"),
    ("disabled by Claude Code", {"disabledMcpjsonServers": ["a"]}, "switches the server `a` off"),
]
"""Servers that the client whose file it is has switched off."""

_ITSELF = "itself, not a reference; write a reference as `${NAME}`"


def _jwt(**more: Any) -> dict[str, Any]:
    return {"toolset": {"auth": {"jwt": {"issuer": "https://i.example", "audience": "a", **more}}}}


UNREPLACED: list[tuple[str, Any, str]] = [
    *(
        (
            f"auth: a jwt secret written {one}",
            _jwt(secret=one),
            f"toolset.auth.jwt[0].secret: is the secret {_ITSELF}",
        )
        for one in (
            "$JWT_SECRET_OF_THE_BUILD_SERVER_LONG",
            "%JWT_SECRET_OF_THE_BUILD_SERVER_LONG%",
            "{{JWT_SECRET_OF_THE_BUILD_SERVER_LONG}}",
            " " * 40,
        )
    ),
    *(
        (
            f"an audit key written {one}",
            {"toolset": {"audit": {"path": "audit.jsonl", "key": one}}},
            f"toolset.audit.key: is the key {_ITSELF}",
        )
        for one in ("$AUDIT_KEY_OF_THIS_LOG", "%AUDIT_KEY_OF_THIS_LOG%", "<at least 16 letters>")
    ),
    ("auth: a jwt without algorithms", _jwt(algorithms=[]), "algorithms: is empty"),
]
"""Secrets that only another program would replace: everybody who reads the file knows them."""

NULLS_AND_LISTS: list[tuple[str, Any, str]] = [
    ("journal is null", {"toolset": {"journal": None}}, f"toolset.journal: {NULL}"),
    ("journal with null tools", {"toolset": {"journal": {"tools": None}}}, f"toolset.journal.tools: {NULL}"),
    (
        "deny with two patterns in a text",
        {"toolset": {"permissions": {"deny": ["a/destroy,a/look"]}}},
        "is more than one pattern; write each as an item",
    ),
    (
        "limits with two patterns in a text",
        {"toolset": {"limits": {"a/destroy a/look": {"rate": "1/min"}}}},
        "is more than one pattern; write each as an item",
    ),
    ("lockFile at the top level", {"lockFile": "x.lock.json"}, f"lockFile: {_moved('toolset.lock')}"),
]

TABLES = [
    *(OF_ANOTHER, OF_CLIENTS, UNREPLACED, NULLS_AND_LISTS),
    *(MISPLACED, MALFORMED, TWICE, NOTATIONS, OTHER_WORDS, NAMES, VALUES),
]
FILES = [row for rows in TABLES for row in rows]

ENTRIES: list[tuple[str, dict[str, Any], str]] = [
    *(
        (f"deny of {one!r}", {"permissions": {"deny": [one]}}, says)
        for one, says in (
            ("destroy ", "blanks at an end"),
            ("destroy\u200b", "hidden characters"),
            ("${DENIED}", "a reference, which is not replaced"),
            ("a/", "names no tool"),
            ("destructive", "write `destructive:*`"),
            ("destructive: *", "blanks at an end"),
        )
    ),
    (
        "permissions with alternatives",
        {"permissions": {"deny": ["{destroy,look}"]}},
        "use `*`, `?` and `[abc]`",
    ),
    ("exclude with an excluding pattern", {"exclude": ["!look"]}, "use `*`, `?` and `[abc]`"),
    ("exclude with a regular expression", {"exclude": ["^de.*$"]}, "use `*`, `?` and `[abc]`"),
    ("exclude with two names in a text", {"exclude": ["destroy,look"]}, "use `*`, `?` and `[abc]`"),
    ("include with alternatives", {"include": ["{look,list}"]}, "use `*`, `?` and `[abc]`"),
    (
        "a place of keys by the server's name",
        {"idempotency": {"a/destroy": "arguments.key"}},
        "write `destroy`",
    ),
    ("a place of keys for no tool", {"idempotency": {"": "arguments.key"}}, "names no tool"),
    ("a place of keys with a blank", {"idempotency": {"destroy ": "arguments.key"}}, "blanks at an end"),
    *(
        (f"{key} beside permissions", {key: value}, f"move it to `mcpServers.NAME.{right}`")
        for key, value, right in (
            ("ask", ["destroy"], "permissions.ask"),
            ("Ask", ["destroy"], "permissions.ask"),
            ("approvals", ["destroy"], "permissions.ask"),
            ("require_approval", ["destroy"], "permissions.ask"),
            ("readOnly", True, 'permissions.allow: ["readOnly:*"]'),
            ("readonly", True, 'permissions.allow: ["readOnly:*"]'),
            ("acl", {"destroy": 1}, "permissions"),
            ("rate", "1/min", "limits.PATTERN.rate"),
            ("rateLimit", "1/min", "limits"),
            ("max_calls", 5, "limits.PATTERN.calls"),
            ("concurrency", 5, "limits.PATTERN.concurrency"),
        )
    ),
    ("principals in an entry", {"principals": ["ci"]}, _moved("toolset.permissions.for.principals")),
    ("for in an entry", {"for": []}, _moved("toolset.permissions.for")),
    ("egress in an entry", {"egress": ["a.example"]}, _moved("toolset.egress")),
    ("quarantine in an entry", {"quarantine": True}, _moved("toolset.pins")),
    ("trusted proxies in an entry", {"trusted_proxies": []}, _moved("toolset.http.trusted_proxies")),
    ("forbidden", {"forbidden": ["destroy"]}, "did you mean `exclude`?"),
    ("toolFilter", {"toolFilter": ["destroy"]}, "did you mean `exclude`?"),
    ("off", {"off": True}, "did you mean `disabled`?"),
    *(
        (f"{key} in env", {"env": {key: "x"}}, f"a.env.{key}: is in the wrong place")
        for key in ("permissions", "exclude", "deny", "ask", "limits", "audit", "pins", "disabled")
    ),
    ("exclude with a client's name", {"exclude": ["mcp__a__destroy"]}, "is a client's name of a tool"),
    (
        "permissions with a client's name",
        {"permissions": {"deny": ["mcp__a__x"]}},
        "is a client's name of a tool",
    ),
    (
        "limits with a client's name",
        {"limits": {"mcp__a__x": {"rate": "1/min"}}},
        "is a client's name of a tool",
    ),
    ("limits of a name with a blank", {"limits": {" look": {"rate": "1/min"}}}, "blanks at an end"),
    ("exclude with a blank", {"exclude": ["destroy "]}, "exclude[0]: has blanks at an end"),
    ("exclude with a reference", {"exclude": ["${DENIED}"]}, "a reference, which is not replaced"),
    ("exclude with a hint", {"exclude": ["destructive:*"]}, "takes names, and no hints"),
    ("excludeTools with a pattern", {"excludeTools": ["de*"]}, "write the pattern into `exclude`"),
    ("disabledTools with a hidden character", {"disabledTools": ["destroy\u200b"]}, "hidden characters"),
    ("exclude is a text", {"exclude": "destroy"}, "write `exclude` as"),
    ("exclude is an object", {"exclude": {"destroy": True}}, "write `exclude` as"),
    ("exclude is null", {"exclude": None}, f"mcpServers.a.exclude: {NULL}"),
    ("include is null", {"include": None}, f"mcpServers.a.include: {NULL}"),
    ("exclude with the server's name", {"exclude": ["a/destroy"]}, "write `destroy`"),
    ("include with the server's name", {"include": ["a/look"]}, "write `look`"),
    ("excludes", {"excludes": ["destroy"]}, "did you mean `exclude`?"),
    ("Exclude", {"Exclude": ["destroy"]}, "did you mean `exclude`?"),
    ("deny", {"deny": ["destroy"]}, "did you mean `exclude`?"),
    ("blockedTools", {"blockedTools": ["destroy"]}, "did you mean `exclude`?"),
    ("allowlist", {"allowlist": ["look"]}, "did you mean `include`?"),
    ("disable", {"disable": True}, "did you mean `disabled`?"),
    ("permission", {"permission": RULES}, "did you mean `permissions`?"),
    ("permissions is null", {"permissions": None}, NULL),
    ("permissions is a list", {"permissions": ["destroy"]}, "must be an object"),
    ("permissions of callers", {"permissions": {"for": [{"roles": ["x"], "deny": ["*"]}]}}, "unknown option"),
    ("permissions with a null deny", {"permissions": {"deny": None}}, NULL),
    ("a misspelt hint", {"permissions": {"deny": ["destrutive:*"]}}, "did you mean `destructive:*`?"),
    ("limits is null", {"limits": None}, NULL),
    ("limits with an unknown unit", {"limits": {"*": {"rate": "5/week"}}}, "write a positive whole number"),
    ("limits that limit nothing", {"limits": {"*": {}}}, "limits nothing"),
    ("pins with a wrong word", {"pins": "deny"}, "write `pins` as"),
    ("pins is null", {"pins": None}, NULL),
    ("pin", {"pin": "quarantine"}, "did you mean `pins`?"),
    ("new_tools with a wrong word", {"new_tools": "ask"}, "write `new_tools` as"),
    ("newTools in camel case", {"newTools": "quarantine"}, "did you mean `new_tools`?"),
    ("hidden_text with a wrong word", {"hidden_text": "remove"}, "write `hidden_text` as"),
    ("hiddenText in camel case", {"hiddenText": "refuse"}, "did you mean `hidden_text`?"),
    ("arguments with a wrong word", {"arguments": "exact"}, "write `arguments` as"),
    ("sessions with a wrong word", {"sessions": "user"}, "write `sessions` as"),
    ("journal with a wrong word", {"journal": {"*": "always"}}, '"once"'),
    ("a breaker of no failures", {"breaker": {"failures": 0}}, "a positive whole number"),
    ("a login for a program", {"auth": "oauth"}, "is for a server at a URL"),
    *(
        (f"{key} is null", {key: None}, f"mcpServers.a.{key}: {NULL}")
        for key in (
            *("includeTools", "excludeTools", "disabledTools", "enabled_tools", "disabled_tools", "tools"),
            *("disabled", "enabled", "journal"),
        )
    ),
    *(
        (f"{one} beside {other}", {other: [taken], one: ["look"]}, f"a.{one}: is beside `{other}`")
        for one, other, taken in (
            ("includeTools", "include", "*"),
            ("enabled_tools", "include", "d*"),
            ("tools", "includeTools", "destroy"),
        )
    ),
    *(
        (key, {key: value}, f"did you mean `{meant}`?")
        for key, value, meant in (
            *((key, False, "enabled") for key in ("active", "isActive", "on", "visible")),
            *((key, True, "disabled") for key in ("paused", "suspended", "deactivated")),
            *((key, ["destroy"], "exclude") for key in ("omit", "drop", "skipTools", "toolBlocklist")),
            *((key, ["look"], "include") for key in ("available_tools", "expose", "toolAllowlist")),
        )
    ),
    *(
        (key, {key: value}, "move it to `mcpServers.NAME.permissions.ask`")
        for key, value in (
            ("default_tools_approval_mode", "prompt"),
            ("alwaysAsk", ["destroy"]),
            ("requiresConfirmation", True),
            ("humanInTheLoop", True),
        )
    ),
    ("lockFile in an entry", {"lockFile": "x.lock.json"}, _moved("toolset.lock")),
]
"""Mistakes in the entry of the server `a`: it is down, and `b` is served."""
