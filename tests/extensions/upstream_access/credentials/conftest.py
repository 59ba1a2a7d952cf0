from collections.abc import Iterator

import pytest
from tests.support.authorization_server import AuthorizationServer, authorization_server


@pytest.fixture(scope="module")
def issuer() -> Iterator[AuthorizationServer]:
    """A real authorization server, for the tests of a file."""
    with authorization_server() as running:
        yield running
