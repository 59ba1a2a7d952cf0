from typing import Any

import pytest

from mcp_toolset import Tool, Toolset, tool
from mcp_toolset.errors import DefinitionError, NameConflictError
from mcp_toolset.rounds import ToolAvailability

pytestmark = pytest.mark.anyio


@tool(name="web_search")
def search(query: str) -> str:
    """Search the web."""
    return f"found {query}"


class DataTools(Toolset):
    @tool
    @staticmethod
    def get_user(id: int) -> str:
        """Get a user."""
        return f"user {id}"

    @staticmethod
    @tool
    async def drop_user(id: int) -> str:
        """Drop a user."""
        return f"dropped {id}"


class AppTools(Toolset):
    search = search
    data = DataTools().prefixed("data")

    @tool
    def read(path: str) -> str:  # pyright: ignore[reportGeneralTypeIssues]
        """Read a file."""
        return path


def test_l6_a_class_toolset_has_its_members_in_the_order_of_definition():
    assert AppTools().names() == ["web_search", "data_get_user", "data_drop_user", "read"]
    assert [one.name for one in AppTools().definitions()] == ["web_search", "get_user", "drop_user", "read"]


def test_l7_the_attributes_are_the_tools_and_stay_callable():
    assert isinstance(AppTools.search, Tool) and AppTools().search is AppTools.search
    assert AppTools.search("x") == "found x"
    assert AppTools.read("here") == "here"
    assert DataTools.get_user(3) == "user 3"


async def test_l6_every_way_to_write_a_tool_in_a_class_body_runs():
    tools = AppTools()
    assert (await tools.execute("data_get_user", {"id": 1})).value() == "user 1"
    assert (await tools.execute(DataTools.drop_user, {"id": 2})).value() == "dropped 2"
    assert (await tools.execute(AppTools.read, {"path": "p"})).value() == "p"


def test_l6_inherited_members_come_first_and_an_overridden_one_keeps_its_place():
    @tool(name="web_search")
    def better(query: str) -> str:
        """Search better."""
        return query

    class More(AppTools):
        extra = tool(name="extra")(lambda: None)
        search = better  # pyright: ignore[reportAssignmentType]

    assert More().names() == ["web_search", "data_get_user", "data_drop_user", "read", "extra"]
    assert More().find("web_search").origin is better


def test_l6_what_a_subclass_sets_to_none_is_taken_out():
    class Less(AppTools):
        data = None  # pyright: ignore[reportAssignmentType]

    assert Less().names() == ["web_search", "read"]
    assert "data_get_user" in AppTools().names()


def test_l6_two_bases_are_joined():
    class Other(Toolset):
        other = tool(name="other")(lambda: None)

    class Both(DataTools, Other):
        pass

    assert sorted(Both().names()) == ["drop_user", "get_user", "other"]


def test_l6_values_given_to_an_instance_come_after_the_declared_ones():
    def added() -> None:
        """Do nothing."""

    assert DataTools(added).names() == ["get_user", "drop_user", "added"]
    assert DataTools().names() == ["get_user", "drop_user"]


async def test_l6_an_instance_can_give_its_own_bound_methods():
    class Store(Toolset):
        search = search

        def __init__(self, prefix: str) -> None:
            self.prefix = prefix
            super().__init__(self.greet)

        def greet(self, name: str) -> str:
            """Greet."""
            return f"{self.prefix} {name}"

    store = Store("hello")
    assert store.names() == ["web_search", "greet"]
    assert (await store.execute("greet", {"name": "you"})).value() == "hello you"


def test_l6_private_attributes_and_plain_ones_are_no_members():
    class Quiet(DataTools):
        _hidden = search
        limit = 5

        def helper(self) -> int:
            return self.limit

    assert Quiet().names() == ["get_user", "drop_user"]
    assert Quiet().helper() == 5


def test_l6_a_tool_that_takes_self_from_the_model_is_refused_with_the_mend():
    with pytest.raises(DefinitionError, match=r"Annotated\.f takes self.*write a bare self"):

        class Annotated(Toolset):
            @tool
            @staticmethod
            def f(self: str, query: str) -> str:  # pyright: ignore[reportSelfClsParameterName]
                """Find."""
                return query

        assert Annotated


def test_l28_duplicate_names_in_a_class_are_an_error_where_it_is_defined():
    with pytest.raises(NameConflictError, match=r"two tools are named 'web_search'.*\.prefixed\(\)"):

        class Twice(Toolset):
            one = search
            two = Toolset(search)

        assert Twice


def test_l6_a_class_in_the_place_of_a_toolset_is_an_error_unless_it_is_defined_there():
    with pytest.raises(DefinitionError, match=r"data = DataTools\(\)"):

        class Bad(Toolset):
            data = DataTools

        assert Bad

    class Good(Toolset):
        class Inner(Toolset):
            search = search

        inner = Inner()

    assert Good().names() == ["web_search"]


def test_l27_a_nested_group_that_is_off_is_reached_by_all_only_and_default_plus():
    class Careful(Toolset):
        search = search
        data = DataTools().prefixed("data").off()

    tools = Careful()
    both = ["data_get_user", "data_drop_user"]
    assert list(tools.view()) == ["web_search"]
    assert list(tools.view(ToolAvailability.all())) == ["web_search", *both]
    assert list(tools.view(ToolAvailability.only(Careful.data))) == both
    assert list(tools.view(ToolAvailability.default_plus(tools.data))) == ["web_search", *both]
    one = ToolAvailability.default_plus(DataTools.get_user)
    assert list(tools.view(one)) == ["web_search", "data_get_user"]


def test_p1_verbs_of_a_class_toolset_leave_the_class_alone():
    changed = AppTools().off(AppTools.search).renamed({DataTools.get_user: "user"})
    assert changed.names() == ["web_search", "user", "data_drop_user", "read"]
    assert list(changed.view()) == ["user", "data_drop_user", "read"]
    assert AppTools().names()[1] == "data_get_user"


def test_o8_a_class_toolset_is_shown_by_its_class_and_names():
    assert repr(DataTools()) == "DataTools(get_user, drop_user)"


@pytest.mark.parametrize("name", ["find", "execute", "sources"])
def test_u105_a_class_toolset_has_a_tool_of_any_name_by_the_mend_of_the_error(name: str):
    def wanted(self: Any, key: str) -> str: ...

    wanted.__name__, wanted.__qualname__ = name, f"Bad.{name}"
    del wanted.__annotations__["self"]
    with pytest.raises(DefinitionError, match=rf'write @tool\(name="{name}"\) above `def {name}_\(…\)`'):
        type("Bad", (Toolset,), {"__qualname__": "Bad", name: tool(wanted)})
    with pytest.raises(DefinitionError, match=rf"write `{name}_ = …`; the tool is called 'web_search'"):
        type("Bad", (Toolset,), {"__qualname__": "Bad", name: search})

    def other(self: Any, key: str) -> str:
        """Find."""
        return key

    del other.__annotations__["self"]
    other.__qualname__ = f"Good.{name}_"
    made = type("Good", (Toolset,), {"__qualname__": "Good", f"{name}_": tool(name=name)(other)})()
    assert made.names() == [name]
    assert made.view()[name].name == name
