from collections.abc import Iterator
from uuid import uuid4

import pytest
from tests.support.valkey import ValkeyProcess, valkey_process


@pytest.fixture(scope="session")
def valkey() -> Iterator[ValkeyProcess]:
    """One server for the tests that leave it alone."""
    with valkey_process() as server:
        yield server


@pytest.fixture
def url(valkey: ValkeyProcess) -> str:
    """A namespace of its own."""
    return f"{valkey.url}?namespace={uuid4().hex}"
