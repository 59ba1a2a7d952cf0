"""Patterns of tools and callers (`fnmatch` on names), and the `Section`s of rules that hold them.

The hints of a tool go before the names (`destructive:*`); `tag:money` is for tags instead of names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from difflib import get_close_matches
from fnmatch import fnmatchcase, translate
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple, Protocol, TypeVar

from mcp_toolset._records import dataclass
from mcp_toolset.errors import DefinitionError

Kind = Literal["allow", "ask", "deny"]

KINDS: Final[tuple[Kind, ...]] = ("deny", "ask", "allow")
"""In the order in which the lists of one section are asked; the strictest first."""


@dataclass(frozen=True, slots=True)
class Section:
    """Patterns of tools that are allowed, asked about or denied, and the callers that they are for.

    Attributes:
        place: The place in the file, such as `permissions.for[0]`.
        allow: Patterns of the allowed tools. If there is a list, even an empty one, no other tool is allowed.
        ask: Patterns of the tools that need an approval.
        deny: Patterns of the tools that do not exist for the caller.
        principals: Names, patterns of names, or keys of callers; `None` for every caller.
        roles: A caller with one of these roles; `None` for every caller.
        scopes: A caller with one of these scopes; `None` for every caller.
    """

    place: str
    allow: tuple[str, ...] | None = None
    ask: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    principals: tuple[str, ...] | None = None
    roles: tuple[str, ...] | None = None
    scopes: tuple[str, ...] | None = None

    @property
    def restricts(self) -> bool:
        """True if somebody could call more without it: an `allow` of all tools alone takes nothing away."""
        return bool(self.ask or self.deny) or "*" not in (self.allow or ())

    def patterns(self) -> Iterator[tuple[Kind, str]]:
        """Each pattern with what it decides, in the order in which they are asked."""
        for kind, patterns in zip(KINDS, (self.deny, self.ask, self.allow or ()), strict=True):
            for pattern in patterns:
                yield kind, pattern


@dataclass(frozen=True, slots=True)
class Permissions:
    """All sections of one policy.

    Attributes:
        general: For every caller and every tool.
        servers: By server, for its tools and every caller.
        callers: For some callers, in the order in which they are asked, before all others.
    """

    general: Section = Section("permissions")
    servers: Mapping[str, Section] = field(default_factory=lambda: MappingProxyType({}), hash=False)
    callers: tuple[Section, ...] = ()

    def __bool__(self) -> bool:
        return any(section.allow is not None or section.ask or section.deny for section in self.sections())

    def sections(self) -> Iterator[Section]:
        """All of them, in the order in which they are asked."""
        yield from self.callers
        yield from self.servers.values()
        yield self.general


Hints = Mapping[str, Any]


def _said(hints: Hints, key: str, default: bool) -> bool:
    hint = hints.get(key)
    return hint if isinstance(hint, bool) else default


HINTS: Final[Mapping[str, Callable[[Hints], bool]]] = {
    "destructive": lambda hints: _said(hints, "destructiveHint", not _said(hints, "readOnlyHint", False)),
    "readOnly": lambda hints: (
        _said(hints, "readOnlyHint", False) and not _said(hints, "destructiveHint", False)
    ),
    "idempotent": lambda hints: _said(hints, "idempotentHint", False),
    "openWorld": lambda hints: _said(hints, "openWorldHint", True),
}
"""Hints before a pattern. A missing hint counts as the protocol says (server/tools, annotations)."""


TAG: Final = "tag"
"""Before a pattern of tags: `tag:money`."""

_NO_PART: Final = re.compile(r"""^[!~+-]|\[\^|[{}|\\^$()<>"'`,;%@=&#+]|(?:^|(?<=[_/-]))\.[*+]""")
"""Characters of other notations of patterns, which names of tools do not have."""

_WILD: Final = re.compile(r"^[!$]|\[(?![*?]\])|(?<!\[)[*?]|[*?](?!\])|[{}|]")
"""Characters of a pattern, where names are compared exactly."""

_FREE: Final = re.compile(r"\[.*?\]|[*?]")
"""The parts of a pattern that stand for several texts."""

_LEAST_LIKE: Final = 0.75
"""The similarity of a misspelt hint and the hint that is meant, from 0 to 1."""


class ToolFacts(NamedTuple):
    """Facts about a tool for patterns."""

    name: str  # its public name
    asked: str = ""  # the name that the host gives it, if it is served under another one
    server: str = ""  # the mounted server that it is of; empty for a local tool
    own: str = ""  # its name on that server
    hints: frozenset[str] = frozenset()  # which of `HINTS` hold for it
    tags: frozenset[str] = frozenset()  # its tags, which the program or its manifest gave it

    def names(self, *, own: bool = False) -> list[str]:
        """Its public names, then `server/tool`; with `own` its name on the server, too."""
        names = [self.name, self.asked, f"{self.server}/{self.own}" if self.server else ""]
        return [name for name in (*names, self.own if own else "") if name]


def hints_of(annotations: Hints | None) -> frozenset[str]:
    return frozenset(name for name, holds in HINTS.items() if holds(annotations or {}))


def split_hint(pattern: str) -> tuple[str, str]:
    hint, colon, rest = pattern.partition(":")
    return (hint, rest) if colon and (hint in HINTS or hint == TAG) else ("", pattern)


def plain_pattern(pattern: str) -> str:
    """The pattern of names in a pattern; any name for one of tags."""
    hint, name = split_hint(pattern)
    return "*" if hint == TAG else name


def fault_of(pattern: str) -> tuple[str, str] | None:
    """The fault of a pattern that names nothing, or whose hint is misspelt; and the remedy."""
    hint, name = split_hint(pattern)
    if not name.strip() or name.endswith("/") or re.search(r"(?<!:)//", name):
        return "names no tool", "write a name or a pattern, such as `*`"
    if fault := fault_of_name(name) or _fault_of_notation(name, is_tag=hint == TAG):
        return fault
    if pattern in HINTS:
        return "is a hint without names", f"write `{pattern}:*`"
    before, colon, rest = name.partition(":")
    # The name of a server may have a colon.
    if not colon or hint == TAG or "/" in rest:
        return None
    if before in (*HINTS, TAG):
        return "has two hints", "write a pattern for each"
    known = {one.lower(): one for one in (*HINTS, TAG)}
    meant = get_close_matches(before.lower().replace("_", ""), known, n=1, cutoff=_LEAST_LIKE)
    every = ", ".join(f"`{one}:`" for one in known.values())
    mend = (
        f"did you mean `{known[meant[0]]}:{rest}`?"
        if meant
        else f"use one of {every}; for a colon in a name write `?`"
    )
    return f"there is no hint `{before}`", mend


def _fault_of_notation(name: str, *, is_tag: bool) -> tuple[str, str] | None:
    """The fault of a pattern in another notation; the name of a server may have any characters."""
    own = name.rpartition("/")[2]
    if listed := re.search(r"/[^/]*([,;|\s])[^/]*/", name):
        return f"has `{listed[1]}`, and is more than one pattern", "write each as an item"
    # What is left without sets such as `[abc]` is open or empty.
    rest = re.sub(r"\[!?\]?[^\]]+\]", "", own)
    match = _NO_PART.search(own) or re.search(r"[][]", rest) or (None if is_tag else re.search(r"\s", own))
    if match is None:
        return None
    return (
        f"has `{match[0]}`, which a pattern does not have",
        "use `*`, `?` and `[abc]`, and a pattern for each alternative; where a name has this, write `?`",
    )


def fault_of_name(name: str) -> tuple[str, str] | None:
    """The fault of the name of a tool or a caller that nothing can have; and the remedy."""
    if name != name.strip() or not name.isprintable():
        return "has blanks at an end or hidden characters, and so fits nothing", "remove them"
    if "${" in name:
        return "has a reference, which is not replaced here", "write the name itself"
    return None


def fault_of_exact(name: str) -> tuple[str, str] | None:
    """The fault of a role or a scope, which are compared exactly; and the remedy."""
    if not name:
        return "is empty, and so fits nothing", "write a name"
    if fault := fault_of_name(name):
        return fault
    if _WILD.search(name) or ("," in name and "=" not in name):
        return (
            "is compared exactly, so a pattern or a list fits nothing",
            "write each name as an item; where a name has a `*`, write `[*]`",
        )
    return None


def fault_of_principal(name: str) -> tuple[str, str] | None:
    """The fault of the name, the pattern of names or the key of a caller; and the remedy."""
    if not name:
        return "is empty, and so fits nothing", "write a name"
    if not name.startswith("[") and re.search(r"^!|\[\^|\{.*,.*\}", name):
        return "is no pattern of names", "use `*`, `?` and `[abc]`, and an item for each alternative"
    return fault_of_name(name)


def plain_name(name: str) -> str:
    """A role or a scope as a token has it: `[*]` and `[?]` stand for the character itself."""
    return name.replace("[*]", "*").replace("[?]", "?")


def check_pattern(pattern: str, place: str) -> None:
    if fault := fault_of(pattern):
        raise DefinitionError(f"{place}: {pattern!r}: {fault[0]}; {fault[1]}")


def check_callers(section: Section) -> None:
    for kind in ("principals", "roles", "scopes"):
        judge = fault_of_principal if kind == "principals" else fault_of_exact
        for name in getattr(section, kind) or ():
            if fault := judge(name):
                raise DefinitionError(f"{section.place}: {kind} {name!r}: {fault[0]}; {fault[1]}")


def fault_of_server(pattern: str, servers: Collection[str]) -> tuple[str, str] | None:
    """The fault of a pattern of `server/tool` that fits no tool of these servers; and the remedy."""
    hint, rest = split_hint(pattern)
    heads = [rest[:at] for at, letter in enumerate(rest) if letter == "/"]
    if (
        hint == TAG
        or not heads
        or any(server == head or fnmatchcase(server, head) for head in heads for server in servers)
    ):
        return None
    meant = get_close_matches(heads[0], servers, n=1)
    if meant:
        colon = f"{hint}:" if hint else ""
        return f"there is no server `{heads[0]}`", f"did you mean `{colon}{meant[0]}{rest[len(heads[0]) :]}`?"
    known = ", ".join(f"`{one}`" for one in servers) or "none"
    return f"there is no server `{heads[0]}`", f"correct its name; the servers here are {known}"


def fault_of_public(pattern: str, prefixes: Mapping[str, str]) -> tuple[str, str] | None:
    """The fault of a pattern that is nearly a public name, or names a whole server; and the remedy."""
    hint, name = split_hint(pattern)
    if hint == TAG or "/" in name:
        return None
    if name in prefixes.values():
        return "is the name of a server", f"write `{name}/*`, or `*/{name}` for a tool of that name"
    called = name if any(one.startswith("mcp") for one in prefixes) else name.removeprefix("mcp__")
    like = [one for one in prefixes if called.lower().startswith(f"{one}_".lower())]
    prefix = max((one for one in like if called.startswith(one)), key=len, default="")
    rest = called[len(prefix) :]
    # Two underscores follow a prefix with an underscore, and stand before a name that has two.
    is_public = called == name and not ("_" not in prefix and re.fullmatch(r"__(?!_)(?:(?!__).)+", rest))
    if like and not (prefix and is_public):
        meant = prefix or like[0]
        return (
            "is no name that a tool has here",
            f"did you mean `{prefixes[meant]}/{called[len(meant) :].lstrip('_')}`?",
        )
    if called != name:
        return "is a client's name of a tool", "write `SERVER/TOOL`, or a name that `mcp-toolset list` shows"
    return None


def is_caller(pattern: str, name: str, key: str) -> bool:
    """True if a pattern is for a caller: its name, a pattern of its name, or its key, beginning with `[`."""
    if pattern.startswith("["):
        # Never a name: a user may be called what the key of another one is.
        return pattern == key
    return pattern in (name, key) or fnmatchcase(name, pattern)


class Caller(Protocol):
    """Facts about a caller for sections: an `Identity`."""

    @property
    def name(self) -> str: ...

    @property
    def key(self) -> str: ...

    @property
    def roles(self) -> frozenset[str]: ...

    @property
    def scopes(self) -> frozenset[str]: ...


class ForCallers(Protocol):
    """A section, or limits, for some callers."""

    @property
    def principals(self) -> Sequence[str] | None: ...

    @property
    def roles(self) -> Sequence[str] | None: ...

    @property
    def scopes(self) -> Sequence[str] | None: ...


def is_for(section: ForCallers, caller: Caller) -> bool:
    """True if a section is for a caller: each kind that it names has to fit."""
    wanted, name, key = section.principals, caller.name, caller.key
    return (
        (wanted is None or any(is_caller(one, name, key) for one in wanted))
        and (section.roles is None or not caller.roles.isdisjoint(section.roles))
        and (section.scopes is None or not caller.scopes.isdisjoint(section.scopes))
    )


def is_for_all_of(before: ForCallers, after: ForCallers) -> bool:
    """True if one is for every caller that another one is for."""
    return all(
        wide is None or (narrow is not None and {*narrow} <= {*wide})
        for wide, narrow in (
            (None if "*" in (before.principals or ()) else before.principals, after.principals),
            (before.roles, after.roles),
            (before.scopes, after.scopes),
        )
    )


_Some = TypeVar("_Some", bound=ForCallers)


def asked_before(
    sections: Sequence[_Some], callers: Sequence[Caller], last: Sequence[_Some] = ()
) -> Iterator[tuple[_Some, list[list[_Some]]]]:
    """Each section, and for each caller that it is for the sections before it that are for this caller too.

    Before each one of `last` are all of `sections`.
    """
    for number, section in enumerate((*sections, *last)):
        meant = [caller for caller in callers if is_for(section, caller)]
        yield section, [[one for one in sections[:number] if is_for(one, caller)] for caller in meant]


def of_all(before: Sequence[Sequence[_Some]]) -> list[_Some]:
    """The sections that are for each of some callers."""
    return [one for one in before[0] if all(one in some for some in before)] if before else []


class HiddenRule(NamedTuple):
    """A rule that never applies: its list, its number there, and the pattern that allows before it."""

    kind: Kind
    number: int
    pattern: str
    wide: str


def hidden_rules(stated: Permissions) -> Iterator[tuple[HiddenRule, Section, Section]]:
    """The rules that apply to nobody, each with its section and the one before it that allows its tools."""
    general, callers, servers = stated.general, stated.callers, stated.servers
    pairs = [(after, before) for number, after in enumerate(callers) for before in callers[:number]]
    hidden = [(hidden_rule(*pair), *pair) for pair in pairs if is_for_all_of(pair[1], pair[0])]
    hidden += [(hidden_rule(general, before, name), general, before) for name, before in servers.items()]
    for before in (section for section in callers if is_for_all_of(section, Section(""))):
        hidden += [
            (rule_hidden_by_callers(after, [[before]]), after, before)
            for after in (general, *servers.values())
        ]
    return ((rule, after, before) for rule, after, before in hidden if rule is not None)


def hidden_rule(after: Section, before: Section, server: str = "") -> HiddenRule | None:
    """The first rule of a section that never applies, as the one that is asked before allows its tools.

    Of a server's section, only rules for tools of that server can be hidden.
    """
    own = (f"{server}/", f"{server}_") if server else ("",)
    for kind, number, pattern in _restricting(after):
        if split_hint(pattern)[1].startswith(own) and (wide := _allowing(before, pattern, server)):
            return HiddenRule(kind, number, pattern, wide)
    return None


def rule_hidden_everywhere(after: Section, before: Mapping[str, Section]) -> HiddenRule | None:
    """The first general rule that never applies, as the sections of all servers allow its tools before it."""
    for kind, number, pattern in _restricting(after) if before else ():
        allowing = [_allowing(section, pattern, server) for server, section in before.items()]
        if all(allowing):
            return HiddenRule(kind, number, pattern, allowing[0])
    return None


def rule_hidden_by_callers(after: Section, before: Sequence[Sequence[Section]]) -> HiddenRule | None:
    """The first rule that never applies, as the sections of each caller allow its tools before it.

    Args:
        after: The section that is asked after those for callers.
        before: For each caller, the sections that are for it.
    """
    for kind, number, pattern in _restricting(after) if before else ():
        allowing = [next(filter(None, (_allowing(one, pattern, "") for one in some)), "") for some in before]
        if all(allowing) and not any(_covers(own, pattern, "") for some in before for own in _denied(some)):
            return HiddenRule(kind, number, pattern, allowing[0])
    return None


def _denied(sections: Iterable[Section]) -> Iterator[str]:
    return (pattern for section in sections for _, _, pattern in _restricting(section))


def _restricting(section: Section) -> Iterator[tuple[Kind, int, str]]:
    lists: tuple[tuple[Kind, tuple[str, ...]], ...] = (("deny", section.deny), ("ask", section.ask))
    for kind, listed in lists:
        for number, pattern in enumerate(listed):
            yield kind, number, pattern


def _allowing(section: Section, pattern: str, server: str) -> str:
    """The pattern by which a section allows all that another pattern fits; empty if there is none."""
    return next((one for one in section.allow or () if _covers(one, pattern, server)), "")


def _covers(wide: str, pattern: str, server: str) -> bool:
    """True if a pattern fits all that another one fits, as far as their texts tell."""
    (hint, name), (other, inner) = split_hint(wide), split_hint(pattern)
    names = (inner, inner.removeprefix(f"{server}/"))
    return hint in ("", other) and (
        name == "*" if other == TAG else any(fnmatchcase(one, name) for one in names)
    )


def precision(pattern: str, server: str) -> tuple[bool, int, bool, bool]:
    """The specificity of a pattern, in a server's section or in that for all (`server` is empty).

    A name without wildcards first, then the longer text, in which a server's name counts with its patterns.
    """
    hint, name = split_hint(pattern)
    plain = _FREE.sub("", name)
    length = len(plain) + (len(server) + 1 if server else 0)
    return plain == name, length, bool(server), bool(hint)


@dataclass(frozen=True, slots=True)
class _Rule:
    kind: Kind
    pattern: str
    hint: str
    fits: Callable[[str], object]

    def is_for(self, tool: ToolFacts, names: Iterable[str]) -> bool:
        return any(map(self.fits, tool.tags if self.hint == TAG else names))


class SectionRules:
    """The patterns of one section, compiled."""

    __slots__ = ("_any", "_own", "_rules", "section")

    def __init__(self, section: Section, *, of_server: bool = False) -> None:
        """Compile a section; that of a server compares patterns with the server's own names, too."""
        self.section = section
        check_callers(section)
        self._own = of_server
        self._rules: list[_Rule] = []
        parts: list[str] = []
        for kind, pattern in section.patterns():
            check_pattern(pattern, f"{section.place}.{kind}")
            hint, name = split_hint(pattern)
            # A name with `[` in it is meant as it is written, too.
            server, _, own = name.rpartition("/")
            its = f"|{re.escape(server)}/{translate(own)}" if server else ""
            part = f"(?:{translate(name)}|{re.escape(name)}\\Z{its})"
            if hint != TAG:
                parts.append(part)
            self._rules.append(_Rule(kind, pattern, hint, re.compile(part).match))
        # Most tools fit none of many patterns: one look at all of them says so.
        self._any = re.compile("|".join(parts) or r"(?!)").match

    def first(self, tool: ToolFacts) -> tuple[Kind, str] | None:
        """The first pattern that fits a tool, and what it decides: `deny` before `ask` before `allow`.

        A `deny` fits by the tool's own name, too: `destroy` is denied at every server.
        """
        return next(self._fitting(tool, tool.names(own=True), frozenset(("deny",))), None)

    def asks_own(self, tool: ToolFacts) -> str | None:
        """The first pattern of `ask` that fits a tool by its own name on its server, or by another name."""
        rule = self._fitting(tool, tool.names(own=True), frozenset(("deny", "ask")))
        return next((pattern for kind, pattern in rule if kind == "ask"), None)

    def _fitting(
        self, tool: ToolFacts, every: list[str], by_own: frozenset[Kind]
    ) -> Iterator[tuple[Kind, str]]:
        if not tool.tags and not any(map(self._any, every)):
            return
        names = tool.names(own=self._own)
        for rule in self._rules:
            among = every if rule.kind in by_own else names
            if (rule.hint in ("", TAG) or rule.hint in tool.hints) and rule.is_for(tool, among):
                yield rule.kind, rule.pattern

    def unused(self, tools: Sequence[ToolFacts]) -> list[tuple[Kind, str]]:
        """The patterns whose names fit none of the tools, whatever the hints of the tools are."""
        own, every = ({name for tool in tools for name in tool.names(own=one)} for one in (self._own, True))
        tagged = ToolFacts("", tags=frozenset(tag for tool in tools for tag in tool.tags))
        return [
            (rule.kind, rule.pattern)
            for rule in self._rules
            if not rule.is_for(tagged, own if rule.kind == "allow" else every)
        ]
