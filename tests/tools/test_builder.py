from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tools import handlers

from mcp_toolset import Tool, ToolBuilder
from mcp_toolset.errors import DefinitionError

pytestmark = pytest.mark.anyio


async def test_o8_a_builder_makes_the_tool_that_a_schema_makes():
    built = (
        ToolBuilder("search", "Search the shop.")
        .param("query", "string", "What to look for.")
        .param("limit", "int", default=10)
        .param("order", {"enum": ["up", "down"]}, optional=True)
        .output({"hits": "list"})
        .options(title="Search", read_only=True, timeout=5, id="shop-search")
        .build(lambda arguments: {"hits": [arguments["query"], arguments["limit"]]})
    )
    made = Tool.from_schema(
        "search",
        {
            "query": {"type": "string", "description": "What to look for."},
            "limit": {"type": "int", "default": 10},
            "order": {"enum": ["up", "down"], "optional": True},
        },
        description="Search the shop.",
        output={"hits": "list"},
        title="Search",
        read_only=True,
        timeout=5,
        id="shop-search",
    )
    assert built.definition == made.definition
    assert (built.timeout, built.id) == (made.timeout, made.id) == (5, "shop-search")
    assert built.input_schema["required"] == ["query"]
    assert (await built.execute({"query": "tea"})).structured == {"hits": ["tea", 10]}


async def test_o8_every_step_is_a_new_builder():
    start = ToolBuilder("say").param("text", "string")
    loud, quiet = (
        start.handler(handlers.shout),
        start.handler("tests.tools.handlers:whisper").param("n", "int", default=1),
    )
    assert repr(start) == "ToolBuilder('say', text)" and repr(quiet) == "ToolBuilder('say', text, n)"
    assert start.build().waits
    assert (await loud.build().execute({"text": "a"})).structured == {"said": "A"}
    assert (await quiet.build().execute({"text": "A"})).structured == {"said": "a", "by": "ToolContext"}
    assert (await quiet.build(handlers.shout).execute({"text": "a"})).structured == {"said": "A"}


def test_o8_a_whole_schema_takes_the_place_of_single_parameters():
    full = {"type": "object", "properties": {"a": {"type": "string"}}}
    assert ToolBuilder("say").schema(full).build().input_schema == full
    assert ToolBuilder("say").build().input_schema == {"type": "object", "properties": {}}
    for mixed in (
        lambda: ToolBuilder("say").param("a", "int").schema(full),
        lambda: ToolBuilder("say").schema(full).param("a", "int"),
    ):
        with pytest.raises(DefinitionError, match="takes parameters or a whole schema, not both"):
            mixed()


def test_o8_what_a_builder_refuses():
    with pytest.raises(DefinitionError, match=r"ToolBuilder\('say', a\): there is a parameter 'a' already"):
        ToolBuilder("say").param("a", "int").param("a", "string")
    with pytest.raises(DefinitionError, match="parameter 'a': unknown type 'x'"):
        ToolBuilder("say").param("a", "x").build()
    with pytest.raises(TypeError, match="unexpected keyword argument 'readonly'"):
        ToolBuilder("say").options(readonly=True)  # type: ignore[call-arg]


def test_a2_manual_of_a_builder_is_a_bool():
    assert ToolBuilder("say").manual().build(handlers.shout).waits
    assert not ToolBuilder("say").manual().manual(False).build(handlers.shout).waits
    with pytest.raises(DefinitionError, match="manual is True or False, not None"):
        ToolBuilder("say").manual(None).build()  # type: ignore[arg-type]


@given(
    st.dictionaries(
        st.text(min_size=1, max_size=5).filter(lambda name: name != "type"),
        st.tuples(st.sampled_from(["string", "int", "bool"]), st.booleans()),
        max_size=5,
    )
)
def test_o8_a_builder_and_a_notation_agree(params: dict[str, tuple[str, bool]]):
    builder = ToolBuilder("probe")
    notation: dict[str, Any] = {}
    for name, (kind, optional) in params.items():
        builder = builder.param(name, kind, optional=optional)
        notation[name] = {"type": kind, "optional": optional}
    assert builder.build().definition == Tool.from_schema("probe", notation).definition
