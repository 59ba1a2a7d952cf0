"""Every pair of features: what is promised of each one holds in a server that has the other one too."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from uuid import uuid4

import pytest
from tests.pairs.features import FEATURES
from tests.pairs.world import World
from tests.support.asking import ERAS
from tests.support.valkey import ValkeyProcess, valkey_process
from tests.support.warm import Warm

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.needs(
        "approvals",
        "audit",
        "code",
        "journal",
        "limits",
        "pass_extensions",
        "profiles",
        "result_cache",
        "skills",
        "surface",
    ),
]
TABLE = tomllib.loads(Path(__file__).with_name("expectations.toml").read_text())
SENSELESS = [f"{one} {other}" for one, row in TABLE.pop("senseless").items() for other in row]
EXPECTED = [f"{one} {other}" for one, row in TABLE.items() for other in row]
ORDER = ("credentials", "pins", "retries", "reload", "lazy", "pass_extensions")
"""Features that need a mounted server, whose tools have other names: they are prepared first."""


@pytest.fixture(scope="module")
def valkey() -> Iterator[ValkeyProcess]:
    with valkey_process() as server:
        yield server


def test_u124_every_pair_has_an_expectation_or_a_reason_why_it_makes_no_sense() -> None:
    every = {frozenset(pair) for pair in combinations(FEATURES, 2)}
    known = [frozenset(pair.split()) for pair in (*EXPECTED, *SENSELESS)]
    assert set(known) == every and len(known) == len(every)


@pytest.mark.pairwise(of=lambda params: [(name, params["era"]) for name in params["pair"].split()], meet=1)
@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("pair", EXPECTED)
async def test_u124_each_of_two_features_holds_beside_the_other(
    pair: str, era: str, tmp_path: Path, warm: Warm, valkey: ValkeyProcess
) -> None:
    world = World(tmp_path, era, warm, f"{valkey.url}?namespace={uuid4().hex}")
    named = sorted(pair.split(), key=lambda name: ORDER.index(name) if name in ORDER else len(ORDER))
    both = [FEATURES[name] for name in named]
    for feature in both:
        feature.prepare(world)
    for feature in both:
        await feature.before(world)
    async with world.opened():
        for feature in both:
            await feature.check(world)
        for feature in both:
            await feature.last(world)
    for feature in both:
        await feature.after(world)
