"""The table of what crosses says what the tests do, and the page says what the table does (X4)."""

from __future__ import annotations

import ast

from tests.interaction.conftest import ERAS, TRANSPORTS, UPSTREAMS
from tests.interaction.manifest import PAGE, ROOT, Feature, crossings, page
from tests.support.rows import rows

TABLE = crossings()
MATRIX = {"visiting", "opened"}
"""The fixtures over which a test meets every client and every upstream."""


def test_x4_the_table_has_every_client_and_every_upstream_of_the_tests() -> None:
    assert set(TABLE.clients) == {f"{transport}_{era}" for transport in TRANSPORTS for era in ERAS}
    assert set(TABLE.upstreams) == set(UPSTREAMS)


@rows("feature", TABLE.features, lambda feature: feature.name)
def test_x4_each_feature_has_a_test_over_the_whole_matrix(feature: Feature) -> None:
    file, _, name = feature.test.partition("::")
    found = [
        node
        for node in ast.walk(ast.parse((ROOT / file).read_text()))
        if isinstance(node, ast.AsyncFunctionDef) and node.name == name
    ]
    assert len(found) == 1
    assert MATRIX & {argument.arg for argument in found[0].args.args}


@rows("feature", TABLE.features, lambda feature: feature.name)
def test_x4_each_exception_has_a_reason_and_meets_a_pair(feature: Feature) -> None:
    pairs = [(client, upstream) for client in TABLE.clients for upstream in TABLE.upstreams]
    for exception in feature.exceptions:
        assert exception.reason.strip()
        assert any(exception.covers(*pair) for pair in pairs)


def test_x4_the_published_page_is_up_to_date() -> None:
    assert PAGE.read_text() == page(TABLE), "run scripts/crossings"
