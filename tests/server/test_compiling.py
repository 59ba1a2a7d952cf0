"""What is served after changes is what a compilation of everything gives, and only the change is compiled."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import anyio
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.catalog.mounts import Mount
from tests.faults.harness import until

from mcp_toolset import (
    Complete,
    HookSet,
    RemoteToolset,
    Rules,
    RunNormally,
    ToolBinding,
    ToolCall,
    ToolContext,
    ToolResult,
    Toolset,
    ToolsetError,
    ToolsetServer,
    tool,
)
from mcp_toolset.catalog.registry.state import RegistryState
from mcp_toolset.middleware import CallNext
from mcp_toolset.tools.definition import public_name

DEADLINE = 30
LONG = "x" * 70


class Lists(Mount):
    """A mount whose tools have editions; unless it `keeps` them, each is another object every time."""

    def __init__(self, source: str, editions: dict[str, int], *, keeps: bool) -> None:
        self.editions = editions
        self.keeps = keeps
        self.kept: dict[tuple[str, int], ToolBinding] = {}
        super().__init__(source)

    def bindings(self) -> list[ToolBinding]:
        return [self.of(name, edition) for name, edition in self.editions.items()]

    def of(self, name: str, edition: int) -> ToolBinding:
        if self.keeps and (name, edition) in self.kept:
            return self.kept[name, edition]
        bound = self._bound(name)

        async def execute(call: ToolCall, context: ToolContext) -> ToolResult:
            return ToolResult.of_text(f"{self.source}/{name}, edition {edition}")

        definition = bound.definition.described(f"Edition {edition} of {self.source}.")
        made = self.kept[name, edition] = replace(bound, definition=definition, execute=execute)
        return made


def local(name: str) -> Toolset:
    async def run() -> str:
        return f"local {name}"

    return Toolset(tool(name=name)(run))


SHAPES: dict[str, Callable[[Toolset], Toolset]] = {
    "plain": lambda mount: mount,
    "prefixed": lambda mount: mount.prefixed("git"),
    "cut": lambda mount: mount.prefixed("p" * 40),
    "renamed": lambda mount: mount.renamed({"log": "diff", "diff": "show"}),
    "off": lambda mount: mount.off("log").tagged("quiet"),
    "deferred": lambda mount: mount.prefixed("far").deferred(),
    "filtered": lambda mount: mount.filtered(exclude="d*").described({"log": "What happened."}),
    "by a predicate": lambda mount: mount.filtered(lambda one: len(one.name) < 10).granting("catalog"),
    "twice": lambda mount: Toolset(mount.prefixed("one"), mount.prefixed("two")),
    "alike": lambda mount: Toolset(mount, mount),
    "around another": lambda mount: Toolset(
        mount.filtered(include="log"), local("between"), mount.filtered(exclude="log").prefixed("z")
    ),
}

SOURCES = st.sampled_from(["git", "hub", "db"])
TOOLS = st.dictionaries(
    st.sampled_from(["log", "diff", "git_log", "a.b", LONG, "search_tools", "show"]),
    st.integers(1, 2),
    max_size=4,
)
CHANGES = st.one_of(
    st.tuples(st.just("mount"), SOURCES, st.sampled_from(sorted(SHAPES)), TOOLS),
    st.tuples(st.sampled_from(["list", "list_unseen"]), SOURCES, TOOLS),
    st.tuples(st.just("unmount"), SOURCES),
    st.tuples(st.just("local"), st.sampled_from(["log", "git_log", "show", "search_tools"])),
    st.tuples(st.just("choose"), st.integers(0, 9), st.sampled_from([True, False, None])),
    st.tuples(st.just("hide"), st.sampled_from(["git_*", "diff"])),
    st.tuples(st.sampled_from(["save", "apply", "restore"])),
)


class World:
    """A server, and what can happen to it."""

    def __init__(self, *, keeps: bool, ruled: bool) -> None:
        self.keeps = keeps
        self.server = ToolsetServer(Toolset(), scorer=None, rules=rules() if ruled else None, keep=False)
        self.registry = self.server.registry
        self.mounts: dict[str, Lists] = {}
        self.handles: dict[str, Any] = {}
        self.saved = RegistryState(0)

    async def after(self, change: tuple[Any, ...]) -> list[str]:
        """What went wrong in a change, and in the compilation after it."""
        faults: list[str] = []
        kind, *rest = change
        try:
            getattr(self, kind)(*rest)
        except ToolsetError as fault:
            faults.append(repr(fault))
        try:
            if kind != "list_unseen":
                await self.server._served.compile()
        except ToolsetError as fault:
            faults.append(repr(fault))
        return faults

    def mount(self, source: str, shape: str, editions: dict[str, int]) -> None:
        mount = self.mounts.setdefault(source, Lists(source, {}, keeps=self.keeps))
        mount.editions = editions
        self.put(source, SHAPES[shape](mount))

    def put(self, key: str, toolset: Toolset) -> None:
        if key in self.handles:
            self.registry.replace(self.handles[key], toolset)
        else:
            self.handles[key] = self.registry.register(toolset)

    def list(self, source: str, editions: dict[str, int]) -> None:
        if source in self.mounts:
            self.mounts[source].editions = editions

    list_unseen = list

    def unmount(self, key: str) -> None:
        if key in self.handles:
            self.registry.remove(self.handles.pop(key))

    def local(self, name: str) -> None:
        key = f"local {name}"
        if key in self.handles:
            self.unmount(key)
        else:
            self.put(key, local(name))

    def choose(self, place: int, member: bool | None) -> None:
        names = list(self.registry.members())
        if names:
            self.registry.choose({names[place % len(names)]: member})

    def hide(self, pattern: str) -> None:
        self.registry.hide(pattern)

    def save(self) -> None:
        self.saved = self.registry.snapshot()

    def apply(self) -> None:
        self.registry.apply_state(replace(self.saved, generation=self.registry.generation))

    def restore(self) -> None:
        self.registry.restore_state(self.saved)

    async def seen(self) -> dict[str, Any]:
        """All that can be told of it from outside, in order."""
        registry, server = self.registry, self.server
        found = server.search("the log or edition 2 of git") if registry.defers else []
        return {
            "state": registry.snapshot(),
            "orphans": registry.orphaned,
            "choices": list(registry.members().items()),
            "members": [told(one) for one in registry.bindings()],
            "table": [told(one) for one in server.bindings()],
            "listed": server.tools(),
            "deferred": list(server._served.deferred_digests().items()),
            "found": [(hit.name, hit.score, hit.description) for hit in found],
            "answers": [await self.answer(one) for one in server.bindings() if one.redirect is None],
        }

    async def answer(self, binding: ToolBinding) -> str:
        try:
            return (await self.server.call_as_host(binding.name)).text
        except ToolsetError as fault:
            return repr(fault)


def told(one: ToolBinding) -> tuple[Any, ...]:
    names = (one.name, one.asked, one.former, one.tool_id, one.source)
    return (*names, one.definition, one.on, one.deferred, one.tags, one.capabilities)


def rules() -> Rules:
    """Rules by names of all kinds, whose answers say whom they reached."""
    hooks = HookSet()

    @hooks.execution("log")
    async def log(call: ToolCall) -> Complete | RunNormally:
        return Complete(f"hook for log: {call.name}")

    @hooks.result("diff")
    async def diff(call: ToolCall, result: ToolResult) -> ToolResult:
        return ToolResult.of_text(f"{result.text}, seen by the hook for diff")

    async def named(call: ToolCall, context: ToolContext, next: CallNext) -> ToolResult:
        result = await next(call)
        return ToolResult.of_text(f"{result.text} as {next.names}")

    return Rules(hooks, [named], {"git_*": [named]}, strict=False)


GIVEN = public_name("a.b")
TAKEN = (("mount", "git", "plain", {"log": 1}), ("mount", "hub", "plain", {"diff": 1}), ("local", "log"))
MOVED_ON = (
    ("local", "a_b"),
    ("mount", "git", "plain", {"a.b": 1}),
    ("local", "a_b"),
    ("mount", "hub", "plain", {"a.b": 1}),
)


@example(changes=[*TAKEN, ("local", "log")], ruled=False)
@example(changes=[*MOVED_ON, ("local", GIVEN)], ruled=False)
@example(changes=[*MOVED_ON, ("list_unseen", "git", {"a.b": 2}), ("local", GIVEN)], ruled=False)
@settings(max_examples=40)
@given(changes=st.lists(CHANGES, min_size=3, max_size=12), ruled=st.booleans())
def test_u67_changes_give_what_a_compilation_of_everything_gives(
    changes: list[tuple[Any, ...]], ruled: bool
) -> None:
    async def run() -> None:
        ours, whole = World(keeps=True, ruled=ruled), World(keeps=False, ruled=ruled)
        for change in changes:
            assert await ours.after(change) == await whole.after(change)
            assert await ours.seen() == await whole.seen()

    anyio.run(run)


@pytest.mark.anyio
@pytest.mark.parametrize("deferred", [False, True])
async def test_u67_a_changed_tool_is_compiled_alone(deferred: bool) -> None:
    world = World(keeps=True, ruled=False)
    for source in ("git", "hub"):
        world.mounts[source] = Lists(source, {"log": 1, "diff": 1}, keeps=True)
        prefixed = world.mounts[source].prefixed(source)
        world.put(source, prefixed.deferred() if deferred else prefixed)
    await world.server._served.compile()
    before, listed = table(world.server), world.server.tools()
    world.mounts["hub"].editions = {"log": 2, "diff": 1}
    await world.server._served.compile()
    after = table(world.server)
    moved = {name for name in after if after[name] is not before[name]}
    assert moved - {"search_tools", "resolve_tools", "call_tool", "call_read_only_tool"} == {"hub_log"}
    assert after["hub_log"].definition.description == "Edition 2 of hub."
    again = {one["name"]: one for one in world.server.tools()}
    assert all(again[one["name"]] is one for one in listed if one["name"].startswith("git"))


@pytest.mark.anyio
async def test_u67_a_change_of_one_server_leaves_the_tools_of_another_as_they_were() -> None:
    one, other = ToolsetServer(local("log")), ToolsetServer(local("log"))
    mounts = (
        RemoteToolset(one, name="one").prefixed("one"),
        RemoteToolset(other, name="other").prefixed("x"),
    )
    with anyio.fail_after(DEADLINE):
        async with ToolsetServer(Toolset(*mounts, local("own"))) as server:
            await server.settled()
            before = table(server)
            assert set(before) == {"one_log", "x_log", "own"}
            await other.attach(local("diff"))
            await until(lambda: "x_diff" in table(server))
            after = table(server)
            assert {name for name in after if after[name] is not before.get(name)} == {"x_diff"}
            result = await server.call_tool("x_diff")
            assert result.text == "local diff"


def table(server: ToolsetServer) -> dict[str, ToolBinding]:
    return {one.name: one for one in server.bindings()}
