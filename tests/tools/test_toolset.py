from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import anyio
import anyio.abc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.calling import listed

from mcp_toolset import (
    SourceStatus,
    Tool,
    ToolBinding,
    ToolCall,
    ToolContext,
    ToolDefinition,
    ToolResult,
    Toolset,
    ToolView,
    tool,
)
from mcp_toolset.errors import DefinitionError, NameConflictError, StateError, UnknownToolError
from mcp_toolset.rounds import ToolAvailability

pytestmark = pytest.mark.anyio

ALPHABET = "abc_-"
words = st.text(ALPHABET, min_size=1, max_size=4)
names = st.lists(words, min_size=1, max_size=6, unique=True)


def numbered(name: str) -> Tool[..., str]:
    @tool(name=name)
    def made() -> str:
        """Say the own name."""
        return name

    return made


def toolset(made: list[str]) -> Toolset:
    return Toolset(*map(numbered, made))


def public(tools: Toolset) -> list[str]:
    return [binding.name for binding in tools.bindings()]


async def nothing(call: ToolCall, context: ToolContext) -> ToolResult:
    return ToolResult.of_text("")


class Mount(Toolset):
    """A mounted server whose life can be watched."""

    def __init__(self, name: str, listed: list[str], *, hangs: bool = False) -> None:
        self.listed = listed
        self.log: list[str] = []
        self._hangs = hangs
        super().__init__(name=name)

    @property
    def source_name(self) -> str:
        return self.name or ""

    @property
    def status(self) -> SourceStatus:
        return SourceStatus("ready")

    def on_change(self, callback: Callable[[], None]) -> Callable[[], None]:
        return lambda: None

    async def run(self, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        self.log.append("opened")
        try:
            if not self._hangs:
                task_status.started()
            await anyio.sleep_forever()
        finally:
            self.log.append("closed")

    def sources(self) -> list[Any]:
        return [self]

    def bindings(self) -> list[ToolBinding]:
        definitions = map(ToolDefinition, self.listed)
        return [listed(one, nothing, source=self.source_name, place=self.source_name) for one in definitions]


def add(a: int, b: int) -> int:
    """Add."""
    return a + b


@given(names, words, words)
def test_p1_prefixes_add_up_from_the_inside_out(made: list[str], inner: str, outer: str):
    tools = toolset(made)
    assert public(tools.prefixed(inner).prefixed(outer)) == [f"{outer}_{inner}_{name}" for name in made]


@given(names, words)
def test_p1_verbs_return_new_toolsets_and_leave_the_original_alone(made: list[str], prefix: str):
    tools = toolset(made)
    before = tools.bindings()
    changed = [
        tools.prefixed(prefix),
        tools.renamed({made[0]: "zzzzz"}),
        tools.filtered(exclude=made[:1]),
        tools.described({made[0]: "other"}),
        tools.off(),
        tools.deferred(),
    ]
    assert all(after.bindings() != before for after in changed)
    assert tools.bindings() == before
    assert not tools.defers


@given(names, words)
def test_p1_only_filtering_changes_how_many_tools_there_are(made: list[str], prefix: str):
    tools = toolset(made)
    everything = tools.prefixed(prefix).off().deferred().described({}).renamed({})
    assert len(everything.bindings()) == len(made)
    kept = tools.filtered(lambda binding: "a" in binding.name)
    assert public(kept) == [name for name in made if "a" in name]


@given(names, st.dictionaries(words, words, max_size=4))
def test_p1_filtering_after_renaming_sees_the_new_names(made: list[str], mapping: Mapping[str, str]):
    mapping = {name: new for name, new in mapping.items() if name in made}
    expected = [mapping.get(name, name) for name in made]
    if len(set(expected)) < len(expected):
        with pytest.raises(NameConflictError):
            toolset(made).renamed(mapping)
        return
    renamed = toolset(made).renamed(mapping)
    assert public(renamed) == expected
    assert public(renamed.filtered(include=["a*"], exclude=["*b"])) == [
        name for name in expected if name.startswith("a") and not name.endswith("b")
    ]


@given(names, st.permutations(["prefixed", "off", "deferred", "described"]))
def test_p1_verbs_that_touch_different_things_commute(made: list[str], order: list[str]):
    steps: dict[str, Callable[[Toolset], Toolset]] = {
        "prefixed": lambda tools: tools.prefixed("p"),
        "off": Toolset.off,
        "deferred": Toolset.deferred,
        "described": lambda tools: tools.described({}),
    }
    tools = toolset(made)
    for step in order:
        tools = steps[step](tools)
    assert [(one.name, one.on, one.deferred) for one in tools.bindings()] == [
        (f"p_{name}", False, True) for name in made
    ]
    assert tools.defers


@given(names, words)
async def test_p1_a_tool_under_another_name_still_runs_the_same_function(made: list[str], prefix: str):
    for name, binding in zip(made, toolset(made).prefixed(prefix).bindings(), strict=True):
        assert binding.definition.name == name
        result = await binding.execute(ToolCall(binding.name, {}), ToolContext())
        assert result.text == name


def test_l28_duplicate_names_name_both_places_and_the_mend():
    def other() -> None:
        """Do nothing."""

    with pytest.raises(NameConflictError) as refused:
        Toolset(add, tool(name="add")(other))
    message = str(refused.value)
    assert "function add (test_toolset.py:" in message
    assert "other (test_toolset.py:" in message
    assert ".prefixed()" in message


@pytest.mark.parametrize(
    "build",
    [
        lambda: Toolset(add, Toolset(add)),
        lambda: Toolset(Toolset(add), Toolset(add)),
        lambda: Toolset(Toolset(add).prefixed("a"), tool(name="a_add")(add)),
        lambda: Toolset(add, numbered("b")).renamed({"b": "add"}),
        lambda: Toolset(toolset(["b_c"]).prefixed("a"), toolset(["c"]).prefixed("a_b")),
    ],
)
def test_h9_a_name_that_comes_twice_is_found_wherever_it_is_nested(build: Callable[[], Toolset]):
    with pytest.raises(NameConflictError):
        build()


def test_f16_the_same_pair_of_names_is_mended_by_a_prefix():
    assert public(Toolset(add, Toolset(add).prefixed("second"))) == ["add", "second_add"]


@pytest.mark.parametrize("name", ["", "two words", "x" * 129])
def test_h9_a_tool_cannot_be_renamed_to_what_is_no_name(name: str):
    with pytest.raises(DefinitionError, match="renamed\\('add'\\): a tool cannot be named"):
        Toolset(add).renamed({"add": name})


@pytest.mark.parametrize("member", [5, "add", None, int, ["add"]])
def test_l6_what_is_no_tool_cannot_be_a_member(member: object):
    with pytest.raises(DefinitionError, match="a toolset takes tools, functions and toolsets"):
        Toolset(member)  # type: ignore[arg-type]


def test_p1_what_a_verb_was_given_can_change_without_changing_the_toolset():
    texts, renames = {"add": "Sum."}, {"add": "sum"}
    described, renamed = Toolset(add).described(texts), Toolset(add).renamed(renames)
    texts["add"] = renames["add"] = "changed"
    assert described.bindings()[0].definition.description == "Sum."
    assert public(renamed) == ["sum"]


def test_l10_availability_chooses_among_tools_that_are_on_and_off():
    tools = toolset(["a", "b", "c"]).off("b")
    only = ToolAvailability.only("b", "b", "a")
    assert list(tools.view()) == ["a", "c"]
    assert list(tools.view(ToolAvailability.all())) == ["a", "b", "c"]
    assert list(tools.view(only)) == ["b", "a"]
    assert list(tools.view(ToolAvailability.default_plus("b", "a"))) == ["a", "c", "b"]


def test_l10_a_whole_nested_toolset_can_be_off():
    tools = Toolset(numbered("a"), toolset(["b", "c"]).off())
    assert list(tools.view()) == ["a"]
    assert list(tools.view(ToolAvailability.default_plus("c"))) == ["a", "c"]


@given(names, st.sets(words), st.lists(words, max_size=4))
def test_l13_an_availability_never_repeats_a_tool_and_never_invents_one(
    made: list[str], off: set[str], chosen: list[str]
):
    off = off & set(made)
    tools = toolset(made).off(*off) if off else toolset(made)
    for availability in (ToolAvailability.only(*chosen), ToolAvailability.default_plus(*chosen)):
        if set(chosen) <= set(made):
            view = tools.view(availability)
            assert len(set(view)) == len(list(view))
            assert set(chosen) <= set(view) <= set(made)
        else:
            with pytest.raises(UnknownToolError):
                tools.view(availability)


def test_a_deferred_mount_counts_before_it_has_listed_anything():
    assert Toolset(add, Mount("up", []).deferred()).defers


def test_o8_a_toolset_is_shown_by_its_names():
    assert repr(Toolset(add, name="sums")) == "Toolset(sums: add)"
    assert repr(Toolset(add).view()) == "ToolView(add)"


def test_f16_a_view_refuses_two_bindings_of_one_name():
    (binding,) = Toolset(add).bindings()
    with pytest.raises(NameConflictError, match="add"):
        ToolView([binding, replace(binding, place="elsewhere")])


async def test_f5_every_mount_is_opened_once_and_closed_at_the_end():
    mount = Mount("up", ["x"])
    tools = Toolset(mount.prefixed("a"), Toolset(mount).prefixed("b").filtered(include=[]))
    with anyio.fail_after(30):
        async with tools:
            assert mount.log == ["opened"]
        assert mount.log == ["opened", "closed"]


async def test_an_open_toolset_cannot_be_opened_again_until_it_is_closed():
    mount = Mount("up", [])
    tools = Toolset(mount)
    with anyio.fail_after(30):
        async with tools:
            with pytest.raises(StateError, match="already open"):
                async with tools:
                    pass
        async with tools:
            pass
    assert mount.log == ["opened", "closed"] * 2


async def test_f5_opening_that_is_given_up_closes_what_was_opened():
    quick, slow = Mount("quick", []), Mount("slow", [], hangs=True)
    with anyio.fail_after(30):
        with anyio.move_on_after(0.01):
            async with Toolset(quick, slow):
                pass
    assert quick.log[-1] == slow.log[-1] == "closed"


async def test_an_error_in_the_block_passes_and_closes_the_mounts():
    mount = Mount("up", [])
    with anyio.fail_after(30):
        with pytest.raises(LookupError, match="inside"):
            async with Toolset(mount):
                raise LookupError("inside")
    assert mount.log == ["opened", "closed"]


def test_mounts_follow_what_the_server_lists():
    mount = Mount("up", ["x"])
    tools = Toolset(mount).prefixed("p")
    mount.listed = ["y", "z"]
    assert public(tools) == ["p_y", "p_z"]
