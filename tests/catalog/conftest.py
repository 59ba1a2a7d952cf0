"""What the tests of grants in another process share: that process, its clients, and ports without answers."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator

import pytest
from tests.support.far_store import FarStore, far_stores


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with far_stores() as port:
        yield port


@pytest.fixture
def far(port: int, request: pytest.FixtureRequest) -> Callable[[], FarStore]:
    """Makes clients of one store of this test."""
    return lambda: FarStore(port, request.node.name)


@pytest.fixture(params=["dead", "silent"])
def unreachable(request: pytest.FixtureRequest) -> Iterator[int]:
    """The port of nobody, or of somebody who never answers."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        if request.param == "silent":
            listening.listen()
        yield listening.getsockname()[1]
