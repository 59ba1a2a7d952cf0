"""Names of several sources: none is lost, none is taken for another, each leads back (P4)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_toolset.server import offering
from mcp_toolset.server.offering import LOCAL, Addresses, Names

NAMES = st.sampled_from(["erp", "ERP", "a", "b", "a-b", "1st", "ü", "a+b"])
URIS = st.sampled_from(
    ["file:///a", "file:///b", "a+file:///a", "erp+file:///a", "lib://one", "b+a+lib://one", ""]
)
PROMPTS = st.sampled_from(["plan", "a_plan", "b_plan", "plan_2", ""])
SOURCES = st.dictionaries(
    NAMES,
    st.tuples(st.lists(URIS, unique=True), st.lists(URIS, unique=True), st.lists(PROMPTS, unique=True)),
    max_size=4,
)
LOCALS = st.none() | st.tuples(st.lists(URIS, unique=True), st.lists(PROMPTS, unique=True))


def made(
    sources: dict[str, tuple[list[str], list[str], list[str]]], local: tuple[list[str], list[str]] | None
):
    parts = [Names(LOCAL, local[0], (), local[1], reads=True)] if local else []
    parts += [
        Names(name, uris, templates, prompts, reads=True)
        for name, (uris, templates, prompts) in sources.items()
    ]
    return parts, Addresses.of(parts)


@given(SOURCES, LOCALS)
def test_p4_every_listed_name_is_public_once_and_leads_back(sources, local) -> None:
    parts, table = made(sources, local)
    for kind in ("resources", "templates", "prompts"):
        origins = [(part.source, name) for part in parts for name in getattr(part, kind)]
        assert sorted(getattr(table, kind).values()) == sorted(origins)
    for public, origin in table.resources.items():
        assert table.origins(public) == [origin]
        assert table.uri(*origin) == public


@given(SOURCES, LOCALS)
def test_p4_what_is_local_keeps_its_name(sources, local) -> None:
    parts, table = made(sources, local)
    if local:
        assert all(table.resources[uri] == (LOCAL, uri) for uri in parts[0].resources)
        assert all(table.prompts[name] == (LOCAL, name) for name in parts[0].prompts)


@given(SOURCES, LOCALS, URIS | st.just("new://thing"))
def test_p4_the_address_of_what_nobody_lists_leads_to_its_source(sources, local, uri) -> None:
    parts, table = made(sources, local)
    for part in parts:
        if part.source:
            assert table.origins(table.uri(part.source, uri))[0] == (part.source, uri)


@given(SOURCES)
def test_p4_names_do_not_depend_on_the_order_in_which_servers_were_reached(sources) -> None:
    backwards = dict(reversed(sources.items()))
    assert set(made(sources, None)[1].prompts) == set(made(backwards, None)[1].prompts)


@pytest.mark.parametrize(
    ("uri", "source"),
    [("file:///srv/x", "b"), ("file:///x", "a"), ("b+file:///x", "b"), ("other:///x", None)],
)
def test_p4_a_template_or_a_scheme_tells_where_to_read(uri: str, source: str | None) -> None:
    table = Addresses.of(
        [
            Names("a", templates=["file:///{path}"], reads=True),
            Names("b", templates=["file:///srv/{path}"], reads=True),
        ]
    )
    assert [origin for origin, _ in table.origins(uri)] == ([source] if source else [])


def test_p4_one_server_is_asked_for_any_address() -> None:
    table = Addresses.of([Names("a", ["lib://one"], reads=True)])
    assert table.origins("lib://nobody-lists-this") == [("a", "lib://nobody-lists-this")]


PIECES = st.text("ab/", max_size=5)
TEMPLATES = st.builds(lambda start, end: f"{start}{{x}}{end}", PIECES, PIECES)


@given(
    st.lists(
        st.tuples(st.sampled_from(["p", "q", "r"]), TEMPLATES), unique_by=lambda one: one[1], max_size=12
    ),
    st.lists(PIECES, min_size=1, max_size=8),
    st.sets(st.sampled_from("pqr"), min_size=1),
)
def test_p4_a_uri_is_of_the_template_with_the_longest_beginning_that_it_fits(listed, uris, seen) -> None:
    table = Addresses(templates={template: (source, template) for source, template in listed})
    for uri in uris:
        fitting = [
            (len(start), -at, source)
            for at, (source, template) in enumerate(listed)
            for start, _, end in [template.partition("{x}")]
            if source in seen and len(uri) >= len(start + end) and uri.startswith(start) and uri.endswith(end)
        ]
        wanted = [(source, uri) for _, _, source in sorted(fitting)[-1:]]
        assert table.origins(uri, seen) == wanted


def test_u113_no_uri_of_a_result_is_tried_against_each_template_of_all_servers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked = list[str]()
    read = offering.fixed_ends
    monkeypatch.setattr(offering, "fixed_ends", lambda one: looked.append(one) or read(one))
    templates = [f"up://{number}/{{x}}" for number in range(500)]
    table = Addresses.of(
        [Names("up", (), templates, (), reads=True), Names("b", ("b://",), (), (), reads=True)]
    )
    assert {table.uri("up", f"up://{number % 500}/{number}") for number in range(2000)}
    assert len(looked) == len(templates)
