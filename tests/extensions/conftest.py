from collections.abc import Iterator
from uuid import uuid4

import pytest


@pytest.fixture(scope="package")
def valkey() -> Iterator[object]:
    """One server of Valkey for the tests of extensions."""
    from tests.support.valkey import valkey_process

    with valkey_process() as server:
        yield server


@pytest.fixture
def url(valkey: object) -> str:
    """A namespace of its own there."""
    return f"{valkey.url}?namespace={uuid4().hex}"  # pyright: ignore[reportAttributeAccessIssue]
