"""`ToolRegistry`: sources, membership, generations, states and the names that go with them."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

import anyio
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, rule
from tests.catalog.mounts import Mount

from mcp_toolset import Tool, ToolRegistry, Toolset, tool
from mcp_toolset.catalog.registry.state import RegistryEntry, RegistryState
from mcp_toolset.errors import (
    DefinitionError,
    NameConflictError,
    StaleStateError,
    StateError,
    UnknownToolError,
)
from mcp_toolset.rounds import ToolAvailability

ACCEPTED = re.compile(r"[A-Za-z0-9_-]{1,64}")


@tool
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


@tool
def sub(a: int, b: int) -> int:
    """Subtract."""
    return a - b


def called(registry: ToolRegistry, name: str) -> str:
    """The tool that runs under a name."""
    return anyio.run(registry.view().execute, name).text


def named(registry: ToolRegistry) -> dict[str, str]:
    """The tools that run under each name."""
    return {name: called(registry, name) for name in registry.names}


def test_h7_membership_is_the_gate_and_its_changes_advance_the_generation() -> None:
    registry = ToolRegistry(Toolset(add, sub))
    before, view = registry.generation, registry.view()
    assert registry.names == ("add", "sub")
    assert registry.disable("sub") == before + 1
    assert registry.names == ("add",) and list(registry.view()) == ["add"]
    # A view that was frozen earlier does not go around the gate.
    with pytest.raises(UnknownToolError):
        anyio.run(view.execute, "sub", {"a": 1, "b": 1})
    assert registry.disable("sub") == before + 1
    assert registry.enable(sub) == before + 2
    assert anyio.run(view.execute, "sub", {"a": 3, "b": 1}).structured == {"result": 2}


def test_h7_tools_that_are_off_join_when_they_are_enabled() -> None:
    registry = ToolRegistry(Toolset(add, sub).off("sub"))
    assert registry.names == ("add",)
    registry.enable("sub")
    assert list(registry.view().select(ToolAvailability.default())) == ["add", "sub"]
    registry.choose({"sub": None})
    assert registry.names == ("add",)


def test_h7_a_choice_with_an_unknown_name_changes_nothing() -> None:
    registry = ToolRegistry(Toolset(add, sub))
    before = registry.snapshot()
    with pytest.raises(UnknownToolError, match="nope"):
        registry.disable("add", "nope")
    assert registry.snapshot() == before and registry.names == ("add", "sub")


def test_h4_h7_what_is_decided_on_an_older_generation_is_refused() -> None:
    registry = ToolRegistry(Toolset(add, sub), Mount("git", "reset"), hidden=["reset"])
    assert registry.members() == {"add": True, "sub": True}
    generation = registry.generation
    assert registry.change({"sub": False}, generation=generation) == generation + 1
    with pytest.raises(StaleStateError, match="try again"):
        registry.change({"add": False}, generation=generation)
    with pytest.raises(UnknownToolError):
        registry.change({"add": False, "reset": True}, generation=generation + 1)
    assert registry.members() == {"add": True, "sub": False}


def test_h8_sources_are_replaced_and_removed_by_handle() -> None:
    registry = ToolRegistry(Toolset(add))
    handle = registry.register(Mount("git", "log"))
    assert registry.names == ("add", "log")
    registry.replace(handle, Mount("git", "log", "diff"))
    assert registry.names == ("add", "log", "diff")
    registry.remove(handle)
    assert registry.names == ("add",)
    for use in (registry.remove, lambda gone: registry.replace(gone, Toolset(sub))):
        with pytest.raises(StateError, match="'git' is not registered here, or was removed"):
            use(handle)
    with pytest.raises(StateError):
        ToolRegistry().remove(registry.handles()[0])
    assert registry.names == ("add",)


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        (Toolset(add), Toolset(add), r"two tools are named 'add': .*add \(.*and"),
        (
            Toolset(Tool.from_schema("a", {}, id="same")),
            Toolset(Tool.from_schema("b", {}, id="same")),
            "two tools have the id 'same'",
        ),
    ],
)
def test_h9_what_the_host_names_twice_is_an_error_and_changes_nothing(
    first: Toolset, second: Toolset, message: str
) -> None:
    registry = ToolRegistry(first)
    before = registry.snapshot()
    with pytest.raises(NameConflictError, match=message):
        registry.register(second)
    with pytest.raises(NameConflictError, match=message):
        registry.check(second)
    assert registry.snapshot() == before and len(registry.handles()) == 1
    registry.check(second, instead_of=registry.handles()[0])


def test_h9_an_empty_name_or_an_empty_id_is_an_error() -> None:
    def unnamed(binding: Any) -> Any:
        return replace(binding, name="")

    with pytest.raises(NameConflictError, match="empty name"):
        ToolRegistry(Toolset(add).through(unnamed))
    with pytest.raises(StateError, match="without an id"):
        RegistryState(0, (RegistryEntry("git", ""),))


def test_h9_one_tool_under_two_names_is_two_members() -> None:
    registry = ToolRegistry(Toolset(add, Toolset(add).prefixed("x")))
    registry.disable("x_add")
    assert registry.names == ("add",)
    assert len({entry.key for entry in registry.snapshot().tools}) == 2


def test_f16_ids_that_an_upstream_makes_up_lose_no_tool() -> None:
    mount = Mount("git", "x", "x@x", "x@y_x")
    registry = ToolRegistry(Toolset(mount, mount.filtered(include=["x"]).prefixed("y")))
    assert len(set(registry.names)) == 4
    assert sorted(named(registry).values()) == ["git/x", "git/x", "git/x@x", "git/x@y_x"]


def test_h10_a_state_defines_the_whole_surface() -> None:
    registry = ToolRegistry(Toolset(add, sub), Mount("git", "log"))
    state = registry.snapshot()
    kept = RegistryState(state.generation, tuple(one for one in state.tools if one.name != "sub"))
    report = registry.apply_state(kept.choosing({"log": False}))
    assert registry.names == ("add",)
    assert (report.generation, report.orphaned) == (state.generation + 1, ())
    assert registry.generation == report.generation
    registry.enable("sub")
    assert registry.names == ("add", "sub")


def test_h10_a_stale_state_is_refused_and_nothing_changes() -> None:
    registry = ToolRegistry(Toolset(add, sub))
    stale = registry.snapshot().choosing({"add": False})
    registry.disable("sub")
    before = registry.snapshot()
    with pytest.raises(StaleStateError, match=r"snapshot \(1 → 2\).*new snapshot"):
        registry.apply_state(stale)
    assert registry.snapshot() == before and registry.names == ("add",)


def test_h10_a_state_that_cannot_be_a_surface_is_refused() -> None:
    same = RegistryEntry("git", "log", "log")
    with pytest.raises(StateError, match="'log' of 'git' twice"):
        RegistryState(1, (same, same))
    with pytest.raises(StateError, match="two tools named 'log'"):
        RegistryState(1, (same, RegistryEntry("hg", "log", "log")))
    with pytest.raises(StateError, match="generation -1"):
        RegistryState(-1)


@pytest.mark.parametrize("identical", [False, True])
def test_h10_of_writers_that_race_on_one_generation_one_wins_whole(identical: bool) -> None:
    tools = [Tool.from_schema(f"t{number}", {}, id=f"t{number}") for number in range(8)]
    registry = ToolRegistry(Toolset(*tools))
    start = threading.Barrier(8)
    won: list[int] = []
    refused: list[int] = []
    state = registry.snapshot()

    def write(number: int) -> None:
        wanted = state if identical else state.choosing({f"t{i}": i == number for i in range(8)})
        start.wait(5)
        try:
            registry.apply_state(wanted)
            won.append(number)
        except StaleStateError:
            refused.append(number)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert len(won) == 1 and len(refused) == 7
    assert registry.generation == state.generation + 1
    assert registry.names == (tuple(one.name for one in tools) if identical else (f"t{won[0]}",))


def test_h10_readers_never_see_half_of_a_change() -> None:
    tools = [Tool.from_schema(f"t{number}", {}) for number in range(20)]
    registry = ToolRegistry(Toolset(*tools))
    seen: set[int] = set()
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            seen.add(len(registry.names))

    thread = threading.Thread(target=read)
    thread.start()
    for number in range(100):
        registry.choose({one.name: bool(number % 2) for one in tools})
    stop.set()
    thread.join(10)
    assert seen <= {0, 20}


def test_h11_a_persisted_generation_is_adopted_and_the_orphans_are_told() -> None:
    before = ToolRegistry(Toolset(add, sub), Mount("git", "log"))
    for _ in range(3):
        before.disable("sub")
        before.enable("sub")
    before.disable("sub", "log")
    saved = RegistryState.from_json(before.snapshot().to_json())

    after = ToolRegistry(Toolset(add, sub))
    report = after.restore_state(saved)
    assert report.generation == after.generation == before.generation
    assert report.orphaned == after.orphaned == (("git", "log"),)
    assert after.names == ("add",)
    after.register(Mount("git", "log", "diff"))
    assert after.names == ("add", "diff") and after.orphaned == ()
    assert after.generation == report.generation + 1


def test_h11_tools_that_the_state_does_not_know_stay_as_their_toolset_says() -> None:
    saved = ToolRegistry(Toolset(add)).snapshot()
    registry = ToolRegistry(Toolset(add, sub).off("sub"), Mount("git", "log"))
    registry.restore_state(saved)
    assert registry.names == ("add", "log")


def test_h12_tools_of_a_missing_source_are_orphans_until_it_returns() -> None:
    registry = ToolRegistry(Toolset(add))
    handle = registry.register(Mount("git", "log", "diff"))
    registry.disable("diff")
    view = registry.view()
    registry.remove(handle)
    assert registry.names == ("add",)
    assert registry.orphaned == (("git", "log"), ("git", "diff"))
    with pytest.raises(UnknownToolError):
        anyio.run(view.execute, "log")
    with pytest.raises(UnknownToolError):
        registry.enable("log")
    registry.register(Mount("git", "log", "diff"))
    assert registry.names == ("add", "log")
    assert registry.orphaned == ()


def test_h12_a_live_tool_that_took_the_name_wins_and_no_opt_out_moves_to_it() -> None:
    registry = ToolRegistry()
    first = registry.register(Mount("one", "search"))
    registry.disable("search")
    registry.remove(first)
    registry.register(Mount("two", "search"))
    assert named(registry) == {"search": "two/search"}
    registry.register(Mount("one", "search"))
    assert named(registry) == {"search": "two/search"}
    (other,) = (entry for entry in registry.snapshot().tools if entry.source == "one")
    assert other.name.startswith("one_search_") and other.member is False
    registry.enable(other.name)
    assert named(registry) == {"search": "two/search", other.name: "one/search"}


def test_h12_a_local_tool_of_another_id_does_not_inherit_an_opt_out() -> None:
    registry = ToolRegistry()
    handle = registry.register(Toolset(Tool.from_schema("run", {}, id="first")))
    registry.disable("run")
    registry.replace(handle, Toolset(Tool.from_schema("run", {}, id="second")))
    assert registry.names == ("run",)
    registry.replace(handle, Toolset(Tool.from_schema("run", {}, id="first")))
    assert registry.names == ()


def test_h12_orphans_without_a_decision_are_forgotten_when_there_are_too_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mcp_toolset.catalog.registry.registry.MAX_ORPHANS", 10)
    mount = Mount("git", "kept")
    registry = ToolRegistry(mount)
    registry.disable("kept")
    for number in range(50):
        mount.listed = [f"t{number}"]
        registry.refresh()
    assert len(registry.orphaned) == 10
    assert ("git", "kept") in registry.orphaned
    assert ("git", "t48") in registry.orphaned


def test_h13_names_hidden_by_policy_stay_hidden_through_everything() -> None:
    mount = Mount("git", "log", "reset_hard")
    registry = ToolRegistry(Toolset(add), hidden=["*reset*"])
    handle = registry.register(mount)
    assert registry.names == ("add", "log")
    everything = registry.snapshot().choosing({"reset_hard": True})
    registry.apply_state(everything)
    assert registry.names == ("add", "log")
    mount.listed.append("reset_soft")
    registry.refresh()
    registry.replace(handle, Mount("git", "reset_hard", "log"))
    registry.restore_state(everything)
    assert registry.names == ("add", "log")
    with pytest.raises(UnknownToolError):
        registry.enable("reset_hard")
    assert registry.hide("l?g") and registry.names == ("add",)


def test_h13_a_name_that_had_to_be_altered_does_not_slip_through() -> None:
    registry = ToolRegistry(Mount("a", "wipe"), Mount("b", "wipe"), hidden=["wipe"])
    assert registry.names == ()


def test_h23_a_name_stays_while_its_tool_lives_whoever_else_comes_and_goes() -> None:
    registry = ToolRegistry(Mount("b", "search"))
    first = registry.register(Mount("a", "search"))
    assert list(named(registry).values()) == ["b/search", "a/search"]
    (taken, other) = registry.names
    assert taken == "search" and other.startswith("a_search_")
    registry.remove(registry.handles()[0])
    assert registry.names == (other,)
    registry.register(Mount("c", "search"))
    assert named(registry) == {other: "a/search", "search": "c/search"}
    registry.remove(first)
    assert registry.names == ("search",)


def test_h23_who_is_first_is_the_hosts_order_and_no_upstreams() -> None:
    a, b = Mount("a", "x", "search"), Mount("b", "search", "y")
    registry = ToolRegistry(Toolset(a, b))
    a.listed.reverse()
    again = ToolRegistry(Toolset(a, b))
    assert named(registry) == named(again)
    assert named(registry)["search"] == "a/search"


def test_h23_names_survive_a_restart_with_a_state() -> None:
    late = Mount("a")
    registry = ToolRegistry(Toolset(late, Mount("b", "search")))
    late.listed = ["search"]
    registry.refresh()
    assert named(registry)["search"] == "b/search"
    again = ToolRegistry()
    again.restore_state(registry.snapshot())
    again.register(Toolset(late, Mount("b", "search")))
    assert named(again) == named(registry)


def test_h23_a_new_name_from_the_host_goes_before_a_remembered_one() -> None:
    registry = ToolRegistry()
    handle = registry.register(Mount("git", "log").prefixed("gh"))
    assert registry.names == ("gh_log",)
    registry.replace(handle, Mount("git", "log").prefixed("git"))
    assert registry.names == ("git_log",)


def test_h23_local_names_that_no_client_takes_are_altered_and_deterministic() -> None:
    tools = [Tool.from_schema(name, {}) for name in ("my.tool", "x" * 128, "fine")]
    names = ToolRegistry(Toolset(*tools)).names
    assert names == ToolRegistry(Toolset(*tools)).names
    assert names[2] == "fine" and names[0].startswith("my_tool_")
    assert all(ACCEPTED.fullmatch(name) for name in names)


@pytest.mark.parametrize("prefix", ["mcp__hub__", "mcp__a-very-long-name-of-a-server__"])
def test_h23_names_leave_room_for_what_a_client_puts_before_them(prefix: str) -> None:
    registry = ToolRegistry(
        Mount("git", "short", "x" * 60, "x" * 61, "y" * 64),
        Toolset(Tool.from_schema("z" * 60, {})),
        client_prefix=prefix,
    )
    assert registry.names[0] == "short" and len(set(registry.names)) == 5
    assert all(ACCEPTED.fullmatch(prefix + name) for name in registry.names)


def test_h23_a_client_prefix_that_leaves_no_room_is_refused() -> None:
    with pytest.raises(DefinitionError, match="leaves 23 of 64.*at most 40"):
        ToolRegistry(client_prefix="x" * 41)
    long = ToolRegistry(Mount("git", "y" * 64), client_prefix="x" * 40)
    assert len(long.names[0]) <= 24


def test_changes_are_told_once_and_to_nobody_who_has_left() -> None:
    registry = ToolRegistry(Toolset(add, sub))
    told: list[int] = []
    stop = registry.on_change(lambda: told.append(registry.generation))
    registry.disable("add", "sub")
    registry.disable("add")
    registry.refresh()
    stop()
    registry.enable("add")
    assert told == [2]


def test_names_of_a_tool_that_lists_new_text_stay_and_the_text_is_new() -> None:
    class Rewritten(Mount):
        text = "old"

        def bindings(self) -> Any:
            return [
                replace(one, definition=one.definition.described(self.text)) for one in super().bindings()
            ]

    mount = Rewritten("git", "log")
    registry = ToolRegistry(mount)
    before = registry.generation
    mount.text = "new"
    assert registry.refresh() == before
    assert [one.definition.description for one in registry.bindings()] == ["new"]


NAMES = st.sampled_from(["search", "log", "a_b", "b_log", "x" * 64, "x" * 70, "ä", "search!"])
SOURCES = ["a", "b", "c"]
HIDDEN = ["*secret*", "b_*"]


class RegistryMachine(RuleBasedStateMachine):
    """Any order of registering, changing, removing, deciding, hiding, saving, applying and restarting."""

    handles: Bundle[Any] = Bundle("handles")
    states: Bundle[RegistryState] = Bundle("states")

    @initialize()
    def start(self) -> None:
        self.registry = ToolRegistry(Toolset(add, sub))
        self.mounts: dict[Any, Mount] = {}
        self.choices: dict[Any, bool | None] = {}
        self.hidden: list[str] = []
        # What the registry calls a handle that was drawn: another one after a restart.
        self.now: dict[Any, Any] = {}
        self.names: dict[Any, str] = {}

    def changed(self, act: Callable[[], Any]) -> Any:
        """Act, and compare the generation with whether anything is another, other than in its order."""
        before = self.registry.snapshot(), set(self.registry.names)
        result = act()
        after = self.registry.snapshot(), set(self.registry.names)
        if (before[0].tools, before[1]) != (after[0].tools, after[1]):
            assert after[0].generation == before[0].generation + 1
        return result

    def free(self) -> list[str]:
        taken = {mount.source for mount in self.mounts.values()}
        return [source for source in SOURCES if source not in taken]

    @rule(target=handles, data=st.data(), tools=st.lists(NAMES, unique=True, max_size=4))
    def register(self, data: st.DataObject, tools: list[str]) -> Any:
        if not self.free():
            return multiple()
        mount = Mount(data.draw(st.sampled_from(self.free())), *tools)
        handle = self.changed(lambda: self.registry.register(mount))
        self.mounts[handle], self.now[handle] = mount, handle
        return handle

    @rule(handle=handles, tools=st.lists(NAMES, unique=True, max_size=4))
    def list_again(self, handle: Any, tools: list[str]) -> None:
        self.mounts[handle].listed = tools
        self.changed(self.registry.refresh)

    @rule(handle=handles, tools=st.lists(NAMES, unique=True, max_size=4))
    def replace(self, handle: Any, tools: list[str]) -> None:
        mount = Mount(self.mounts[handle].source, *tools)
        self.changed(lambda: self.registry.replace(self.now[handle], mount))
        self.mounts[handle] = mount

    @rule(handle=consumes(handles))
    def remove(self, handle: Any) -> None:
        self.changed(lambda: self.registry.remove(self.now[handle]))
        del self.mounts[handle]

    @rule(data=st.data(), member=st.sampled_from([True, False, None]))
    def choose(self, data: st.DataObject, member: bool | None) -> None:
        entries = [
            entry
            for entry in self.registry.snapshot().tools
            if entry.key in self.live() and not self.is_hidden(entry)
        ]
        if entries:
            entry = data.draw(st.sampled_from(entries))
            self.changed(lambda: self.registry.choose({entry.name: member}))
            self.choices[entry.key] = member

    @rule(pattern=st.sampled_from(HIDDEN))
    def hide(self, pattern: str) -> None:
        self.hidden.append(pattern)
        self.registry.hide(pattern)

    @rule(target=states)
    def save(self) -> RegistryState:
        state = self.registry.snapshot()
        assert RegistryState.from_json(state.to_json()) == state
        return state

    @rule(state=states)
    def apply(self, state: RegistryState) -> None:
        before = self.registry.snapshot(), self.registry.names
        if state.generation != before[0].generation:
            with pytest.raises(StaleStateError):
                self.registry.apply_state(state)
            assert (self.registry.snapshot(), self.registry.names) == before
            return
        report = self.registry.apply_state(state)
        assert report.generation == state.generation + 1 == self.registry.generation
        assert set(report.orphaned) == {one.key for one in state.tools} - self.live()
        known = {entry.key: entry.member for entry in state.tools}
        self.choices = {key: known.get(key, False) for key in known.keys() | self.live()}
        self.names = {}

    @rule(state=states)
    def restart(self, state: RegistryState) -> None:
        """The process ends, and another one restores what was saved, before its mounts are there."""
        mounts = list(self.mounts.items())
        registry = ToolRegistry(Toolset(add, sub), hidden=self.hidden)
        report = registry.restore_state(state)
        assert report.generation == state.generation == registry.generation
        assert all(key.source for key in report.orphaned)
        self.now = {handle: registry.register(mount) for handle, mount in mounts}
        self.registry = registry
        self.choices = {entry.key: entry.member for entry in state.tools}
        self.names = {}

    def live(self) -> set[Any]:
        return set(self.registry._now.live)

    def is_hidden(self, entry: RegistryEntry) -> bool:
        return any(
            fnmatchcase(name, pattern) for pattern in self.hidden for name in (entry.name, entry.asked)
        )

    @invariant()
    def names_are_legal_unique_and_lead_back(self) -> None:
        live = self.registry._now.live
        names = [binding.name for binding in live.values()]
        assert len(names) == len(set(names))
        assert all(ACCEPTED.fullmatch(name) for name in names)
        for key, binding in live.items():
            assert (binding.source, binding.tool_id) == key
            if key.source:
                assert binding.definition.name == key.id

    @invariant()
    def nothing_that_is_listed_vanishes(self) -> None:
        listed = {(mount.source, name) for mount in self.mounts.values() for name in mount.listed}
        assert {key for key in self.live() if key.source} == listed

    @invariant()
    def a_name_stays_while_its_tool_lives(self) -> None:
        names = {key: binding.name for key, binding in self.registry._now.live.items()}
        assert all(names[key] == name for key, name in self.names.items() if key in names)
        self.names = names

    @invariant()
    def membership_is_what_was_decided_of_that_id_and_not_hidden(self) -> None:
        state = self.registry.snapshot()
        for entry in state.tools:
            assert entry.member == self.choices.get(entry.key)
            is_member = entry.key in self.live() and entry.member is not False and not self.is_hidden(entry)
            assert (self.registry._now.members.get(entry.name) == entry.key) == is_member
        assert set(self.registry.orphaned) == {entry.key for entry in state.tools} - self.live()


TestRegistryMachine = RegistryMachine.TestCase
TestRegistryMachine.settings = settings(stateful_step_count=25)
