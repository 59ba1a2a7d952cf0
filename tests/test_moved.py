"""Import paths that pages and examples have shown go on working, and say where their names are now."""

from importlib import import_module

import pytest

MOVED = {
    "bridge.http": ("transports.http.app", "bound_socket", "run_app"),
    "bridge.hub": ("hub.toolset", "toolset_from_config"),
    "bridge.signals": ("concurrency.signals", "run_until_signal"),
    "catalog.embedding": ("catalog.search.embedding", "Embedder", "EmbeddingScorer"),
    "catalog.vector_file": ("catalog.search.vector_file", "VectorFile"),
    "tools.compact": ("tools.export.compact", "compact_listing", "help_text"),
    "tools.prompts": ("tools.declare.prompts", "Reference"),
    "tools.requirement": ("tools.export.requirement", "ToolRequirement"),
    "tools.source": ("tools.core.source", "SourceStatus"),
    "tools.view": ("tools.view.view", "ToolBinding"),
}


@pytest.mark.parametrize("old", MOVED)
def test_a_documented_import_works_from_its_old_path_and_warns(old: str) -> None:
    new, *names = MOVED[old]
    module, home = import_module(f"mcp_toolset.{old}"), import_module(f"mcp_toolset.{new}")
    for name in names:
        with pytest.warns(DeprecationWarning, match=f"import {name} from mcp_toolset.{new}"):
            assert getattr(module, name) is getattr(home, name)


@pytest.mark.parametrize("old", MOVED)
def test_an_old_path_has_no_other_names(old: str) -> None:
    with pytest.raises(AttributeError, match=f"module 'mcp_toolset.{old}' has no attribute 'no_such_name'"):
        _ = import_module(f"mcp_toolset.{old}").no_such_name
