import random
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import FrozenInstanceError, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_toolset import ToolDefinition
from mcp_toolset.search import CatalogEntry, SearchIndex
from mcp_toolset.tools.call import SearchHit

NUMBER = {"type": "number"}
TEXT = {"type": "string"}


def tool(name: str, description: str | None = None, /, **parameters: Any) -> ToolDefinition:
    return ToolDefinition(name, description, {"type": "object", "properties": parameters})


def entry(
    name: str, description: str | None = None, /, *, server: str | None = None, **parameters: Any
) -> CatalogEntry:
    return CatalogEntry(tool(name, description, **parameters), name, server)


def names(hits: Iterable[SearchHit]) -> list[str]:
    return [hit.name for hit in hits]


@pytest.fixture
def index() -> SearchIndex:
    return SearchIndex(
        [
            entry("create_issue", "Open a new issue in a repository.", server="github", title=TEXT),
            entry("list_issues", "Show the issues of a repository.", server="github"),
            entry(
                "createRefund", "Return a charge to the card it came from.", server="stripe", amount=NUMBER
            ),
            entry("read_file", "Read the contents of a file.", server="filesystem", path=TEXT),
            entry(
                "send_message",
                "Post to a channel.",
                server="slack",
                channel={**TEXT, "description": "Its id"},
            ),
            entry("get_forecast", "The weather of the coming days.", server="weather"),
        ]
    )


# H18: query, server, limit, exclude


def test_h18_ten_hits_unless_told() -> None:
    index = SearchIndex(tool(f"report_{number}", "Print a report.") for number in range(150))
    assert len(index.search("print report")) == 10
    assert len(index.search("print report", limit=1)) == 1
    assert len(index.search("print report", limit=100)) == 100


@pytest.mark.parametrize("limit", [0, -1, 101])
def test_h18_a_limit_out_of_range_is_the_hosts_mistake(index: SearchIndex, limit: int) -> None:
    with pytest.raises(ValueError, match=f"limit is {limit}; it must be from 1 to 100"):
        index.search("issue", limit=limit)


def test_h18_only_tools_of_the_server_that_is_asked_for(index: SearchIndex) -> None:
    index.add([CatalogEntry(tool("create_issue", "Open an issue."), "lab_create_issue", "gitlab")])
    assert names(index.search("create issue", server="gitlab")) == ["lab_create_issue"]
    assert index.search("create issue", server="nowhere") == []


def test_h18_the_case_of_a_server_matters_only_between_two_that_differ_in_it(index: SearchIndex) -> None:
    assert names(index.search("read", server="FileSystem")) == ["read_file"]
    index.add([entry("read_tape", "Read a tape.", server="FileSystem")])
    assert names(index.search("read", server="FileSystem")) == ["read_tape"]


def test_h18_excluded_ids_and_names_make_room_for_others(index: SearchIndex) -> None:
    index.add([CatalogEntry(tool("close_issue"), "close_issue", "github", tool_id="gh:close")])
    every = names(index.search("issue", limit=3))
    assert sorted(every) == ["close_issue", "create_issue", "list_issues"]
    assert names(index.search("issue", limit=2, exclude=["gh:close", "create_issue"])) == ["list_issues"]


# H19: ranking


@pytest.mark.parametrize(
    "query", ["create_issue", "createIssue", "Create Issue", " create-issue ", "CREATE_ISSUE"]
)
def test_h19_a_name_in_any_spelling_comes_first(index: SearchIndex, query: str) -> None:
    index.add([entry("issue_creator", "Create issue. Create issue. Create issue.")])
    assert names(index.search(query))[0] == "create_issue"


def test_h19_a_public_name_goes_before_an_own_name_and_that_before_a_beginning() -> None:
    index = SearchIndex(
        [
            CatalogEntry(tool("find"), "search", "one"),
            CatalogEntry(tool("search"), "two_search", "two"),
            entry("search_web_pages", "search " * 20),
            entry("web", "search and search"),
        ]
    )
    assert names(index.search("search")) == ["search", "two_search", "search_web_pages", "web"]
    assert names(index.search("search_w"))[0] == "search_web_pages"
    index.add([CatalogEntry(tool("x"), "search_w", "one"), CatalogEntry(tool("search_w"), "y", "two")])
    assert names(index.search("search_w"))[:3] == ["search_w", "y", "search_web_pages"]


def test_h19_the_start_of_a_name_that_is_no_word_finds_the_name(index: SearchIndex) -> None:
    assert names(index.search("create_is"))[0] == "create_issue"
    assert names(index.search("forec")) == ["get_forecast"]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("give the refunds", "createRefund"),
        ("reading files", "read_file"),
        ("charged cards", "createRefund"),
        ("the amount to return", "createRefund"),
        ("channels", "send_message"),
        ("weather", "get_forecast"),
    ],
)
def test_h19_every_field_is_read_and_inflection_does_not_matter(
    index: SearchIndex, query: str, found: str
) -> None:
    assert names(index.search(query))[0] == found


def test_h19_a_name_weighs_more_than_a_description_and_that_more_than_a_parameter() -> None:
    index = SearchIndex(
        [
            tool("alpha", "Handles one thing.", invoice=TEXT),
            tool("beta", "Handles one invoice."),
            tool("invoice_print", "Handles one thing."),
        ]
    )
    assert names(index.search("an invoice")) == ["invoice_print", "beta", "alpha"]


def test_h19_naming_the_server_in_the_query_decides_between_equals() -> None:
    same = [
        CatalogEntry(tool("search", "Search pages."), f"{server}_x", server) for server in ("exa", "brave")
    ]
    assert names(SearchIndex(same).search("search pages with exa"))[0] == "exa_x"


def test_h19_tags_and_titles_and_renamings_are_searched() -> None:
    titled = replace(tool("a1"), title="Currency converter")
    tagged = CatalogEntry(tool("b1"), "b1", tags=("astronomy",))
    renamed = CatalogEntry(tool("c1"), "make_ticket")
    index = SearchIndex([titled, tagged, renamed])
    assert [names(index.search(word)) for word in ("currency", "astronomy", "a ticket")] == [
        ["a1"],
        ["b1"],
        ["make_ticket"],
    ]


def test_h19_aliases_find_what_is_called_otherwise(index: SearchIndex) -> None:
    assert names(index.search("reimburse"))[0] == "createRefund"
    assert set(names(index.search("repo"))) == {"create_issue", "list_issues"}


def test_h19_two_words_find_the_name_that_is_written_as_one(index: SearchIndex) -> None:
    assert names(index.search("file system"))[0] == "read_file"


@pytest.mark.parametrize(
    "query", ["repositry", "repsoitory", "rpository", "repositorry", "repozytory", "reposit"]
)
def test_h19_unknown_words_are_corrected(index: SearchIndex, query: str) -> None:
    assert set(names(index.search(query))) == {"create_issue", "list_issues"}


def test_h19_known_words_are_not_corrected() -> None:
    index = SearchIndex([tool("form", "Fill a formal form."), tool("format", "Format a disk.")])
    assert names(index.search("a formal thing")) == ["form"]


@pytest.mark.parametrize("query", ["", "   ", "\n", "!?*", "xyzzy plugh", "the of and", "🦄"])
def test_h19_a_query_without_a_known_word_finds_nothing(index: SearchIndex, query: str) -> None:
    assert index.search(query) == []


def test_h19_a_tool_named_by_a_stop_word_is_found() -> None:
    index = SearchIndex([tool("get_help", "Show the manual."), tool("other")])
    assert names(index.search("help")) == ["get_help"]


class Glossary:
    """A second scorer that knows a few words of German, as an embedder would know many."""

    enough = 0.5
    share = 0.7

    def __init__(self, meanings: Mapping[str, str]) -> None:
        self._meanings = meanings
        self.told: list[tuple[str, list[str]]] = []
        self.held: dict[str, CatalogEntry] = {}

    def add(self, entries: Iterable[CatalogEntry]) -> None:
        fresh = {item.public_name: item for item in entries}
        assert not fresh.keys() & self.held.keys()
        self.told.append(("add", sorted(fresh)))
        self.held |= fresh

    def remove(self, public_names: Iterable[str]) -> None:
        gone = sorted(public_names)
        self.told.append(("remove", gone))
        for name in gone:
            del self.held[name]

    def best(
        self, query: str, count: int, among: AbstractSet[str] | None = None, also: Iterable[str] = ()
    ) -> Mapping[str, float]:
        meant = {self._meanings[word] for word in query.split() if word in self._meanings}
        fit = [
            name
            for name in self.held
            if any(word in name for word in meant) and (among is None or name in among)
        ]
        return dict.fromkeys(sorted(fit)[:count], 0.5)


def test_h19_a_second_scorer_is_joined_with_the_words() -> None:
    index = SearchIndex(
        [
            entry("createRefund", server="stripe"),
            entry("list_charges", "All payments", server="stripe"),
            entry("pay"),
        ],
        scorer=Glossary({"zurück": "Refund", "Geld": "pay"}),
    )
    assert names(index.search("zurück")) == ["createRefund"]
    assert names(index.search("payments zurück")) == ["createRefund", "list_charges"]
    assert names(index.search("Geld", server="stripe")) == []
    assert names(index.search("list_charges zurück Geld"))[0] in {"createRefund", "pay"}
    assert names(index.search("list_charges"))[0] == "list_charges"
    assert index.search("nichts") == []


# H20: kept by content


def test_h20_only_what_changed_is_read_again() -> None:
    scorer = Glossary({})
    one, two = entry("one", "First.", server="s"), entry("two", "Second.", server="s")
    index = SearchIndex([one, two], scorer=scorer)
    scorer.told.clear()

    assert index.add([replace(one, definition=tool("one", "First.")), two]) == set()
    assert scorer.told == []
    changed = replace(two, definition=tool("two", "Zweitens."))
    assert index.add([one, changed]) == {"two"}
    assert scorer.told == [("remove", ["two"]), ("add", ["two"])]
    assert names(index.search("zweitens")) == ["two"]
    assert index.search("second") == []


@pytest.mark.parametrize("change", [{"server": "t"}, {"tags": ("x",)}, {"tool_id": "7"}])
def test_h20_a_change_beside_the_definition_is_a_change(change: dict[str, Any]) -> None:
    index = SearchIndex([entry("one", server="s")])
    assert index.add([replace(entry("one", server="s"), **change)]) == {"one"}
    assert len(index) == 1


def test_h20_replace_makes_these_the_only_tools_of_a_server(index: SearchIndex) -> None:
    kept = entry("list_issues", "Show the issues of a repository.", server="github")
    assert index.replace("github", [kept, tool("fork", "Fork it.")]) == {"create_issue", "fork"}
    assert sorted(names(index.search("issue fork", server="github"))) == ["fork", "list_issues"]
    assert "read_file" in index
    assert "create_issue" not in index
    assert index.replace("github", []) == {"fork", "list_issues"}
    assert index.servers() == ["filesystem", "slack", "stripe", "weather"]


def test_h20_replace_refuses_tools_of_another_server_and_changes_nothing(index: SearchIndex) -> None:
    with pytest.raises(ValueError, match=r"'stray' is of another server; use add\(\)"):
        index.replace("github", [entry("fork", server="github"), entry("stray", server="slack")])
    assert "fork" not in index
    assert "create_issue" in index


def test_h20_removing_what_is_not_there_is_no_error(index: SearchIndex) -> None:
    assert index.remove(["read_file", "read_file", "nothing"]) == {"read_file"}
    assert len(index) == 5
    assert "filesystem" not in index.servers()
    assert "read_file" not in names(index.search("read_file"))


# H21 and X5: what a hit says


def test_h21_a_hit_says_what_is_needed_to_choose() -> None:
    schema = {"type": "object", "properties": {"body": TEXT, "owner": TEXT}, "required": ["owner"]}
    definition = ToolDefinition("create_issue", "Open\n  an issue. ", schema)
    index = SearchIndex([CatalogEntry(definition, "gh_create_issue", "github", tool_id="7")])
    (hit,) = index.search("gh_create_issue")
    assert hit == SearchHit(
        id="7",
        name="gh_create_issue",
        server="github",
        description="Open an issue.",
        signature="gh_create_issue(owner: string, body?: string)",
        score=1.0,
        state="available",
    )
    with pytest.raises(FrozenInstanceError):
        hit.score = 0.0  # type: ignore[misc]


def test_h21_without_an_id_the_public_name_is_the_id(index: SearchIndex) -> None:
    assert [hit.id for hit in index.search("issues")] == names(index.search("issues"))


def test_x5_the_state_is_set_by_whoever_knows_the_server(index: SearchIndex) -> None:
    (hit,) = index.search("weather forecast")
    assert hit.state == "available"
    assert replace(hit, state="offline").state == "offline"


# F36: hostile and foreign queries


@pytest.mark.parametrize(
    "query",
    ["(a+)+$", ".*", "[", "issue OR 1=1; --", "<script>issue</script>", "name:issue*", "\\", "%s {0}"],
)
def test_f36_operators_are_literal(index: SearchIndex, query: str) -> None:
    expected = {"create_issue", "list_issues"} if "issue" in query else set()
    assert set(names(index.search(query))) == expected


@pytest.mark.parametrize(
    "unit", ["a", "A", "aA", "a_", "_", "(a+)+$ ", "पि", "中", "\u0301", "\u0316\u0301", "ﷺ", "\ud800", "1a"]
)
def test_f36_a_huge_query_is_read_in_part(index: SearchIndex, unit: str) -> None:
    huge = "issue " + unit * (1_000_000 // len(unit))
    assert index.search(huge) == index.search(huge[:2_000])


def test_f36_a_huge_definition_is_read_in_part() -> None:
    index = SearchIndex([tool("big", "start " + "aA_b1 " * 200_000 + " finish", **{"p" * 10**6: TEXT})])
    assert names(index.search("start")) == ["big"]
    assert index.search("finish") == []
    assert len(index.search("big")[0].signature) < 500


@pytest.mark.parametrize(
    ("description", "query"),
    [
        ("使用必应搜索指定的关键词", "搜索"),
        ("ファイルを読み込む", "ファイル"),
        ("파일을 읽습니다", "파일"),
        ("ค้นหาเอกสาร", "เอกสาร"),
        ("फ़ाइल पढ़ें", "फ़ाइल"),
        ("Прочитать файл", "ФАЙЛ"),
        ("قراءة المِلَفّ", "الملف"),
        ("Überweisung auslösen", "uberweisung"),
        ("Διάβασε το αρχείο", "ΑΡΧΕΙΟ"),
        ("ｆｕｌｌ ｗｉｄｔｈ", "width"),
        ("用API获取数据", "api"),
    ],
)
def test_f36_any_script_can_be_searched(description: str, query: str) -> None:
    index = SearchIndex([tool("x1", description), tool("x2", "Something else")])
    assert names(index.search(query)) == ["x1"]


# Properties

# A busy machine is no failure: nothing here is about time.

WORDS = [
    "file",
    "files",
    "read",
    "reading",
    "issue",
    "weather",
    "refund",
    "search",
    "the",
    "gitHub",
    "pdf2",
    "数据",
]
prose = st.lists(st.sampled_from(WORDS), max_size=6).map(" ".join)
tool_names = st.lists(st.sampled_from(WORDS[:11]), min_size=1, max_size=3).map("_".join) | st.text(
    min_size=1, max_size=8
).filter(str.strip)
any_text = prose | st.text(st.characters(), max_size=60)
entries = st.builds(
    lambda name, public, server, description, parameter, tags: CatalogEntry(
        tool(name, description, **{parameter: {"description": description}}), public or name, server, tags
    ),
    tool_names,
    st.none() | tool_names,
    st.sampled_from([None, "github", "file-system"]),
    st.none() | any_text.filter(lambda text: "\ud800" > max(text, default="") or max(text) > "\udfff"),
    tool_names,
    st.lists(prose, max_size=1).map(tuple),
)
catalogs = st.lists(entries, max_size=12)
queries = st.lists(any_text, min_size=1, max_size=4)


@given(st.lists(st.tuples(st.sampled_from(["add", "remove", "replace"]), catalogs), max_size=5), queries)
def test_h20_an_index_that_grew_equals_one_built_at_once(
    steps: list[tuple[str, list[CatalogEntry]]], asked: list[str]
) -> None:
    grown, held = SearchIndex(), dict[str, CatalogEntry]()
    for step, items in steps:
        if step == "add":
            grown.add(items)
            held |= {item.public_name: item for item in items}
        elif step == "remove":
            grown.remove(item.public_name for item in items)
            held = {
                name: item
                for name, item in held.items()
                if name not in {other.public_name for other in items}
            }
        else:
            items = [replace(item, server="github") for item in items]
            grown.replace("github", items)
            held = {name: item for name, item in held.items() if item.server != "github"}
            held |= {item.public_name: item for item in items}
    built = SearchIndex(held.values())
    assert (len(grown), grown.servers()) == (len(held), built.servers())
    for query in (*asked, *WORDS):
        assert grown.search(query, limit=100) == built.search(query, limit=100)


@given(catalogs, queries, st.randoms(use_true_random=False))
def test_h19_the_order_of_hits_does_not_depend_on_the_order_of_tools(
    items: list[CatalogEntry], asked: list[str], chance: random.Random
) -> None:
    items = list({item.public_name: item for item in items}.values())
    shuffled = chance.sample(items, len(items))
    for query in asked:
        assert SearchIndex(items).search(query) == SearchIndex(shuffled).search(query)


@given(
    catalogs,
    st.text(st.characters(), max_size=300),
    st.integers(1, 100),
    st.sampled_from([None, "github", "no"]),
)
def test_f36_no_query_raises_and_hits_keep_to_what_was_asked(
    items: list[CatalogEntry], query: str, limit: int, server: str | None
) -> None:
    hits = SearchIndex(items).search(query, limit=limit, server=server)
    assert len(hits) <= limit
    assert len(set(names(hits))) == len(hits)
    assert all(0 < hit.score <= 1 and len(hit.description) <= 160 for hit in hits)
    assert server is None or all(hit.server == server for hit in hits)
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)


@given(catalogs)
def test_h19_every_exact_public_name_ranks_first(items: list[CatalogEntry]) -> None:
    index = SearchIndex(items)
    for item in items:
        hit = index.search(item.public_name)[0]
        assert (hit.name, hit.score) == (item.public_name, 1.0)


@given(catalogs, catalogs, queries)
def test_h20_removed_tools_never_appear(
    items: list[CatalogEntry], gone: list[CatalogEntry], asked: list[str]
) -> None:
    index = SearchIndex([*items, *gone])
    index.remove(item.public_name for item in gone)
    for query in (*asked, *(item.public_name for item in gone), *WORDS):
        assert not {item.public_name for item in gone} & set(names(index.search(query, limit=100)))


def large_index() -> SearchIndex:
    chance = random.Random(7)
    words = [
        f"{a}{b}"
        for a in ("re", "con", "de", "per", "in")
        for b in ("port", "tain", "form", "sist", "clude", "mit")
    ]
    common = ["data", "file", "user", "report"]
    return SearchIndex(
        tool(
            f"{chance.choice(common)}_{chance.choice(words)}_{number}",
            " ".join(chance.choices(words + common * 8, k=12)),
        )
        for number in range(1_500)
    )


@pytest.fixture(scope="module")
def large() -> SearchIndex:
    return large_index()


@given(
    st.lists(
        st.sampled_from(
            ["data", "file", "user", "report", "recontain", "deport", "inform", "permit", "consist"]
        )
    ),
    st.integers(1, 20),
)
def test_h19_stopping_early_leaves_out_nothing(large: SearchIndex, words: list[str], limit: int) -> None:
    query = " ".join(words)
    assert large.search(query, limit=limit) == large.search(query, limit=100)[:limit]


def test_h19_the_rarest_word_of_many_counts_and_so_does_the_commonest() -> None:
    rare = [
        "".join("bdfgklmn"[number // 8**place % 8] + "aeiou"[place] for place in range(4))
        for number in range(200)
    ]
    index = SearchIndex((tool(f"tool_{at}", f"alpha {word}") for at, word in enumerate(rare)), scorer=None)
    found = index.search(" ".join(["alpha", *rare[:60]]), limit=60)
    assert {hit.name for hit in found} == {f"tool_{number}" for number in range(60)}
    assert len(index.search("alpha", limit=100)) == 100
