"""Import paths and names that pages and examples have shown go on working, and say what to use now."""

import re
from importlib import import_module
from operator import attrgetter
from pathlib import Path

import pytest

import mcp_toolset

MOVED = {
    "bridge.http": ("mcp_toolset.serving", "bound_socket", "run_app"),
    "bridge.hub": ("mcp_toolset", "toolset_from_config"),
    "bridge.signals": ("mcp_toolset.serving", "run_until_signal"),
    "catalog.embedding": ("mcp_toolset.search", "Embedder", "EmbeddingScorer"),
    "catalog.vector_file": ("mcp_toolset.search", "VectorFile"),
    "tools.compact": ("mcp_toolset", "compact_listing", "help_text"),
    "tools.prompts": ("mcp_toolset", "Reference"),
    "tools.requirement": ("mcp_toolset", "ToolRequirement"),
    "tools.source": ("mcp_toolset", "SourceStatus"),
    "tools.view": ("mcp_toolset", "ToolBinding"),
}


@pytest.mark.parametrize("old", MOVED)
def test_a_documented_import_works_from_its_old_path_and_warns(old: str) -> None:
    new, *names = MOVED[old]
    module, home = import_module(f"mcp_toolset.{old}"), import_module(new)
    for name in names:
        with pytest.warns(DeprecationWarning, match=f"import {name} from {new}$"):
            assert getattr(module, name) is getattr(home, name)


@pytest.mark.parametrize("old", MOVED)
def test_an_old_path_has_no_other_names(old: str) -> None:
    with pytest.raises(AttributeError, match=f"module 'mcp_toolset.{old}' has no attribute 'no_such_name'"):
        _ = import_module(f"mcp_toolset.{old}").no_such_name


RENAMED = {
    "default": "arguments.default",
    "describe": "arguments.describe",
    "input_tool": "InputTool.of",
    "hide": "arguments.hide",
    "rename": "arguments.rename",
    "Answer": "ElicitationAnswer",
    "IssueReason": "InvalidCallReason",
    "LoopContext": "RoundContext",
    "Next": "CallNext",
    "RoundIssue": "InvalidCall",
    "Sample": "SampledMessage",
    "TextCleaner": "HiddenTextFilter",
    "ToolEntry": "RegistryEntry",
    "ToolState": "RegistryState",
    "Withheld": "AccessDenied",
}


@pytest.mark.parametrize("old", RENAMED)
def test_an_old_name_is_the_new_one_and_warns_at_every_use(old: str) -> None:
    new = attrgetter(RENAMED[old])(mcp_toolset)
    told = re.escape(f"mcp_toolset.{old} is deprecated: use mcp_toolset.{RENAMED[old]}") + "$"
    for _ in range(2):
        with pytest.warns(DeprecationWarning, match=told) as warned:
            assert getattr(mcp_toolset, old) is new
        assert {one.filename for one in warned} == {__file__}


def test_old_names_are_neither_listed_nor_imported_by_a_star() -> None:
    assert not RENAMED.keys() & {*dir(mcp_toolset), *mcp_toolset.__all__}


def test_every_old_name_is_tested() -> None:
    source = (Path(mcp_toolset.__file__)).read_text()
    table = source.partition("_RENAMED: Final = {")[2].partition("\n}")[0]
    assert dict(re.findall(r'"(\w+)": "([\w.]+)"', table)) == RENAMED
